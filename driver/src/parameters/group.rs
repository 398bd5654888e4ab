// SPDX-License-Identifier: Apache-2.0
//! What a VolumeGroupSnapshotClass may ask for.

use std::collections::BTreeMap;

use super::KUBERNETES_PREFIX;

const GROUP_TYPE: &str = "group-type";

/// The parameters of a VolumeGroupSnapshotClass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupParameters {
    /// Name or id of the Cinder group type, which must have `consistent_group_snapshot_enabled`. Cinder shows that to administrators
    /// only: for others the class vouches for it.
    pub group_type: Option<String>,
    unknown: Vec<String>,
}

impl GroupParameters {
    /// Every key that a class may have, but for Kubernetes' own.
    pub(super) const KEYS: [&str; 1] = [GROUP_TYPE];

    /// Reads the map of a request.
    pub fn decode(parameters: BTreeMap<String, String>) -> Self {
        let (mut group_type, mut unknown) = (None, Vec::new());
        for (key, value) in parameters {
            match key.as_str() {
                _ if key.starts_with(KUBERNETES_PREFIX) => {}
                // An empty value is no value.
                known if value.is_empty() && Self::KEYS.contains(&known) => {}
                GROUP_TYPE => group_type = Some(value),
                _ => unknown.push(key),
            }
        }
        Self { group_type, unknown }
    }

    /// The keys that nobody knows. They are ignored and named in the log, as those of other classes.
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(pairs: &[(&str, &str)]) -> GroupParameters {
        let pairs = pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned()));
        GroupParameters::decode(pairs.collect())
    }

    #[test]
    fn the_group_type_is_read_and_unknown_keys_are_named() {
        let parameters = decode(&[
            ("group-type", "consistent"),
            ("csi.storage.k8s.io/volumegroupsnapshot/name", "x"),
            ("group_type", "typo"),
        ]);
        assert_eq!(parameters.group_type.as_deref(), Some("consistent"));
        assert_eq!(parameters.unknown(), ["group_type"]);
    }
}
