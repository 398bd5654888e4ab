// SPDX-License-Identifier: Apache-2.0
//! Reads the managed fields of objects, in which the API server records the writer of each field.

use cinder_csi_crds::INSTANCE_LABEL;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// Field manager of the operator.
pub const FIELD_MANAGER: &str = "cinder-csi-operator";

/// Whether the operator itself applied the object. A copy of an object by a user also has the labels and annotations.
/// Only the managed fields prove an apply.
pub fn is_applied(object: &Value) -> bool {
    applies(object).next().is_some()
}

/// Whether another client created the object as a copy of one that the operator had applied, with all its metadata.
///
/// The API server copies the record of that apply. The creator owns the fields that it wrote, including the
/// operator's label. The apply is older than the copy. An apply that creates an object can also precede it slightly,
/// because admission webhooks run between the two times, for at most 30 s.
pub fn is_copy(object: &Value) -> bool {
    let made = time(&object["metadata"]["creationTimestamp"]);
    let is_older = |entry: &Value| {
        let times = made.zip(time(&entry["time"]));
        times.is_some_and(|(made, applied)| made.duration_since(applied) > BETWEEN_TIMES)
    };
    is_applied(object) && (applies(object).all(is_older) || is_marked_by_another(object))
}

/// Whether the instance label exists and no apply of the operator set it.
fn is_marked_by_another(object: &Value) -> bool {
    let label = format!("f:{INSTANCE_LABEL}");
    let has_fields = |entry: &Value| entry["fieldsV1"].is_object();
    let marks = |entry: &Value| entry["fieldsV1"]["f:metadata"]["f:labels"][&label].is_object();
    object["metadata"]["labels"][INSTANCE_LABEL].is_string()
        && applies(object).all(|entry| has_fields(entry) && !marks(entry))
}

/// Maximum time between the record of an apply and the creation of its object.
const BETWEEN_TIMES: SignedDuration = SignedDuration::from_mins(1);

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// Returns the records of the operator's applies.
fn applies(object: &Value) -> impl Iterator<Item = &Value> {
    let managers = object["metadata"]["managedFields"].as_array();
    managers
        .into_iter()
        .flatten()
        .filter(|entry| entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply")
}

/// Whether a manager that owns `fields` owns an annotation.
pub fn owns_annotation(fields: &Value, name: &str) -> bool {
    let path = format!("f:{name}");
    fields["f:metadata"]["f:annotations"].get(path).is_some()
}

/// Returns the fields that the operator applied to an object, according to the API server.
pub fn own_fields(there: &Value) -> impl Iterator<Item = &Value> {
    let managers = there["metadata"]["managedFields"].as_array();
    let is_ours = |entry: &&Value| entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply";
    managers
        .into_iter()
        .flatten()
        .filter(is_ours)
        .map(|entry| &entry["fieldsV1"])
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
    fn copy_is_younger_than_recorded_apply(#[case] time: &str, #[case] expected: bool) {
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
    fn immediate_copy_has_label_of_its_creator(#[case] fields: Value, #[case] expected: bool) {
        let mut object = json!({"metadata": {
            "creationTimestamp": "2026-01-01T00:00:50Z",
            "labels": {(INSTANCE_LABEL): "d"},
            "managedFields": [
                {"manager": FIELD_MANAGER, "operation": "Apply", "time": "2026-01-01T00:00:00Z", "fieldsV1": fields},
            ],
        }});
        assert_eq!(is_copy(&object), expected);
        // An object with released ownership has no label, even if it is a copy.
        object["metadata"]["labels"] = json!({});
        assert!(!is_copy(&object));
    }

    #[test]
    fn object_without_apply_is_not_a_copy() {
        assert!(!is_copy(
            &json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}})
        ));
    }
}
