//! The file `.git` of a worktree. It leads git to the repository, and whoever writes it leads git to
//! settings that run programs. So no agent does, and nothing is shown in its place.

use super::{Rejection, Source, State, Workspace};

impl Source {
    /// Whether it is the root of a worktree: only that lies in a folder of its own name.
    pub fn is_worktree(&self) -> bool {
        match self {
            Self::Workspaces(root) => root.split_once('/').is_some_and(|(top, name)| top == name),
            Self::Host(_) => false,
        }
    }

    /// Whether it is the file `.git` of a worktree, or would lie below that.
    pub fn is_git_file(&self) -> bool {
        let Self::Workspaces(path) = self else { return false };
        let mut parts = path.split('/');
        let (top, root, name) = (parts.next(), parts.next(), parts.next());
        top == root && name == Some(".git")
    }
}

/// The refusal of such a path.
pub(super) fn git_file(path: &str) -> Rejection {
    let problem = "it is the file by which git finds the repository; choose another path";
    Rejection::PathInvalid { path: path.to_owned(), problem }
}

impl State {
    /// Refuses a path of a workspace that is the `.git` of a worktree, or lies below it.
    pub(super) fn check_git_file(
        &self,
        workspace: &Workspace,
        path: &str,
    ) -> Result<(), Rejection> {
        match self.workspace_world(workspace).at(path) {
            Some(seen) if seen.source.is_git_file() => Err(git_file(path)),
            _ => Ok(()),
        }
    }

    /// Folders at which a link that was just removed was mounted, the innermost first: those above
    /// are only there to lead to it, unless something else is mounted there.
    pub fn places_left(&self, workspace: &Workspace, mount_path: &str) -> Vec<Source> {
        let mut used: Vec<Source> = Vec::new();
        for one in self.workspaces().filter(|one| !one.links.is_empty()) {
            let world = self.workspace_world(one);
            let place = |at: &String| world.clone().without(at).at(at);
            used.extend(one.links.keys().filter_map(place).map(|seen| seen.source));
        }
        let world = self.workspace_world(workspace);
        let Some((around, rest)) = world.mount_of(mount_path) else { return Vec::new() };
        if !around.may_hold_places() {
            return Vec::new();
        }
        let ends = rest.match_indices('/').map(|(at, _)| at).chain([rest.len()]);
        let places = ends.map(|end| around.source.join(&rest[..end]));
        let mut places: Vec<Source> = places.filter(|place| *place != around.source).collect();
        places.reverse();
        let free = places.iter().take_while(|place| !used.iter().any(|at| place.covers(at)));
        let count = free.count();
        places.truncate(count);
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_git_file_of_a_worktree_is_told_from_other_paths() {
        let of = |path: &str| Source::Workspaces(path.to_owned());
        assert!(of("a1/a1").is_worktree());
        for other in ["a1/root", "a1", "a1/a1/a1", "a1/a1/sub"] {
            assert!(!of(other).is_worktree(), "{other}");
        }
        assert!(of("a1/a1/.git").is_git_file() && of("a1/a1/.git/config").is_git_file());
        for other in ["a1/root/.git", "a1/a1/.gitignore", "a1/a1/sub/.git", "a1/a1"] {
            assert!(!of(other).is_git_file(), "{other}");
        }
        assert!(!Source::Host("a1/a1/.git".to_owned()).is_git_file());
    }
}
