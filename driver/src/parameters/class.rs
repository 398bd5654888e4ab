// SPDX-License-Identifier: Apache-2.0
//! The permitted parameters of each kind of class, so that classes can be checked before a request uses them.

use std::collections::BTreeMap;

use super::mutable::METADATA_PREFIX;
use super::{
    ALLOW_MODE_CHANGE, CreateParameters, FS_TYPE, GO_MKFS_OPTIONS, GroupParameters, MKFS_OPTIONS, MutableParameters,
    SnapshotParameters,
};

/// A kind of object with parameters for this driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClassKind {
    /// Parameters of new volumes.
    StorageClass,
    /// Parameters of new snapshots.
    VolumeSnapshotClass,
    /// Parameters of new group snapshots.
    VolumeGroupSnapshotClass,
    /// Parameters of changes to existing volumes.
    VolumeAttributesClass,
}

impl ClassKind {
    pub const ALL: [Self; 4] = [
        Self::StorageClass,
        Self::VolumeSnapshotClass,
        Self::VolumeGroupSnapshotClass,
        Self::VolumeAttributesClass,
    ];

    /// Returns the name of the kind in Kubernetes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::StorageClass => "StorageClass",
            Self::VolumeSnapshotClass => "VolumeSnapshotClass",
            Self::VolumeGroupSnapshotClass => "VolumeGroupSnapshotClass",
            Self::VolumeAttributesClass => "VolumeAttributesClass",
        }
    }

    /// Returns the permitted keys, except those that begin with [`ClassKind::prefix`].
    pub fn keys(self) -> &'static [&'static str] {
        match self {
            Self::StorageClass => &[
                "type",
                "availability",
                MKFS_OPTIONS,
                GO_MKFS_OPTIONS,
                ALLOW_MODE_CHANGE,
                "appendVolumeMetadata",
                FS_TYPE,
            ],
            Self::VolumeSnapshotClass => &SnapshotParameters::KEYS,
            Self::VolumeGroupSnapshotClass => &GroupParameters::KEYS,
            Self::VolumeAttributesClass => &MutableParameters::KEYS,
        }
    }

    /// Returns the prefix of keys that are permitted in any number.
    pub fn prefix(self) -> Option<&'static str> {
        let has_metadata = matches!(self, Self::StorageClass | Self::VolumeAttributesClass);
        has_metadata.then_some(METADATA_PREFIX)
    }

    /// Returns the keys that this driver does not know, by the same rules as for a request.
    pub fn unknown<'a>(self, keys: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        // An empty value of a known key is always valid.
        let parameters: BTreeMap<String, String> =
            keys.into_iter().map(|key| (key.to_owned(), String::new())).collect();
        match self {
            Self::StorageClass => CreateParameters::decode(parameters)
                .map(|read| read.unknown().into_iter().map(str::to_owned).collect())
                .unwrap_or_default(),
            Self::VolumeSnapshotClass => SnapshotParameters::decode(parameters)
                .map(|read| read.unknown().to_vec())
                .unwrap_or_default(),
            Self::VolumeGroupSnapshotClass => GroupParameters::decode(parameters).unknown().to_vec(),
            Self::VolumeAttributesClass => {
                let unknown = parameters.into_keys().filter(|key| !MutableParameters::is_known(key));
                unknown.collect()
            }
        }
    }

    /// Whether a request with an unknown key is refused. Otherwise the key has no effect.
    pub fn refuses_unknown(self) -> bool {
        self == Self::VolumeAttributesClass
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const MISSPELT: &str = "tpye";

    #[test]
    fn permitted_keys_are_known_and_misspelled_keys_unknown() {
        for kind in ClassKind::ALL {
            let prefixed = kind.prefix().map(|prefix| format!("{prefix}owner"));
            let known = kind.keys().iter().copied().chain(prefixed.as_deref());
            let keys = known.chain(["csi.storage.k8s.io/x", MISSPELT]);
            assert_eq!(kind.unknown(keys), [MISSPELT], "{}", kind.as_str());
        }
    }

    #[test]
    fn every_storage_class_field_has_permitted_key() {
        let keys = ClassKind::StorageClass.keys().iter();
        let parameters = keys.map(|&key| (key.to_owned(), "true".to_owned())).collect();
        // Without `..`, so that a new field must be added here, and its key above.
        let CreateParameters {
            volume_type,
            availability,
            mkfs_options,
            go_mkfs_options,
            allow_mode_change,
            append_volume_metadata,
            rest,
        } = CreateParameters::decode(parameters).expect("strings only");
        let fields = [
            volume_type,
            availability,
            mkfs_options,
            go_mkfs_options,
            append_volume_metadata,
        ];
        assert!(allow_mode_change && fields.iter().all(Option::is_some), "{fields:?}");
        assert_eq!(rest.into_keys().collect::<Vec<_>>(), [FS_TYPE]);
    }

    #[rstest]
    #[case("type")]
    #[case("migration-policy")]
    #[case("metadata.owner")]
    #[case("csi.storage.k8s.io/pvc/name")]
    #[case("availability")]
    #[case(MISSPELT)]
    fn unknown_attribute_keys_are_refused_in_requests(#[case] key: &str) {
        let parameters = BTreeMap::from([(key.to_owned(), "never".to_owned())]);
        let refused = MutableParameters::decode(&parameters).is_err_and(|error| error.contains("is not known"));
        assert_eq!(!ClassKind::VolumeAttributesClass.unknown([key]).is_empty(), refused);
    }
}
