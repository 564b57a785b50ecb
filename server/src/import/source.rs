//! What lies in a home of the Python Substrat. Reads only.

use std::io::ErrorKind;

use serde::Deserialize;

use super::line::Log;
use super::report::{Report, count};
use crate::journal::disk::read_all;
use crate::journal::{Disk, Error};
use crate::model::{AgentId, Blob, SessionId, Timestamp};
use crate::projection;

/// The folder of all workspaces, below the home.
const WORKSPACES: &str = "workspaces";

/// A session: its record and its log.
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) record: Record,
    pub(super) log: Log,
}

/// The contents of `session.json`.
#[derive(Debug, Deserialize)]
pub(super) struct Record {
    id: SessionId,
    pub(super) state: String,
    pub(super) provider_name: String,
    pub(super) model: Option<String>,
    pub(super) created_at: Timestamp,
    pub(super) suspended_at: Option<Timestamp>,
    pub(super) provider_state: Blob,
}

/// The contents of `meta.json`, and where it lay.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Workspace {
    pub(super) name: String,
    pub(super) scope: AgentId,
    pub(super) root_path: String,
    #[serde(default)]
    pub(super) network_access: bool,
    #[serde(default)]
    pub(super) links: Vec<Link>,
    pub(super) created_at: Timestamp,
    /// Its root, below the folder of all workspaces.
    #[serde(skip)]
    pub(super) root: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Link {
    pub(super) host_path: String,
    pub(super) mount_path: String,
    pub(super) mode: String,
}

/// Everything that can be read.
pub(super) struct Source {
    pub(super) sessions: Vec<Session>,
    pub(super) workspaces: Vec<Workspace>,
}

/// Whether the logs are those of the Python Substrat: their lines have no `seq`.
///
/// Only asked where there is neither journal nor checkpoint.
pub(super) fn is_there(disk: &dyn Disk) -> Result<bool, Error> {
    let mut found = false;
    for name in list(disk, projection::DIR)? {
        let Ok(session) = name.parse::<SessionId>() else { continue };
        if let Some(own) = is_own(disk, session)? {
            return Ok(!own);
        }
        let pending = format!("{}/events.pending", projection::session_dir(session));
        found |= disk.size(&pending).is_ok();
    }
    Ok(found || !metas(disk)?.is_empty())
}

/// Whether a log is one of this daemon; none if it does not say.
fn is_own(disk: &dyn Disk, session: SessionId) -> Result<Option<bool>, Error> {
    let path = projection::events_path(Some(session));
    let failed = || Error::io(format!("reading {path}"));
    let file = match disk.open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed()(error)),
    };
    let mut head = [0; 16];
    let read = file.read_at(&mut head, 0).map_err(failed())?;
    let starts = |text: &str| head[..read].starts_with(text.as_bytes());
    Ok(match (starts(r#"{"seq":"#), starts(r#"{"session_id":"#) || starts(r#"{"ts":"#)) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    })
}

impl Source {
    /// Reads a home. What cannot be read is noted, and stops nothing else.
    pub(super) fn read(disk: &dyn Disk, report: &mut Report) -> Result<Self, Error> {
        let mut sessions = Vec::new();
        let mut names = list(disk, projection::DIR)?;
        names.sort_unstable();
        for name in names {
            match name.parse::<SessionId>() {
                Ok(id) if id.to_string() == name => {
                    sessions.extend(read_session(disk, id, report)?);
                }
                _ => report.note(format!("agents/{name} is no session; it was left aside")),
            }
        }
        Ok(Self { sessions, workspaces: read_workspaces(disk, report)? })
    }
}

fn read_session(
    disk: &dyn Disk,
    id: SessionId,
    report: &mut Report,
) -> Result<Option<Session>, Error> {
    let dir = projection::session_dir(id);
    let Some(record) = read_if_there(disk, &format!("{dir}/session.json"))? else {
        report.note(format!(
            "{dir} has no session.json, so its creation was never acknowledged; it was left aside"
        ));
        return Ok(None);
    };
    let record = match serde_json::from_slice::<Record>(&record) {
        Ok(record) if record.id == id => record,
        Ok(record) => {
            let other = record.id;
            report.note(format!("{dir}/session.json is that of {other}; {dir} was set aside"));
            return Ok(None);
        }
        Err(error) => {
            report.note(format!("{dir}/session.json is damaged ({error}); {dir} was set aside"));
            return Ok(None);
        }
    };
    let log = read_if_there(disk, &format!("{dir}/events.jsonl"))?.unwrap_or_default();
    let pending = read_if_there(disk, &format!("{dir}/events.pending"))?;
    let log = Log::read(&log, pending.as_deref(), id);
    let unacknowledged = "it was never acknowledged, and was dropped";
    if log.torn_pending {
        report.note(format!("the entry in {dir}/events.pending is torn: {unacknowledged}"));
    }
    if log.torn_tail {
        report.note(format!("the last line of {dir}/events.jsonl is torn: {unacknowledged}"));
    }
    if log.mended > 0 {
        report.note(format!(
            "{} of {dir}/events.jsonl began with a torn write: the entry after it was taken",
            count(log.mended, "line")
        ));
    }
    if let Some(number) = log.damaged {
        report.note(format!(
            "line {number} of {dir}/events.jsonl is damaged: the lines before it were taken, and \
             the rest was left aside"
        ));
    }
    Ok(Some(Session { id, record, log }))
}

/// The files `meta.json`, with the roots beside them.
fn metas(disk: &dyn Disk) -> Result<Vec<(String, String)>, Error> {
    let mut found = Vec::new();
    for scope in list(disk, WORKSPACES)? {
        let mut names = list(disk, &format!("{WORKSPACES}/{scope}"))?;
        names.sort_unstable();
        for name in names {
            let meta = format!("{WORKSPACES}/{scope}/{name}/meta.json");
            if disk.size(&meta).is_ok() {
                found.push((meta, format!("{scope}/{name}/root")));
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn read_workspaces(disk: &dyn Disk, report: &mut Report) -> Result<Vec<Workspace>, Error> {
    let mut workspaces = Vec::new();
    for (meta, root) in metas(disk)? {
        let bytes = read_all(disk, &meta).map_err(Error::io(format!("reading {meta}")))?;
        match serde_json::from_slice::<Workspace>(&bytes) {
            Ok(read) if format!("{}/{}/root", read.scope, read.name) == root => {
                workspaces.push(Workspace { root, ..read });
            }
            Ok(_) => report.note(format!("{meta} is that of another workspace; it was left aside")),
            Err(error) => report.note(format!("{meta} is damaged ({error}); it was left aside")),
        }
    }
    workspaces
        .sort_by(|one, other| (one.created_at, &one.root).cmp(&(other.created_at, &other.root)));
    Ok(workspaces)
}

/// The names in a folder; none where there is no such folder.
fn list(disk: &dyn Disk, path: &str) -> Result<Vec<String>, Error> {
    match disk.list(path) {
        Ok(names) => Ok(names),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(error) => Err(Error::io(format!("listing {path}"))(error)),
    }
}

fn read_if_there(disk: &dyn Disk, path: &str) -> Result<Option<Vec<u8>>, Error> {
    match read_all(disk, path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(Error::io(format!("reading {path}"))(error)),
    }
}
