//! The kinds of objects that the operator makes, and names for single ones.

use std::fmt;

use cinder_csi_crds::{INSTANCE_LABEL, OWNER_UID_ANNOTATION};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::operands::Operand;

/// Owner of every field that the operator writes.
pub const FIELD_MANAGER: &str = "cinder-csi-operator";

/// Names of kinds that are treated in a way of their own.
pub mod kind {
    /// What the cluster knows of the driver.
    pub const CSI_DRIVER: &str = "CSIDriver";
    /// The controller.
    pub const DEPLOYMENT: &str = "Deployment";
    /// The nodes.
    pub const DAEMON_SET: &str = "DaemonSet";
    /// What claims name to change their volumes.
    pub const ATTRIBUTES_CLASS: &str = "VolumeAttributesClass";
    /// What snapshots of several volumes name.
    pub const GROUP_SNAPSHOT_CLASS: &str = "VolumeGroupSnapshotClass";
    /// What claims name.
    pub const STORAGE_CLASS: &str = "StorageClass";
    /// Credentials.
    pub const SECRET: &str = "Secret";
    /// Permissions in the namespace.
    pub const ROLE_BINDING: &str = "RoleBinding";
    /// Permissions in the cluster.
    pub const CLUSTER_ROLE_BINDING: &str = "ClusterRoleBinding";
}

/// Names one object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Its kind.
    pub kind: &'static str,
    /// Its namespace, where the kind has one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl Key {
    /// The name of an object of this kind.
    pub fn new(kind: &'static str, namespace: Option<&str>, name: &str) -> Self {
        Self {
            kind,
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }
    }
}

impl From<&Operand> for Key {
    fn from(operand: &Operand) -> Self {
        Self::new(operand.kind.kind, operand.namespace(), operand.name())
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

/// The `CinderCSIDriver` that objects belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its name, which is the CSI driver's name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl Owner {
    /// Whether the object is this owner's: it carries the instance label, the uid annotation or an owner reference.
    ///
    /// The label is enough because it names the driver: an object of an earlier `CinderCSIDriver` of the same name is taken
    /// over by its successor.
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

/// Whether the operator itself applied the object. Labels and annotations come along when somebody copies an object to make
/// one of his own; that an apply wrote it, the API server says.
pub fn is_applied(object: &Value) -> bool {
    applies(object).next().is_some()
}

/// Whether somebody's program made the object of one that the operator had applied, with all of its metadata: the API server
/// takes the record of that apply along. Of what it tells, that which the maker wrote is the maker's now, and the operator's mark
/// is among that. And the apply is older than the object. Not much older is an apply that made the object: admission webhooks come
/// between the two times, for 30 s at most.
pub fn is_copy(object: &Value) -> bool {
    let made = time(&object["metadata"]["creationTimestamp"]);
    let is_older = |entry: &Value| {
        let times = made.zip(time(&entry["time"]));
        times.is_some_and(|(made, applied)| made.duration_since(applied) > BETWEEN_TIMES)
    };
    is_applied(object) && (applies(object).all(is_older) || is_marked_by_another(object))
}

/// Whether the instance label is there and no apply of the operator's put it there.
fn is_marked_by_another(object: &Value) -> bool {
    let label = format!("f:{INSTANCE_LABEL}");
    let told = |entry: &Value| entry["fieldsV1"].is_object();
    let marks = |entry: &Value| entry["fieldsV1"]["f:metadata"]["f:labels"][&label].is_object();
    object["metadata"]["labels"][INSTANCE_LABEL].is_string()
        && applies(object).all(|entry| told(entry) && !marks(entry))
}

/// The longest time from the record of an apply to the creation that it leads to.
const BETWEEN_TIMES: SignedDuration = SignedDuration::from_mins(1);

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// What the API server notes of the operator's applies.
fn applies(object: &Value) -> impl Iterator<Item = &Value> {
    let managers = object["metadata"]["managedFields"].as_array();
    managers
        .into_iter()
        .flatten()
        .filter(|entry| entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply")
}

/// Who made an object that an operator has let go of, in words for a message.
pub const LET_GO: &str = "this operator, whose mark csi.openstack.org/instance is gone (as under spec.deletion.policy Orphan; \
                          spec.adoption.mode Adopt takes up what was let go of)";

/// Who seems to have made an object, in words for a message.
pub fn maker_of(object: &Value) -> String {
    let metadata = &object["metadata"];
    if let Some(instance) = metadata["labels"][INSTANCE_LABEL].as_str() {
        return format!("the CinderCSIDriver {instance}");
    }
    if let Some(release) = metadata["annotations"]["meta.helm.sh/release-name"].as_str() {
        return format!("the Helm release {release}");
    }
    if is_applied(object) {
        return LET_GO.to_owned();
    }
    let managers = metadata["managedFields"].as_array();
    match managers.and_then(|all| all.iter().find_map(|entry| entry["manager"].as_str())) {
        Some(manager) => format!("field manager {manager}"),
        None => "somebody else".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::made_by_the_apply("2026-01-01T00:00:00Z", false)]
    #[case::applied_again("2026-01-01T00:05:00Z", false)]
    #[case::made_after_a_slow_webhook("2025-12-31T23:59:30Z", false)]
    #[case::of_another_object("2025-12-31T23:58:00Z", true)]
    fn a_copy_is_younger_than_the_apply_that_it_tells_of(#[case] time: &str, #[case] expected: bool) {
        let object = json!({"metadata": {
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [
                {"manager": "e2e.test", "operation": "Update", "time": "2026-01-01T00:00:00Z"},
                {"manager": FIELD_MANAGER, "operation": "Apply", "time": time},
            ],
        }});
        assert_eq!(is_copy(&object), expected);
    }

    #[rstest]
    #[case::the_mark(json!({"f:metadata": {"f:labels": {"f:csi.openstack.org/instance": {}}}}), false)]
    #[case::what_the_maker_left_out(json!({"f:metadata": {"f:annotations": {"f:storageclass.kubernetes.io/is-default-class": {}}}}), true)]
    fn a_copy_made_at_once_has_its_mark_from_its_maker(#[case] fields: Value, #[case] expected: bool) {
        let mut object = json!({"metadata": {
            "creationTimestamp": "2026-01-01T00:00:50Z",
            "labels": {(INSTANCE_LABEL): "d"},
            "managedFields": [
                {"manager": FIELD_MANAGER, "operation": "Apply", "time": "2026-01-01T00:00:00Z", "fieldsV1": fields},
            ],
        }});
        assert_eq!(is_copy(&object), expected);
        // One that was let go of has no mark, whoever made it.
        object["metadata"]["labels"] = json!({});
        assert!(!is_copy(&object));
    }

    #[test]
    fn what_nobody_applied_is_no_copy() {
        assert!(!is_copy(
            &json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}})
        ));
    }

    #[rstest]
    #[case::by_label(json!({"labels": {(INSTANCE_LABEL): "d"}}), true)]
    #[case::by_annotation(json!({"annotations": {(OWNER_UID_ANNOTATION): "u"}}), true)]
    #[case::by_reference(json!({"ownerReferences": [{"uid": "x"}, {"uid": "u"}]}), true)]
    #[case::of_another_instance(json!({"labels": {(INSTANCE_LABEL): "other"}}), false)]
    #[case::of_nobody(json!({"name": "d"}), false)]
    fn ownership_is_told_by_label_annotation_or_reference(#[case] metadata: Value, #[case] expected: bool) {
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
    #[case::an_orphan(json!({"managedFields": [{"manager": FIELD_MANAGER, "operation": "Apply"}]}), LET_GO)]
    #[case::nobody_knows(json!({}), "somebody else")]
    fn who_made_an_object_is_told_by_its_marks(#[case] metadata: Value, #[case] expected: &str) {
        let maker = maker_of(&json!({"metadata": metadata}));
        assert!(maker.starts_with(expected), "{maker}");
    }
}
