//! What a VolumeGroupSnapshotClass may ask for.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::value::{Error as DecodeError, MapDeserializer};

use super::{KUBERNETES_PREFIX, non_empty};

/// The parameters of a VolumeGroupSnapshotClass.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct GroupParameters {
    /// Name or id of the Cinder group type, which must have `consistent_group_snapshot_enabled`. Cinder shows that to
    /// administrators only: for others the class vouches for it.
    #[serde(rename = "group-type", default, deserialize_with = "non_empty")]
    pub group_type: Option<String>,
    #[serde(flatten)]
    rest: BTreeMap<String, String>,
}

impl GroupParameters {
    /// Reads the map of a request.
    pub fn decode(parameters: BTreeMap<String, String>) -> Result<Self, DecodeError> {
        Self::deserialize(MapDeserializer::new(parameters.into_iter()))
    }

    /// The keys that nobody knows. They are ignored and named in the log, as those of other classes.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        let keys = self.rest.keys().map(String::as_str);
        keys.filter(|key| !key.starts_with(KUBERNETES_PREFIX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_type_is_read_and_unknown_keys_are_named() {
        let pairs = [
            ("group-type", "consistent"),
            ("csi.storage.k8s.io/volumegroupsnapshot/name", "x"),
            ("group_type", "typo"),
        ];
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let parameters = GroupParameters::decode(pairs.into()).expect("strings only");
        assert_eq!(parameters.group_type.as_deref(), Some("consistent"));
        assert_eq!(parameters.unknown().collect::<Vec<_>>(), ["group_type"]);
    }
}
