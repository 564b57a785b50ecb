//! What to do next, where that depends on more than the kind of a refusal.

use super::{LINK_IN_HOME, LINK_MISSING, LINK_NOT_A_FOLDER, LINK_UNREADABLE};
use crate::model::Short;

/// What can be unlinked.
pub(super) fn links_there(known: &[String]) -> String {
    let few: Vec<String> = known.iter().take(5).map(|path| Short(path).to_string()).collect();
    match known.len().saturating_sub(few.len()) {
        _ if few.is_empty() => "show the workspace to see its links".to_owned(),
        0 => format!("there are links at {}", few.join(", ")),
        more => format!("there are links at {} and {more} more", few.join(", ")),
    }
}

/// What can be linked instead.
pub(super) fn instead(path: &str, problem: &str) -> &'static str {
    match problem {
        LINK_NOT_A_FOLDER => "link the folder that it is in",
        LINK_IN_HOME => {
            "choose a folder beside the daemon's home; another workspace is shown with \
             \"substratctl workspace view\""
        }
        LINK_MISSING if path.contains("/~") => {
            "write it without quotes: a shell puts the home folder in place of ~"
        }
        LINK_MISSING => "make the folder first, or correct its path",
        LINK_UNREADABLE => "let the daemon's user in with chmod or setfacl, or link another folder",
        _ => "choose a folder of files, with nothing linked below it",
    }
}

/// What a path is to be.
pub(super) fn relative(path: &str) -> &'static str {
    match path {
        inside if inside.starts_with("/workspace/") => {
            "leave out \"/workspace/\": a path is relative to the root of the workspace"
        }
        absolute if absolute.starts_with('/') => {
            "use a path relative to the root of the workspace, without \"/\" at its beginning"
        }
        long if long.len() > 255 => "use a shorter path, relative to the root of the workspace",
        "" | "." => "name a folder in it, such as \"docs\"",
        _ => "use a path relative to the root of the workspace",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_that_cannot_be_linked_has_its_way_out() {
        let all = [LINK_IN_HOME, LINK_MISSING, LINK_NOT_A_FOLDER, LINK_UNREADABLE, "odd"];
        let mut hints = all.map(|problem| instead("/srv/docs", problem));
        assert!(hints[3].contains("chmod"), "{hints:?}");
        hints.sort_unstable();
        assert!(hints.windows(2).all(|two| two[0] != two[1]), "{hints:?}");
    }
}
