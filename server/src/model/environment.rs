//! Variables that a workspace puts into the environment of its processes.

use std::collections::BTreeMap;

use super::{Rejection, Short};

/// Most variables of a workspace.
const MAX_COUNT: usize = 256;
/// Most bytes of all names and values.
const MAX_BYTES: usize = 64 << 10;
/// They would load code into whatever runs, the sandbox itself included.
const FORBIDDEN: [&str; 3] = ["LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT"];
/// Names that the daemon gives a meaning to.
const RESERVED: &str = "SUBSTRAT_";

/// Checks all variables of a workspace, or of a command in it.
pub fn check(env: &BTreeMap<String, String>) -> Result<(), Rejection> {
    let hint = "use at most 256 variables with names of letters, digits and _, 64 KiB together";
    let refuse = |problem: String| Err(Rejection::WorkspaceInvalid { problem, hint });
    if env.len() > MAX_COUNT {
        return refuse(format!("it would have {} variables", env.len()));
    }
    let bytes: usize = env.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    if bytes > MAX_BYTES {
        return refuse(format!("its variables would have {bytes} bytes"));
    }
    for (name, value) in env {
        let shown: String = name.chars().take(80).collect();
        if !is_name(name) {
            return refuse(format!("{shown:?} is not the name of a variable"));
        }
        if name.starts_with(RESERVED) || FORBIDDEN.contains(&name.as_str()) {
            return Err(Rejection::WorkspaceInvalid {
                problem: format!("the variable {shown:?} is reserved"),
                hint: "leave it out; SUBSTRAT_… is the daemon's, and LD_PRELOAD, LD_LIBRARY_PATH \
                       and LD_AUDIT would load code into whatever runs",
            });
        }
        if value.contains('\0') {
            return refuse(format!("the variable {shown:?} contains a NUL byte"));
        }
    }
    Ok(())
}

/// Checks names of variables that are to be removed.
pub(super) fn check_names<'a>(names: impl Iterator<Item = &'a String>) -> Result<(), Rejection> {
    let hint = "use names of letters, digits and _, without a value";
    let mut names = names;
    match names.find(|name| !is_name(name)) {
        Some(odd) => {
            let problem = format!("{} is not the name of a variable", Short(odd));
            Err(Rejection::WorkspaceInvalid { problem, hint })
        }
        None => Ok(()),
    }
}

fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(fits) && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> Result<(), Rejection> {
        check(&BTreeMap::from([(name.to_owned(), value.to_owned())]))
    }

    #[test]
    fn names_and_values_are_checked() {
        for name in ["PATH", "_", "a1", "LD_PRELOADED"] {
            assert_eq!(with(name, "any = value\n"), Ok(()), "{name}");
        }
        for name in ["", "1A", "A-B", "A=B", "Ä", "SUBSTRAT_HOME", "LD_PRELOAD", "LD_AUDIT"] {
            assert!(with(name, "v").is_err(), "{name}");
        }
        assert!(with("A", "a\0b").is_err());
    }

    #[test]
    fn their_number_and_size_are_bounded() {
        let many = |count: usize| (0..count).map(|i| (format!("V{i}"), String::new())).collect();
        assert!(check(&many(MAX_COUNT)).is_ok() && check(&many(MAX_COUNT + 1)).is_err());
        assert!(with("A", &"x".repeat(MAX_BYTES - 3)).is_ok());
        assert!(with("A", &"x".repeat(MAX_BYTES - 2)).is_err());
    }
}
