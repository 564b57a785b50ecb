//! Workspaces: which folders agents see, where, and what their processes may do.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{AgentId, Limits, Name, Rejection, Source, Timestamp, WorkspaceId};

/// What may be done in a folder.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub enum Access {
    /// Reading only.
    #[serde(rename = "ro")]
    ReadOnly,
    /// Reading and writing.
    #[default]
    #[serde(rename = "rw")]
    ReadWrite,
}

impl Access {
    /// As it stands in a log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "ro",
            Self::ReadWrite => "rw",
        }
    }

    /// Whether nothing is held back.
    pub(super) fn is_full(&self) -> bool {
        *self == Self::ReadWrite
    }
}

/// A folder from elsewhere, seen inside a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The folder.
    #[serde(flatten)]
    pub source: Source,
    /// What may be done through it.
    pub mode: Access,
    /// The workspace in which the agent that linked it saw it; none for a link of USER.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<WorkspaceId>,
}

/// A window on another workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The other workspace.
    pub of: WorkspaceId,
    /// The folder of it that is shown, in normal form; empty for the whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subdir: String,
    /// The most that may be done in it.
    pub access: Access,
}

/// A worktree of a Git repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Git {
    /// The repository's top folder on the host, an absolute path.
    pub repo: String,
    /// The branch that is checked out.
    pub branch: String,
    /// The folder that git keeps everything of the repository in, a real path.
    pub common_dir: String,
    /// Which folder that is: its inode. Another one at its path is not opened.
    pub identity: String,
    /// Whether the branch was made with the worktree.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub created_branch: bool,
    /// The commit that its branch is made from; absent for what the repository has checked out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
}

/// A folder with links, or a window on one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workspace {
    /// Identity.
    pub id: WorkspaceId,
    /// Name, unique in the daemon.
    pub name: Name,
    /// The workspace whose root holds this one's root, in a folder of this one's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<WorkspaceId>,
    /// Its root, below the folder of all workspaces: `<hex>/root`, or in that of its parent. A view
    /// has none there: [`State::workspace_world`](super::State::workspace_world) says what it
    /// shows.
    pub root: String,
    /// What it is a window on; none for a folder of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<View>,
    /// The worktree that its root is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<Git>,
    /// The agent that created it; none for USER.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<AgentId>,
    /// Links by their mount path, which is normal: relative, without `.`, `..` or empty parts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, Link>,
    /// Whether processes in it reach the network.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub network: bool,
    /// Variables in the environment of its processes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Limits on its processes, where it names any.
    #[serde(default, skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
    /// When it was created.
    pub created_at: Timestamp,
}

impl Workspace {
    /// Most links of one workspace.
    pub const MAX_LINKS: usize = 256;

    /// The link whose mount path lies on, above or below `mount`, if there is one.
    pub fn overlapping(&self, mount: &str) -> Option<&str> {
        self.links
            .keys()
            .map(String::as_str)
            .find(|other| covers(other, mount) || covers(mount, other))
    }
}

/// A workspace to be created.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewWorkspace {
    /// Its name.
    pub name: String,
    /// The workspace to hold it, by name or id; not for a view.
    pub parent: Option<String>,
    /// What it is to be a window on; none for an empty folder.
    pub view: Option<NewView>,
    /// The worktree that its root is; not for a view.
    pub git: Option<Git>,
    /// Whether its processes reach the network.
    pub network: bool,
    /// Variables in their environment.
    pub env: BTreeMap<String, String>,
    /// Limits on them.
    pub limits: Limits,
}

impl NewWorkspace {
    /// An empty folder.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

/// A window to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewView {
    /// The other workspace, by name or id.
    pub of: String,
    /// The folder of it that is shown; empty for the whole.
    pub subdir: String,
    /// The most that may be done in it.
    pub access: Access,
}

/// Whether `path` is `above` or lies below it. All lies below the root, the empty path.
pub fn covers(above: &str, path: &str) -> bool {
    if above.is_empty() {
        return true;
    }
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Longest path inside a workspace, in bytes.
const MAX_PATH: usize = 4096;
/// Most parts of a path inside a workspace.
const MAX_PARTS: usize = 128;

/// Brings a path inside a workspace into its normal form: relative, parts joined by one `/`. The
/// root is the empty text.
pub fn normal_path(path: &str) -> Result<String, Rejection> {
    let refuse = |problem| Rejection::PathInvalid { path: path.to_owned(), problem };
    if path.len() > MAX_PATH {
        return Err(refuse("it is longer than 4,096 bytes"));
    }
    if path.starts_with('/') {
        return Err(refuse("it is absolute; paths are relative to the root of the workspace"));
    }
    if path.contains('\0') {
        return Err(refuse("it contains a NUL byte"));
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.contains(&"..") {
        return Err(refuse("it leads out of its folder with \"..\""));
    }
    if parts.len() > MAX_PARTS {
        return Err(refuse("it has more than 128 parts"));
    }
    Ok(parts.join("/"))
}

/// Longest part of a path, in bytes.
const MAX_NAME: usize = 255;

/// Brings a path at which a folder is to be mounted into its normal form. What lies there has to be
/// called by its name, inside as outside.
pub(super) fn mount_path(path: &str) -> Result<String, Rejection> {
    let normal = normal_path(path)?;
    let refuse = |problem| Err(Rejection::PathInvalid { path: path.to_owned(), problem });
    if normal.is_empty() {
        return refuse("the root of the workspace cannot be a link");
    }
    if normal.split('/').any(|part| part.len() > MAX_NAME) {
        return refuse("a part of it is longer than 255 bytes");
    }
    Ok(normal)
}

/// Joins two normal paths. The whole is to be checked again: it may be too long.
pub(super) fn join_paths(above: &str, below: &str) -> Result<String, Rejection> {
    normal_path(&format!("{above}{}{below}", if above.is_empty() { "" } else { "/" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normal_or_refused() {
        assert_eq!(normal_path("./a//b/."), Ok("a/b".to_owned()));
        assert_eq!(normal_path(""), Ok(String::new()));
        for bad in ["/etc/passwd", "..", "a/../../b", "a\0b"] {
            assert!(normal_path(bad).is_err(), "{bad:?}");
        }
        assert!(normal_path(&"a".repeat(MAX_PATH)).is_ok());
        assert!(normal_path(&"a".repeat(MAX_PATH + 1)).is_err());
        assert!(normal_path(&"a/".repeat(MAX_PARTS)).is_ok());
        assert!(normal_path(&"a/".repeat(MAX_PARTS + 1)).is_err());
    }

    #[test]
    fn covering_goes_by_whole_parts() {
        assert!(covers("src", "src") && covers("src", "src/a"));
        assert!(!covers("src", "src2") && !covers("src/a", "src"));
    }
}
