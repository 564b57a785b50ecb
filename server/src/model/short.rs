//! Paths and names in messages.

use std::fmt;

/// Characters of a text that are shown whole.
const WHOLE: usize = 120;
/// Characters that are shown of the beginning and of the end of a longer one.
const EITHER: usize = 50;

/// A path or name as a message shows it: quoted, and without its middle where it is long.
#[derive(Debug, Clone, Copy)]
pub struct Short<'a>(pub &'a str);

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text) = self;
        let count = text.chars().count();
        if count <= WHOLE {
            return write!(f, "{text:?}");
        }
        let head: String = text.chars().take(EITHER).collect();
        let tail: String = text.chars().skip(count - EITHER).collect();
        write!(f, "{:?} ({} bytes)", format!("{head}…{tail}"), text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_loses_its_middle() {
        assert_eq!(Short("a \"b\"\n").to_string(), r#""a \"b\"\n""#);
        assert_eq!(Short(&"é".repeat(WHOLE)).to_string().chars().count(), WHOLE + 2);
        let shown = Short(&format!("{}end", "é/".repeat(2000))).to_string();
        assert!(shown.starts_with("\"é/é/") && shown.ends_with("é/end\" (6003 bytes)"), "{shown}");
        assert!(shown.chars().count() < WHOLE + 20, "{shown}");
    }
}
