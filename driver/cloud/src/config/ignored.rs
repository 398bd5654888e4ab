// SPDX-License-Identifier: Apache-2.0
//! Keys of a file that have no effect.

use std::fmt;

use csi_sources::UntrustedText;

use super::{ConfigError, FileLocation};

/// The number of keys in an error.
const KEYS_SHOWN: usize = 8;
/// The number of characters of a key in an error.
const KEY_SHOWN: usize = 80;

/// A key without an effect, or a section of such keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IgnoredKey {
    pub(super) place: FileLocation,
    /// The name with its section or its cloud.
    pub(super) key: String,
    pub(super) reason: &'static str,
}

/// The reason of an unknown key.
pub(super) const UNKNOWN: &str = "is not known and has no effect";

impl fmt::Display for IgnoredKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = UntrustedText::with_limit(&self.key, KEY_SHOWN);
        write!(f, "{}: {key} {}", self.place, self.reason)
    }
}

impl ConfigError {
    /// The same error with the keys that have no effect, one of which may be the cause.
    pub(super) fn with_ignored(self, ignored: &[IgnoredKey]) -> Self {
        if ignored.is_empty() {
            return self;
        }
        let shown = ignored.iter().take(KEYS_SHOWN);
        let mut keys: Vec<String> = shown
            .map(|ignored| UntrustedText::with_limit(&ignored.key, KEY_SHOWN).to_string())
            .collect();
        let more = ignored.len().saturating_sub(KEYS_SHOWN);
        if more > 0 {
            keys.push(format!("and {more} more"));
        }
        Self::WithIgnoredKeys {
            error: Box::new(self),
            keys: keys.join(", "),
        }
    }
}
