//! Cgroups of version 2: one hierarchy for all controllers.
//!
//! A group that hands controllers down may hold no processes of its own. So the daemon moves into
//! a leaf beside its workspaces, but only in a group that is its to change.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::cgroup::{Counts, Hierarchy, PERIOD_MICROS, Setting, count, quota_micros};
use super::machine::{Machine, Manager};
use super::{Controller, files};
use crate::model::Limits;

/// Where the daemon itself goes.
const LEAF: &str = "substratd";

/// Makes the daemon's own group, with the controllers that there are, or says why not.
pub(super) fn set_up(machine: &Machine, name: &str) -> Result<Hierarchy, String> {
    let own = machine.unified().ok_or("no unified hierarchy is mounted")?;
    let there = files::text(&own.join("cgroup.controllers"));
    let there: Vec<&str> = there.split_whitespace().collect();
    let wanted: Vec<Controller> =
        Controller::ALL.into_iter().filter(|wanted| there.contains(&wanted.name())).collect();
    if wanted.is_empty() {
        return Err(format!("{} has no controllers", own.display()));
    }
    if !is_ours(&own, machine.manager) {
        return Err(format!("{} is not delegated to the daemon", own.display()));
    }
    let enabled = enable_beside_daemon(&own, &wanted).map_err(|error| error.to_string())?;
    let base = own.join(name);
    files::make_dir(&base).map_err(|error| error.to_string())?;
    let controllers = hand_down(&base, &enabled).map_err(|error| error.to_string())?;
    Ok(Hierarchy { base, controllers })
}

/// Whether a group is the daemon's to change: systemd says so, nobody else manages the groups, or
/// it belongs to the user, who is not root.
fn is_ours(own: &Path, manager: Manager) -> bool {
    let delegated = ["trusted.delegate", "user.delegate"].iter().any(|name| {
        let mut value = [0; 8];
        rustix::fs::getxattr(own, *name, &mut value[..])
            .is_ok_and(|length| value.get(..length).is_some_and(|value| value == b"1"))
    });
    let user = rustix::process::geteuid().as_raw();
    let owned = own.metadata().is_ok_and(|folder| folder.uid() == user && user != 0);
    delegated || owned || manager == Manager::Nobody
}

/// Enables controllers for the groups below the daemon's own, out of which it moves if it must.
fn enable_beside_daemon(own: &Path, wanted: &[Controller]) -> io::Result<BTreeSet<Controller>> {
    // Only the root of all groups has no type, and may hold processes beside groups.
    let is_root = !own.join("cgroup.type").exists();
    let occupied = !files::text(&own.join(PROCS)).trim().is_empty();
    if is_root || !occupied {
        return hand_down(own, &wanted.iter().copied().collect());
    }
    let leaf = own.join(LEAF);
    files::make_dir(&leaf)?;
    let moved = files::write(&leaf.join(PROCS), "0");
    let enabled = moved.and_then(|()| hand_down(own, &wanted.iter().copied().collect()));
    enabled.map_err(|error| {
        // Others are in the group: they are not the daemon's to move. It goes back to them.
        let _ = files::write(&own.join(PROCS), "0");
        files::remove_dir(&leaf);
        if error.kind() != io::ErrorKind::ResourceBusy {
            return error;
        }
        io::Error::new(error.kind(), format!("{} holds other processes too", own.display()))
    })
}

/// Lets the groups below have controllers; returns those that they got.
pub(super) fn hand_down(
    group: &Path,
    controllers: &BTreeSet<Controller>,
) -> io::Result<BTreeSet<Controller>> {
    let file = group.join("cgroup.subtree_control");
    let words: Vec<String> = controllers.iter().map(|one| format!("+{}", one.name())).collect();
    if files::write(&file, &words.join(" ")).is_ok() {
        return Ok(controllers.clone());
    }
    // One that cannot be had, such as cpu beside real-time tasks, must not cost the others.
    let mut got = BTreeSet::new();
    let mut refusal = None;
    for (controller, word) in controllers.iter().zip(&words) {
        match files::write(&file, word) {
            Ok(()) => drop(got.insert(*controller)),
            Err(error) => refusal = Some(error),
        }
    }
    match refusal {
        Some(error) if got.is_empty() => Err(error),
        _ => Ok(got),
    }
}

pub(super) const PROCS: &str = "cgroup.procs";

/// What to write into the files of a workspace's group, in this order.
pub(super) fn settings(controllers: &BTreeSet<Controller>, limits: &Limits) -> Vec<Setting> {
    let or_max = |value: Option<u64>| value.map_or_else(|| "max".to_owned(), |v| v.to_string());
    let mut settings = Vec::new();
    if controllers.contains(&Controller::Memory) {
        settings.push(Setting::required("memory.max", or_max(limits.memory)));
        // Else the limit would only decide what is swapped out.
        let swap = if limits.memory.is_some() { "0" } else { "max" };
        settings.push(Setting::optional("memory.swap.max", swap));
    }
    if controllers.contains(&Controller::Pids) {
        settings.push(Setting::required("pids.max", or_max(limits.processes.map(u64::from))));
    }
    if controllers.contains(&Controller::Cpu) {
        let quota = or_max(limits.cpu_millis.map(quota_micros));
        settings.push(Setting::required("cpu.max", format!("{quota} {PERIOD_MICROS}")));
    }
    settings
}

/// What was counted. Processes are counted where they were ended; a refused fork with the group
/// whose limit it met, which is the workspace's, since Linux 6.11, and with its own group before.
pub(super) fn counts(workspace: &[PathBuf], launch: &[PathBuf]) -> Counts {
    let sum = |dirs: &[PathBuf], file: &str, key: &str| -> u64 {
        dirs.iter().map(|dir| count(&files::text(&dir.join(file)), key)).sum()
    };
    Counts {
        oom_kills: sum(launch, "memory.events", "oom_kill"),
        refused: sum(launch, "pids.events", "max") + sum(workspace, "pids.events", "max"),
    }
}
