// SPDX-License-Identifier: Apache-2.0
//! Parameters of a VolumeAttributesClass.

use std::collections::BTreeMap;

use cinder_cloud::metadata_keys;
use cinder_cloud::{Changes, MigrationPolicy, NewVolume};

use super::KUBERNETES_PREFIX;

/// Name or id of the Cinder volume type, which includes quality of service.
const TYPE: &str = "type";
/// `never` or `on-demand`: whether a change of type may migrate the data to another backend.
const MIGRATION_POLICY: &str = "migration-policy";
/// `metadata.KEY`: the value of KEY in the volume's metadata.
pub(super) const METADATA_PREFIX: &str = "metadata.";
/// Metadata of a StorageClass or a VolumeSnapshotClass, as a JSON object of strings in the format of later Go drivers.
pub(super) const APPEND_METADATA: &str = "appendVolumeMetadata";
/// Metadata keys that Cinder sets. The driver's own keys are in `OWN_PREFIXES`.
const RESERVED: [&str; 2] = ["readonly", "attached_mode"];
const OWN_PREFIXES: [&str; 2] = ["cinder.csi.openstack.org/", metadata_keys::READ_ONLY_AT];
/// Cinder's limit for keys and values, in characters.
const METADATA_LIMIT: usize = 255;

/// Validated parameters of a VolumeAttributesClass.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MutableParameters {
    changes: Changes,
}

impl MutableParameters {
    /// Every permitted key, except those with a prefix.
    pub(super) const KEYS: [&str; 2] = [TYPE, MIGRATION_POLICY];

    /// Whether a request with this key is accepted, whatever the value.
    pub(super) fn is_known(key: &str) -> bool {
        Self::KEYS.contains(&key) || key.starts_with(KUBERNETES_PREFIX) || key.starts_with(METADATA_PREFIX)
    }

    /// Parses the parameters of a request. The error describes the first key that is unknown or has an invalid value.
    ///
    /// Unknown keys are refused, because an ignored key would count as absent, and absent keys mean no change.
    pub fn decode(parameters: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut changes = Changes::default();
        for (key, value) in parameters {
            match key.as_str() {
                TYPE if value.is_empty() => return Err(format!("{TYPE} is empty; name a volume type or leave it out")),
                TYPE => changes.volume_type = Some(value.clone()),
                MIGRATION_POLICY => {
                    let policies = [MigrationPolicy::Never, MigrationPolicy::OnDemand];
                    let policy = policies.into_iter().find(|policy| policy.as_str() == value);
                    changes.migration =
                        policy.ok_or_else(|| format!("{MIGRATION_POLICY} is {value:?}; use never or on-demand"))?;
                }
                // Keys of the sidecar, which describe the claim.
                key if key.starts_with(KUBERNETES_PREFIX) => {}
                key => {
                    let Some(name) = key.strip_prefix(METADATA_PREFIX) else {
                        return Err(format!(
                            "{key} is not known; use {TYPE}, {MIGRATION_POLICY} and {METADATA_PREFIX}KEY"
                        ));
                    };
                    check_metadata(name, value)?;
                    changes.metadata.insert(name.to_owned(), value.clone());
                }
            }
        }
        Ok(Self { changes })
    }

    /// Returns the requested changes of an existing volume.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Applies the changes to a new volume, over the parameters of its StorageClass.
    pub fn apply(&self, new: &mut NewVolume) {
        if let Some(volume_type) = &self.changes.volume_type {
            new.volume_type = Some(volume_type.clone());
        }
        new.mutable_metadata.clone_from(&self.changes.metadata);
    }
}

/// Parses the value of `appendVolumeMetadata`. The error names the parameter and the problem.
pub(super) fn appended_metadata(json: &str) -> Result<BTreeMap<String, String>, String> {
    let named = |reason: String| format!("{APPEND_METADATA}: {reason}");
    let pairs: BTreeMap<String, String> = serde_json::from_str(json).map_err(|error| {
        named(format!(
            r#"{error}; write a JSON object of strings, such as {{"key": "value"}}"#
        ))
    })?;
    for (key, value) in &pairs {
        check_metadata(key, value).map_err(named)?;
    }
    Ok(pairs)
}

pub(super) fn check_metadata(name: &str, value: &str) -> Result<(), String> {
    let key = format!("{METADATA_PREFIX}{name}");
    if name.is_empty() {
        return Err(format!("{key} names no key; write {METADATA_PREFIX}KEY"));
    }
    if RESERVED.contains(&name)
        || OWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || name.starts_with(KUBERNETES_PREFIX)
    {
        return Err(format!(
            "{key} cannot be set: this metadata is kept by the driver or by Cinder itself; choose another key"
        ));
    }
    for (what, text) in [("the key", name), ("the value", value)] {
        let length = text.chars().count();
        if length > METADATA_LIMIT {
            return Err(format!(
                "{what} of {METADATA_PREFIX}{name:.20}… has {length} characters, and {METADATA_LIMIT} are allowed"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|&(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    #[test]
    fn mutable_parameters_ignore_keys_of_sidecar() {
        let parameters = MutableParameters::decode(&map(&[
            ("type", "slow"),
            ("migration-policy", "on-demand"),
            ("metadata.tier", "gold"),
            ("csi.storage.k8s.io/pvc/name", "data"),
        ]));
        let expected = Changes {
            volume_type: Some("slow".into()),
            migration: MigrationPolicy::OnDemand,
            metadata: map(&[("tier", "gold")]),
        };
        assert_eq!(parameters.expect("good").changes(), &expected);
    }

    #[rstest]
    #[case("tpye", "slow", "tpye is not known")]
    #[case("type", "", "is empty")]
    #[case("migration-policy", "always", "use never or on-demand")]
    #[case("metadata.", "x", "names no key")]
    #[case("metadata.readonly", "x", "cannot be set")]
    #[case("metadata.cinder.csi.openstack.org/cluster", "other", "cannot be set")]
    #[case("metadata.csi.storage.k8s.io/pvc/name", "other", "cannot be set")]
    #[case("metadata.tier", &"x".repeat(256), "has 256 characters")]
    #[case(&format!("metadata.{}", "k".repeat(256)), "x", "has 256 characters")]
    fn invalid_mutable_parameter_is_reported_by_key(#[case] key: &str, #[case] value: &str, #[case] text: &str) {
        let error = MutableParameters::decode(&map(&[(key, value)])).expect_err("refused");
        assert!(error.contains(text), "{error}");
    }
}
