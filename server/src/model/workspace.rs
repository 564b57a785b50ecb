//! Workspaces: which host folders agents see, and where.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Name, Rejection, Timestamp, WorkspaceId};

/// What may be done through a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Reading only.
    #[serde(rename = "ro")]
    ReadOnly,
    /// Reading and writing.
    #[serde(rename = "rw")]
    ReadWrite,
}

/// A host folder seen inside a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Absolute path on the host, without symbolic links.
    pub host_path: String,
    /// What may be done through it.
    pub mode: Access,
}

/// A folder with links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workspace {
    /// Identity.
    pub id: WorkspaceId,
    /// Name, unique in the daemon.
    pub name: Name,
    /// The workspace whose root holds this one's root, in a folder of this one's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<WorkspaceId>,
    /// Its root, below the folder of all workspaces: `<hex>/root`, or in that of its parent.
    pub root: String,
    /// Links by their mount path, which is normal: relative, without `.`, `..` or empty parts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, Link>,
    /// When it was created.
    pub created_at: Timestamp,
}

impl Workspace {
    /// What is seen of it from a folder in normal form, as a workspace.
    pub fn window(&self, subdir: &str) -> Self {
        let mut window = self.clone();
        if subdir.is_empty() {
            return window;
        }
        let within = |mount: &str| Some(subdir.strip_prefix(mount)?.trim_start_matches('/'));
        let around = self.links.iter().find(|(mount, _)| covers(mount, subdir));
        window.links = match around {
            Some((mount, link)) => {
                let rest = within(mount).filter(|rest| !rest.is_empty());
                let host_path = match rest {
                    Some(rest) => format!("{}/{rest}", link.host_path),
                    None => link.host_path.clone(),
                };
                BTreeMap::from([(String::new(), Link { host_path, mode: link.mode })])
            }
            None => {
                let below = |mount: &String| {
                    Some(mount.strip_prefix(subdir)?.strip_prefix('/')?.to_owned())
                };
                let links = self.links.iter();
                links.filter_map(|(mount, link)| Some((below(mount)?, link.clone()))).collect()
            }
        };
        window.root = format!("{}/{subdir}", self.root);
        window
    }

    /// The link whose mount path lies on, above or below `mount`, if there is one.
    pub fn overlapping(&self, mount: &str) -> Option<&str> {
        self.links
            .keys()
            .map(String::as_str)
            .find(|other| covers(other, mount) || covers(mount, other))
    }
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
    let refuse =
        |problem| Rejection::PathInvalid { path: path.chars().take(200).collect(), problem };
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
