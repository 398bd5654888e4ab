// SPDX-License-Identifier: Apache-2.0
//! Condition ClassesValid.

use super::{Verdict, shortened, verdict};
use crate::{
    class_parameters::{REMEDY, UnknownParameter},
    reasons::ClassesValid,
    text::join_truncated,
};

/// Whether the driver knows the parameters of its classes, where they were looked at.
pub(super) fn classes_valid(unknown: Option<&[UnknownParameter]>) -> Verdict<ClassesValid> {
    let (ignored, refused): (Vec<_>, Vec<_>) = match unknown {
        None => {
            return verdict(
                ClassesValid::AsExpected,
                "the classes are not looked at while the driver is removed",
            );
        }
        Some([]) => {
            return verdict(
                ClassesValid::AsExpected,
                "the driver knows every parameter of its classes",
            );
        }
        Some(unknown) => unknown.iter().partition(|one| !one.kind.refuses_unknown()),
    };
    let told = [(ignored, "no effect"), (refused, "requests refused (INVALID_ARGUMENT)")]
        .into_iter()
        .filter(|(parameters, _)| !parameters.is_empty())
        .map(|(parameters, consequence)| {
            let parameters: Vec<String> = parameters.iter().map(ToString::to_string).collect();
            format!("{consequence}: {}", join_truncated(&parameters))
        });
    let told: Vec<String> = told.collect();
    let message = format!(
        "the driver does not know parameters of its classes; {}. {REMEDY}",
        told.join("; ")
    );
    verdict(ClassesValid::UnknownParameter, shortened(message))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::class_parameters::{ClassKind, ClassParameters, unknown_parameters};
    use crate::reasons::Reason as _;

    fn mk_class(kind: ClassKind, keys: &[&str]) -> ClassParameters {
        ClassParameters {
            kind,
            name: "fast".to_owned(),
            uid: "u".to_owned(),
            keys: keys.iter().map(|&key| key.to_owned()).collect(),
        }
    }

    #[rstest]
    #[case::known(&[(ClassKind::StorageClass, &["type"][..])], &["knows every parameter"])]
    #[case::ignored(
        &[(ClassKind::StorageClass, &["tpye"][..])],
        &[r#"no effect: "tpye" of StorageClass fast (did you mean "type"?)"#, "create it again"]
    )]
    #[case::refused(
        &[(ClassKind::StorageClass, &["type", "iops"][..]), (ClassKind::VolumeAttributesClass, &["iops"][..])],
        &[r#"no effect: "iops" of StorageClass fast;"#, r#"refused (INVALID_ARGUMENT): "iops" of VolumeAttributesClass fast."#]
    )]
    fn the_condition_names_each_parameter_with_its_class_and_what_was_meant(
        #[case] classes: &[(ClassKind, &[&str])],
        #[case] expected: &[&str],
    ) {
        let classes: Vec<ClassParameters> = classes.iter().map(|(kind, keys)| mk_class(*kind, keys)).collect();
        let unknown = unknown_parameters(&classes);
        let (reason, message) = classes_valid(Some(&unknown));
        for part in expected {
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(reason.as_str() == "AsExpected", unknown.is_empty());
    }
}
