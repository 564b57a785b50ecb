//! Why a configuration cannot be used.

use std::path::PathBuf;

use super::did_you_mean;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: {error}; make it a file that its owner can read, or remove it")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The file is no TOML.
    #[error("{path}: line {line}, column {column}: {problem}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where, from 1.
        line: usize,
        /// Where in the line, from 1.
        column: usize,
        /// What is wrong there.
        problem: String,
    },
    /// There is no such key.
    #[error("{source_name}: unknown key {key:?}{}", did_you_mean(key))]
    UnknownKey {
        /// Where it stands.
        source_name: String,
        /// The key.
        key: String,
    },
    /// A section on a provider is wrong.
    #[error("{source_name}: {key}: {problem}")]
    BadSection {
        /// Where it stands.
        source_name: String,
        /// The key.
        key: String,
        /// What is wrong.
        problem: String,
    },
    /// The value does not fit the key.
    #[error("{source_name}: {key} = {value}: {problem}")]
    BadValue {
        /// Where it stands.
        source_name: String,
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// What would fit.
        problem: String,
    },
}
