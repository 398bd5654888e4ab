// SPDX-License-Identifier: Apache-2.0
//! StorageClasses that are marked as the default, and the clients that marked them.

use std::collections::HashMap;

use cinder_csi_crds::INSTANCE_LABEL;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Resource, api::ObjectMeta};
use serde::Deserialize;

use super::facts::{ClassFact, DefaultClassMark};
use super::index::{Affected, Index, Indexed};
use super::labels::DEFAULT_CLASS_ANNOTATION;
use super::managed_fields::{FIELD_MANAGER, owns_annotation};

/// The former name of the default-class annotation, which Kubernetes still supports.
const OLD_DEFAULT_CLASS_ANNOTATION: &str = "storageclass.beta.kubernetes.io/is-default-class";

/// The relevant part of a StorageClass, of any driver.
#[derive(Debug, Clone, Deserialize, Resource)]
#[resource(inherit = StorageClass)]
pub struct ClassObject {
    metadata: ObjectMeta,
    #[serde(default)]
    provisioner: String,
}

impl ClassObject {
    /// Returns the default mark of the class with its writer, if the class is marked.
    fn marked(&self) -> Option<DefaultClassMark> {
        let metadata = &self.metadata;
        let annotations = metadata.annotations.as_ref()?;
        let says_yes = |name: &str| annotations.get(name).is_some_and(|value| value == "true");
        if !says_yes(DEFAULT_CLASS_ANNOTATION) && !says_yes(OLD_DEFAULT_CLASS_ANNOTATION) {
            return None;
        }
        let is_operators = metadata
            .managed_fields
            .iter()
            .flatten()
            .filter(|entry| {
                entry.manager.as_deref() == Some(FIELD_MANAGER) && entry.operation.as_deref() == Some("Apply")
            })
            .filter_map(|entry| entry.fields_v1.as_ref())
            .any(|fields| owns_annotation(&fields.0, DEFAULT_CLASS_ANNOTATION));
        let instance = || metadata.labels.as_ref()?.get(INSTANCE_LABEL).cloned();
        Some(DefaultClassMark {
            made: metadata
                .creation_timestamp
                .as_ref()
                .map(|time| time.0.to_string())
                .unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            by: if is_operators { instance() } else { None },
        })
    }
}

impl Indexed for ClassObject {
    type Kept = ClassFact;

    fn keep(&self) -> Option<ClassFact> {
        Some(ClassFact {
            driver: self.provisioner.clone(),
            marked: self.marked(),
        })
    }

    fn affected(kept: &ClassFact) -> Affected {
        match kept.marked {
            Some(_) => Affected::All,
            None => Affected::Drivers([kept.driver.clone()].into()),
        }
    }

    fn table(index: &mut Index) -> &mut HashMap<String, ClassFact> {
        &mut index.classes
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn mk_class(annotations: &Value, manager: &str) -> ClassObject {
        let fields = json!({"f:metadata": {"f:annotations": {(format!("f:{DEFAULT_CLASS_ANNOTATION}")): {}}}});
        serde_json::from_value(json!({"metadata": {
            "name": "cinder",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {(INSTANCE_LABEL): "driver"},
            "annotations": annotations,
            "managedFields": [{"manager": manager, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": fields}],
        }}))
        .expect("a class")
    }

    #[rstest]
    #[case::ours(json!({(DEFAULT_CLASS_ANNOTATION): "true"}), FIELD_MANAGER, Some("driver"))]
    #[case::marked_by_somebody(json!({(DEFAULT_CLASS_ANNOTATION): "true"}), "kubectl", Some("somebody"))]
    #[case::the_old_way(json!({(OLD_DEFAULT_CLASS_ANNOTATION): "true"}), "kubectl", Some("somebody"))]
    #[case::not_the_default(json!({(DEFAULT_CLASS_ANNOTATION): "false"}), FIELD_MANAGER, None)]
    fn default_class_is_attributed_to_its_writer(
        #[case] annotations: Value,
        #[case] manager: &str,
        #[case] expected: Option<&str>,
    ) {
        let kept = mk_class(&annotations, manager).marked();
        let by = |marked: &DefaultClassMark| marked.by.clone().unwrap_or("somebody".to_owned());
        assert_eq!(kept.as_ref().map(by).as_deref(), expected);
        assert!(kept.is_none_or(|marked| marked.made == "2026-01-01T00:00:00Z"));
    }
}
