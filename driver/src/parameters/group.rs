// SPDX-License-Identifier: Apache-2.0
//! Parameters of a VolumeGroupSnapshotClass.

use std::collections::BTreeMap;

use super::KUBERNETES_PREFIX;

const GROUP_TYPE: &str = "group-type";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupParameters {
    /// Name or id of the Cinder group type, which must have `consistent_group_snapshot_enabled`.
    ///
    /// Cinder shows this property to administrators only. Otherwise the driver trusts the class.
    pub group_type: Option<String>,
    unknown: Vec<String>,
}

impl GroupParameters {
    /// Every permitted key, except the keys of Kubernetes.
    pub(super) const KEYS: [&str; 1] = [GROUP_TYPE];

    /// Parses the parameters of a request.
    pub fn decode(parameters: BTreeMap<String, String>) -> Self {
        let (mut group_type, mut unknown) = (None, Vec::new());
        for (key, value) in parameters {
            match key.as_str() {
                _ if key.starts_with(KUBERNETES_PREFIX) => {}
                // An empty value counts as missing.
                known if value.is_empty() && Self::KEYS.contains(&known) => {}
                GROUP_TYPE => group_type = Some(value),
                _ => unknown.push(key),
            }
        }
        Self { group_type, unknown }
    }

    /// Returns the unknown keys. They are logged and ignored, as for other classes.
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
    fn group_type_is_parsed_and_unknown_keys_listed() {
        let parameters = decode(&[
            ("group-type", "consistent"),
            ("csi.storage.k8s.io/volumegroupsnapshot/name", "x"),
            ("group_type", "typo"),
        ]);
        assert_eq!(parameters.group_type.as_deref(), Some("consistent"));
        assert_eq!(parameters.unknown(), ["group_type"]);
    }
}
