// SPDX-License-Identifier: Apache-2.0
//! What exists of StorageClasses: which are marked as the default, and by whom, and what those of volume types remember.

use std::collections::{BTreeMap, HashMap};

use cinder_csi_crds::INSTANCE_LABEL;
use k8s_openapi::{api::storage::v1::StorageClass, jiff::Timestamp};
use kube::{Resource, api::ObjectMeta};
use serde::Deserialize;
use serde_json::Value;

use super::{
    Affected, DEFAULT_CLASS_ANNOTATION, FIELD_MANAGER, Index, Indexed, Key, MISSING_SINCE_ANNOTATION, Owned, Owner,
    VOLUME_TYPE_ANNOTATION, kind, owns_annotation,
};

/// The name that the mark of the default class had once; Kubernetes still heeds it.
const OLD_DEFAULT_CLASS_ANNOTATION: &str = "storageclass.beta.kubernetes.io/is-default-class";

/// A class that is marked as the default.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Marked {
    /// When it was made, as Kubernetes writes times.
    pub made: String,
    /// Its name.
    pub name: String,
    /// The driver whose operator put the mark there; `None` when another client did.
    pub by: Option<String>,
}

/// What a class that was made from a volume type remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfType {
    /// Name of the type.
    pub volume_type: String,
    /// Since when the cloud does not have the type any more.
    pub missing_since: Option<Timestamp>,
}

/// A StorageClass, as far as it matters: every one of the cluster.
#[derive(Debug, Clone, Deserialize, Resource)]
#[resource(inherit = StorageClass)]
pub struct ClassObject {
    metadata: ObjectMeta,
    #[serde(default)]
    provisioner: String,
    parameters: Option<BTreeMap<String, String>>,
}

/// What the index keeps of a StorageClass.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassFact {
    uid: Option<String>,
    driver: String,
    /// The keys of its parameters.
    keys: Vec<String>,
    pub(super) marked: Option<Marked>,
}

impl ClassFact {
    /// Its uid.
    pub fn uid(&self) -> &str {
        self.uid.as_deref().unwrap_or_default()
    }

    /// The keys of its parameters.
    pub fn keys(&self) -> &[String] {
        &self.keys
    }
}

impl Owned for ClassFact {
    fn driver(&self) -> &str {
        &self.driver
    }
}

impl ClassObject {
    /// Who marked the class as the default, where it is.
    fn marked(&self) -> Option<Marked> {
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
        Some(Marked {
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
            uid: self.metadata.uid.clone(),
            driver: self.provisioner.clone(),
            keys: self.parameters.iter().flatten().map(|(key, _)| key.clone()).collect(),
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
        index.classes()
    }
}

/// What this instance's StorageClasses of volume types remember.
pub fn of_types(owner: &Owner, live: &BTreeMap<Key, Value>) -> BTreeMap<String, OfType> {
    let classes = live
        .iter()
        .filter(|(key, object)| key.kind == kind::STORAGE_CLASS && owner.owns(object));
    let of_type = |(key, object): (&Key, &Value)| {
        let annotations = &object["metadata"]["annotations"];
        let volume_type = annotations[VOLUME_TYPE_ANNOTATION].as_str()?.to_owned();
        let missing_since = annotations[MISSING_SINCE_ANNOTATION].as_str();
        let of_type = OfType {
            volume_type,
            missing_since: missing_since.and_then(|since| since.parse().ok()),
        };
        Some((key.name.clone(), of_type))
    };
    classes.filter_map(of_type).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

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
    fn the_mark_of_the_default_class_is_seen_with_who_put_it_there(
        #[case] annotations: Value,
        #[case] manager: &str,
        #[case] expected: Option<&str>,
    ) {
        let kept = mk_class(&annotations, manager).marked();
        let by = |marked: &Marked| marked.by.clone().unwrap_or("somebody".to_owned());
        assert_eq!(kept.as_ref().map(by).as_deref(), expected);
        assert!(kept.is_none_or(|marked| marked.made == "2026-01-01T00:00:00Z"));
    }

    #[test]
    fn a_class_of_a_volume_type_remembers_it() {
        let class = json!({"metadata": {
            "labels": {(INSTANCE_LABEL): "driver"},
            "annotations": {(VOLUME_TYPE_ANNOTATION): "ssd", (MISSING_SINCE_ANNOTATION): "2026-01-01T00:00:00Z"},
        }});
        let owner = Owner {
            name: "driver".into(),
            uid: "u".into(),
        };
        let live = BTreeMap::from([(Key::new(kind::STORAGE_CLASS, None, "cinder-ssd"), class)]);
        let found = of_types(&owner, &live);
        assert_eq!(found["cinder-ssd"].volume_type, "ssd");
        assert!(found["cinder-ssd"].missing_since.is_some());
    }
}
