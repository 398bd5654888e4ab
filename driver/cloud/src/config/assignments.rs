// SPDX-License-Identifier: Apache-2.0
//! The assignments of a `cloud.conf` in their order, for callers that compare it with another configuration.

use secrecy::SecretString;

use super::{ConfigError, cloud_conf, gcfg};

/// A key of a `cloud.conf` and its value. Its `Debug` does not show the value.
#[derive(Debug, Clone)]
pub struct Assignment {
    /// The section, in lower case.
    pub section: String,
    /// The name of the cloud in the section header.
    pub cloud: Option<String>,
    /// The key, in lower case.
    pub key: String,
    /// The value; `None` for a key without `=`, which means true.
    pub value: Option<SecretString>,
}

/// Reads the assignments of a `cloud.conf`. Errors name the line and show no value.
pub fn assignments_of(text: &str) -> Result<Vec<Assignment>, ConfigError> {
    let entries = gcfg::parse(text, cloud_conf::FILE)?.into_iter();
    let assignments = entries.map(|entry| Assignment {
        section: entry.section,
        cloud: entry.subsection,
        key: entry.key,
        value: entry.value.map(Into::into),
    });
    Ok(assignments.collect())
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    #[test]
    fn assignments_keep_order_and_hide_values() {
        let text = "[Global \"West\"]\nPassword = hunter2\n[BlockStorage]\nrescan-on-resize\n";
        let read = assignments_of(text).expect("a file");
        let shown: Vec<_> = read
            .iter()
            .map(|one| (one.section.as_str(), one.cloud.as_deref(), one.key.as_str()))
            .collect();
        assert_eq!(
            shown,
            [
                ("global", Some("West"), "password"),
                ("blockstorage", None, "rescan-on-resize")
            ]
        );
        assert_eq!(read[0].value.as_ref().map(ExposeSecret::expose_secret), Some("hunter2"));
        assert!(read[1].value.is_none());
        assert!(!format!("{read:?}").contains("hunter2"));
    }
}
