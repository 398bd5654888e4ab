// SPDX-License-Identifier: Apache-2.0
//! Keys of objects, names of kinds with special treatment, and the owner of an object.

use std::fmt;

use cinder_csi_crds::{INSTANCE_LABEL, OWNER_UID_ANNOTATION};
use kube::api::ObjectMeta;
use serde_json::Value;

use super::managed_fields::is_applied;

/// Names of kinds with special treatment.
pub mod kind {
    pub const CSI_DRIVER: &str = "CSIDriver";
    /// Kind of the controller.
    pub const DEPLOYMENT: &str = "Deployment";
    /// Kind of the node plugin.
    pub const DAEMON_SET: &str = "DaemonSet";
    /// Class of claims for changeable attributes.
    pub const ATTRIBUTES_CLASS: &str = "VolumeAttributesClass";
    /// Class of group snapshots.
    pub const GROUP_SNAPSHOT_CLASS: &str = "VolumeGroupSnapshotClass";
    /// Class of claims.
    pub const STORAGE_CLASS: &str = "StorageClass";
    /// Kind of the dashboards and of the record of the last applied content.
    pub const CONFIG_MAP: &str = "ConfigMap";
    /// Class of snapshots.
    pub const SNAPSHOT_CLASS: &str = "VolumeSnapshotClass";
    /// Kind of the credentials.
    pub const SECRET: &str = "Secret";
    /// Permissions in the namespace.
    pub const ROLE_BINDING: &str = "RoleBinding";
    /// Permissions in the cluster.
    pub const CLUSTER_ROLE_BINDING: &str = "ClusterRoleBinding";
}

/// Identifies one object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub kind: &'static str,
    /// Namespace. `None` for cluster-scoped kinds.
    pub namespace: Option<String>,
    pub name: String,
}

impl Key {
    /// Creates the key of an object of this kind.
    pub fn new(kind: &'static str, namespace: Option<&str>, name: &str) -> Self {
        Self {
            kind,
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// The `CinderCSIDriver` that owns objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Name of the object and of the CSI driver.
    pub name: String,
    pub uid: String,
}

impl Owner {
    /// Whether this owner owns the object: it has the instance label, the uid annotation or an owner reference.
    ///
    /// The label suffices because it contains the name of the driver. A `CinderCSIDriver` adopts the objects of an
    /// earlier one of the same name.
    pub fn owns(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        let reference = |reference: &Value| reference["uid"].as_str() == Some(&self.uid);
        metadata["labels"][INSTANCE_LABEL].as_str() == Some(&self.name)
            || metadata["annotations"][OWNER_UID_ANNOTATION].as_str() == Some(&self.uid)
            || metadata["ownerReferences"]
                .as_array()
                .is_some_and(|all| all.iter().any(reference))
    }
}

/// Description of the creator of an object with released ownership, for messages.
pub const RELEASED: &str = "this operator, and its label csi.openstack.org/instance is gone (as under spec.deletion.policy Orphan; \
                          spec.adoption.mode Adopt adopts the object again)";

/// Describes the apparent creator of an object, for messages.
pub fn maker_of(object: &Value) -> String {
    let metadata = &object["metadata"];
    if let Some(instance) = metadata["labels"][INSTANCE_LABEL].as_str() {
        return format!("the CinderCSIDriver {instance}");
    }
    if let Some(release) = metadata["annotations"]["meta.helm.sh/release-name"].as_str() {
        return format!("the Helm release {release}");
    }
    if is_applied(object) {
        return RELEASED.to_owned();
    }
    let managers = metadata["managedFields"].as_array();
    match managers.and_then(|all| all.iter().find_map(|entry| entry["manager"].as_str())) {
        Some(manager) => format!("field manager {manager}"),
        None => "an unknown client".to_owned(),
    }
}

/// Returns the key of an object in the index.
pub fn key_of(meta: &ObjectMeta) -> String {
    let name = meta.name.as_deref().unwrap_or_default();
    match &meta.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::{super::managed_fields::FIELD_MANAGER, *};

    #[rstest]
    #[case::by_label(json!({"labels": {(INSTANCE_LABEL): "d"}}), true)]
    #[case::by_annotation(json!({"annotations": {(OWNER_UID_ANNOTATION): "u"}}), true)]
    #[case::by_reference(json!({"ownerReferences": [{"uid": "x"}, {"uid": "u"}]}), true)]
    #[case::of_another_instance(json!({"labels": {(INSTANCE_LABEL): "other"}}), false)]
    #[case::of_nobody(json!({"name": "d"}), false)]
    fn label_annotation_or_reference_proves_ownership(#[case] metadata: Value, #[case] expected: bool) {
        let owner = Owner {
            name: "d".to_owned(),
            uid: "u".to_owned(),
        };
        assert_eq!(owner.owns(&json!({"metadata": metadata})), expected);
    }

    #[rstest]
    #[case::another_object(json!({"labels": {(INSTANCE_LABEL): "other"}}), "the CinderCSIDriver other")]
    #[case::helm(json!({"annotations": {"meta.helm.sh/release-name": "csi"}}), "the Helm release csi")]
    #[case::somebody(json!({"managedFields": [{"manager": "kubectl-create", "operation": "Update"}]}), "field manager kubectl-create")]
    #[case::an_orphan(json!({"managedFields": [{"manager": FIELD_MANAGER, "operation": "Apply"}]}), RELEASED)]
    #[case::nobody_knows(json!({}), "an unknown client")]
    fn creator_is_described_from_labels(#[case] metadata: Value, #[case] expected: &str) {
        let maker = maker_of(&json!({"metadata": metadata}));
        assert!(maker.starts_with(expected), "{maker}");
    }
}
