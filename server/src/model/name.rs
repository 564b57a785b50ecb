//! Names of agents and workspaces.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Rejection;

/// What a model may call its parent, whatever the parent's name is.
pub(super) const PARENT_ALIAS: &str = "parent";

/// A name: 1 to 64 bytes, no `/`, white space or control characters; no `-` or `.` at its start;
/// never `USER` or `SYSTEM`, in any case.
///
/// Only [`Name::parse`] checks that; a name read from a log is taken as it stands.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Name(Arc<str>);

impl Name {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 64;

    /// Checks a name that a user or a model chose.
    pub fn parse(text: &str) -> Result<Self, Rejection> {
        let (problem, hint) = if text.is_empty() {
            ("it is empty", "give one of 1 to 64 bytes")
        } else if text.len() > Self::MAX_BYTES {
            ("it is longer than 64 bytes", "use at most 64 bytes")
        } else if text.contains('/') {
            ("it contains \"/\"", "leave out \"/\"; a parent is named apart")
        } else if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            ("it contains white space or a control character", "use \"-\" or \"_\" instead")
        } else if text.eq_ignore_ascii_case("USER") || text.eq_ignore_ascii_case("SYSTEM") {
            ("it is reserved", "choose another; USER and SYSTEM are not agents")
        } else if text.starts_with(['-', '.']) {
            ("it starts with \"-\" or \".\"", "start it with a letter or a digit")
        } else {
            return Ok(Self(text.into()));
        };
        Err(Rejection::NameInvalid { name: text.chars().take(80).collect(), problem, hint })
    }

    /// Checks a name that a user or a model chose for an agent: `parent`, in any case, is what an
    /// agent may call the one above it.
    pub fn of_agent(text: &str) -> Result<Self, Rejection> {
        let name = Self::parse(text)?;
        if text.eq_ignore_ascii_case(PARENT_ALIAS) {
            let (problem, hint) = ("it is reserved", "choose another; agents call their parent so");
            return Err(Rejection::NameInvalid { name: text.to_owned(), problem, hint });
        }
        Ok(name)
    }

    /// A name as a log or the daemon itself has it.
    pub fn known(text: &str) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_problem_of_a_name_has_a_hint_of_its_own() {
        let long = "x".repeat(65);
        let hints: BTreeSet<String> = ["", &long, "a/b", "a b", "USER", "-x"]
            .iter()
            .map(|bad| Name::parse(bad).unwrap_err().hint())
            .collect();
        assert_eq!(hints.len(), 6, "{hints:?}");
    }

    #[test]
    fn names_that_would_confuse_are_refused() {
        for bad in ["", "a/b", "a b", "nul\0", "tab\t", "USER", "system", "-x", ".."] {
            assert!(Name::parse(bad).is_err(), "{bad:?}");
        }
        assert!(Name::parse(&"x".repeat(65)).is_err());
        for good in ["lead", "reviewer-1", "größe", "a.b", "日本"] {
            assert_eq!(Name::parse(good).map(|name| name.to_string()), Ok(good.to_owned()));
        }
    }

    #[test]
    fn no_agent_is_called_what_agents_call_their_parent() {
        for bad in ["parent", "Parent", "PARENT"] {
            assert!(Name::of_agent(bad).is_err(), "{bad:?}");
            assert!(Name::parse(bad).is_ok(), "a workspace may be called {bad:?}");
        }
        assert!(Name::of_agent("parents").is_ok());
    }
}
