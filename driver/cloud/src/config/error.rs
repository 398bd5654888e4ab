// SPDX-License-Identifier: Apache-2.0
//! Errors of a configuration, and the place in a file.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

/// An invalid configuration. Never contains the value of a key, which may be a secret.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("{} cannot be read: {reason}; check that the file is mounted and readable", .path.display())]
    ReadFile { path: PathBuf, reason: String },
    /// The text is not in the format.
    #[error("{place}: {reason}")]
    Parse {
        /// File and line.
        place: FileLocation,
        /// The error and its correction.
        reason: String,
    },
    /// The value of a key is invalid.
    #[error("{place}: {key} {reason}")]
    BadValue {
        /// File and line.
        place: FileLocation,
        /// The key, with its section.
        key: String,
        /// The valid values.
        reason: String,
    },
    /// A required key is missing.
    #[error("{file}: {key} is missing; {remedy}")]
    Missing {
        /// The file or files.
        file: String,
        /// The key or keys.
        key: String,
        remedy: String,
    },
    /// A key or section requests a feature that this version does not support.
    #[error("{place}: {what} is not supported; {remedy}")]
    Unsupported {
        /// File and line.
        place: FileLocation,
        /// Key or section.
        what: String,
        remedy: String,
    },
    /// `clouds.yaml` does not have the cloud.
    #[error("{file}: no cloud {cloud:?}; it has: {known}")]
    UnknownCloud {
        file: String,
        /// The requested cloud.
        cloud: String,
        /// The clouds of the file.
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

impl ConfigError {
    /// The problem without its remedy, and the remedy, for callers that show them apart.
    pub fn problem_and_remedy(&self) -> (String, Option<&str>) {
        match self {
            Self::Missing { file, key, remedy } => (format!("{file}: {key} is missing"), Some(remedy)),
            Self::Unsupported { place, what, remedy } => (format!("{place}: {what} is not supported"), Some(remedy)),
            Self::WithIgnoredKeys { error, keys } => {
                let (problem, remedy) = error.problem_and_remedy();
                (format!("{problem}; not used: {keys}"), remedy)
            }
            Self::ReadFile { .. } | Self::Parse { .. } | Self::BadValue { .. } | Self::UnknownCloud { .. } => {
                (self.to_string(), None)
            }
        }
    }
}

/// A location in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLocation {
    /// The path as the caller supplied it.
    pub file: String,
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
}

impl fmt::Display for FileLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            f.write_str(&self.file)
        } else {
            write!(f, "{} line {}", self.file, self.line)
        }
    }
}
