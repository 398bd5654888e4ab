// SPDX-License-Identifier: Apache-2.0
//! Errors of a configuration, and the place in a file.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

/// A configuration that cannot be used. Never holds the value of a key, which may be a secret.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("{} cannot be read: {reason}; check that the file is mounted and readable", .path.display())]
    ReadFile { path: PathBuf, reason: String },
    /// The text is not in the format.
    #[error("{place}: {reason}")]
    Parse {
        /// File and line.
        place: Place,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A key has a value that it cannot have.
    #[error("{place}: {key} {reason}")]
    BadValue {
        /// File and line.
        place: Place,
        /// The key, with its section.
        key: String,
        /// What it may be.
        reason: String,
    },
    /// A key that is needed is not there.
    #[error("{file}: {key} is missing; {remedy}")]
    Missing {
        /// The file, or several.
        file: String,
        /// The key or keys.
        key: String,
        remedy: String,
    },
    /// A key or section asks for something that this version does not do.
    #[error("{place}: {what} is not supported; {remedy}")]
    Unsupported {
        /// File and line.
        place: Place,
        /// Key or section.
        what: String,
        remedy: String,
    },
    /// `clouds.yaml` does not have the cloud.
    #[error("{file}: no cloud {cloud:?}; it has: {known}")]
    UnknownCloud {
        file: String,
        /// The cloud looked for.
        cloud: String,
        /// The clouds that it has.
        known: String,
    },
    /// Another error, in a configuration with keys that have no effect. One of them may be the cause.
    #[error("{error}; not used: {keys}")]
    WithIgnoredKeys {
        error: Box<ConfigError>,
        /// The keys, escaped and bounded.
        keys: String,
    },
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file, as given.
    pub file: String,
    /// The line, from 1; 0 when the file as a whole is meant.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            f.write_str(&self.file)
        } else {
            write!(f, "{} line {}", self.file, self.line)
        }
    }
}
