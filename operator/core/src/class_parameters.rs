// SPDX-License-Identifier: Apache-2.0
//! Parameters of classes that the driver does not know, whoever made the class.

use std::fmt;

pub use cinder_csi_driver::parameters::ClassKind;

use crate::text::nearest;

/// A class of the driver, as far as its parameters go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassParameters {
    /// Its kind.
    pub kind: ClassKind,
    /// Its name.
    pub name: String,
    /// The keys of its parameters.
    pub keys: Vec<String>,
}

/// A parameter that the driver does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownParameter {
    /// The kind of the class.
    pub kind: ClassKind,
    /// The name of the class.
    pub class: String,
    /// The key.
    pub key: String,
    /// The key that was most likely meant.
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
    /// What becomes of a request with it.
    pub fn consequence(&self) -> &'static str {
        if self.kind.refuses_unknown() {
            "is not known to the driver, which refuses the class (INVALID_ARGUMENT)"
        } else {
            "is not known to the driver and has no effect"
        }
    }
}

/// What to do about one.
pub const REMEDY: &str = "Correct the key: in the CinderCSIDriver where the operator makes the class, else in the class. Parameters of a \
                          StorageClass and of a VolumeAttributesClass cannot be changed: delete the class and create it again; volumes stay";

/// The parameters that the driver does not know, by the order of the classes.
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

fn meant(kind: ClassKind, key: &str) -> Option<String> {
    let whole = nearest(key, kind.keys().iter().copied()).map(str::to_owned);
    whole.or_else(|| {
        let prefix = kind.prefix()?;
        let (beginning, rest) = key.split_once('.').unwrap_or((key, "KEY"));
        nearest(beginning, [prefix.trim_end_matches('.')]).map(|_| format!("{prefix}{rest}"))
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
    fn an_unknown_parameter_is_told_with_what_was_most_likely_meant(
        #[case] kind: ClassKind,
        #[case] key: &str,
        #[case] expected: Option<&str>,
    ) {
        let class = ClassParameters {
            kind,
            name: "fast".to_owned(),
            keys: vec![key.to_owned()],
        };
        let unknown = unknown_parameters(&[class]);
        let told: Vec<_> = unknown
            .iter()
            .map(|one| (one.key.as_str(), one.meant.as_deref()))
            .collect();
        assert_eq!(told, [(key, expected)]);
    }

    #[test]
    fn a_class_without_unknown_parameters_is_not_told() {
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
        };
        assert_eq!(unknown_parameters(&[class]), []);
    }
}
