// SPDX-License-Identifier: Apache-2.0
//! Parameters of classes that the driver does not know, in classes of the operator and of other clients.

use std::{collections::BTreeMap, fmt};

pub use cinder_csi_driver::parameters::ClassKind;
use cinder_csi_driver::parameters::{CreateParameters, MutableParameters, SnapshotParameters};

use crate::text::nearest_candidate;

/// The parameters of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassParameters {
    pub kind: ClassKind,
    pub name: String,
    /// Keys of the parameters.
    pub keys: Vec<String>,
    /// Why the driver rejects the values, if it does.
    pub refusal: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownParameter {
    pub kind: ClassKind,
    /// Name of the class.
    pub class: String,
    pub key: String,
    /// The known key that the misspelt one most likely stands for.
    pub meant: Option<String>,
}

impl fmt::Display for UnknownParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {} {}", self.key, self.kind.as_str(), self.class)?;
        match &self.meant {
            Some(meant) => write!(f, " (did you mean {meant:?}?)"),
            None => Ok(()),
        }
    }
}

impl UnknownParameter {
    /// Effect of the parameter on a request.
    pub fn consequence(&self) -> &'static str {
        if self.kind.refuses_unknown() {
            "is not known to the driver, which refuses the class (INVALID_ARGUMENT)"
        } else {
            "is not known to the driver and has no effect"
        }
    }
}

/// The remedy for an unknown parameter.
pub const REMEDY: &str = "Correct the key: in the CinderCSIDriver where the operator makes the class, else in the class. Parameters of a \
                          StorageClass and of a VolumeAttributesClass cannot be changed: delete the class and create it again; volumes stay";

/// Returns the parameters that the driver does not know, in the order of the classes.
pub fn unknown_parameters(classes: &[ClassParameters]) -> Vec<UnknownParameter> {
    let of_class = |class: &ClassParameters| {
        let keys = class.kind.unknown(class.keys.iter().map(String::as_str)).into_iter();
        let unknown = keys.map(|key| UnknownParameter {
            kind: class.kind,
            class: class.name.clone(),
            meant: meant(class.kind, &key),
            key,
        });
        unknown.collect::<Vec<_>>()
    };
    classes.iter().flat_map(of_class).collect()
}

/// Returns why the driver rejects the values of a class. Unknown keys are not among the reasons.
pub fn refusal(kind: ClassKind, mut parameters: BTreeMap<String, String>) -> Option<String> {
    for key in kind.unknown(parameters.keys().map(String::as_str)) {
        parameters.remove(&key);
    }
    match kind {
        ClassKind::StorageClass => CreateParameters::decode(parameters)
            .err()
            .map(|error| error.to_string()),
        ClassKind::VolumeSnapshotClass => SnapshotParameters::decode(parameters).err(),
        ClassKind::VolumeAttributesClass => MutableParameters::decode(&parameters).err(),
        ClassKind::VolumeGroupSnapshotClass => None,
    }
}

fn meant(kind: ClassKind, key: &str) -> Option<String> {
    let whole = nearest_candidate(key, kind.keys().iter().copied()).map(str::to_owned);
    whole.or_else(|| {
        let prefix = kind.prefix()?;
        let (beginning, rest) = key.split_once('.').unwrap_or((key, "KEY"));
        nearest_candidate(beginning, [prefix.trim_end_matches('.')]).map(|_| format!("{prefix}{rest}"))
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::swapped(ClassKind::StorageClass, "tpye", Some("type"))]
    #[case::of_the_sidecar(
        ClassKind::StorageClass,
        "csi.storage.k8.io/fstype",
        Some("csi.storage.k8s.io/fstype")
    )]
    #[case::prefix(ClassKind::StorageClass, "metdata.owner", Some("metadata.owner"))]
    #[case::prefix_alone(ClassKind::VolumeAttributesClass, "metadata", Some("metadata.KEY"))]
    #[case::of_another_kind(ClassKind::VolumeGroupSnapshotClass, "type", None)]
    #[case::another_word(ClassKind::VolumeSnapshotClass, "iops", None)]
    #[case::underscore(ClassKind::VolumeGroupSnapshotClass, "group_type", Some("group-type"))]
    fn unknown_parameter_is_reported_with_suggestion(
        #[case] kind: ClassKind,
        #[case] key: &str,
        #[case] expected: Option<&str>,
    ) {
        let class = ClassParameters {
            kind,
            name: "fast".to_owned(),
            keys: vec![key.to_owned()],
            refusal: None,
        };
        let unknown = unknown_parameters(&[class]);
        let reported: Vec<_> = unknown
            .iter()
            .map(|one| (one.key.as_str(), one.meant.as_deref()))
            .collect();
        assert_eq!(reported, [(key, expected)]);
    }

    #[rstest]
    #[case::volume_type_of_a_snapshot_class(ClassKind::VolumeSnapshotClass, "type", "Premium-SSD", true)]
    #[case::backup(ClassKind::VolumeSnapshotClass, "type", "backup", false)]
    #[case::boolean_of_yaml(ClassKind::VolumeSnapshotClass, "force-create", "yes", true)]
    #[case::unknown_key(ClassKind::VolumeSnapshotClass, "tpye", "x", false)]
    #[case::unknown_key_of_attributes(ClassKind::VolumeAttributesClass, "tpye", "x", false)]
    #[case::mode_change(ClassKind::StorageClass, "allowVolumeModeChange", "maybe", true)]
    #[case::any_volume_type(ClassKind::StorageClass, "type", "Premium-SSD", false)]
    fn refusal_names_rejected_values(
        #[case] kind: ClassKind,
        #[case] key: &str,
        #[case] value: &str,
        #[case] is_refused: bool,
    ) {
        let parameters = BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let refusal = refusal(kind, parameters);
        assert_eq!(refusal.is_some(), is_refused, "{refusal:?}");
        assert!(refusal.is_none_or(|why| why.contains(key)));
    }

    #[test]
    fn class_with_known_parameters_is_not_reported() {
        let class = ClassParameters {
            kind: ClassKind::StorageClass,
            name: "fast".to_owned(),
            keys: [
                "type",
                "metadata.owner",
                "fsType",
                "csi.storage.k8s.io/provisioner-secret-name",
            ]
            .map(str::to_owned)
            .to_vec(),
            refusal: None,
        };
        assert_eq!(unknown_parameters(&[class]), []);
    }
}
