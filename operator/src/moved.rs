//! Fields that an earlier version had elsewhere. The API server drops them without a word; only what it remembers of who has
//! applied what tells that somebody still writes them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::events::Notice;

/// Where a field was, and where it is.
const MOVED: &[(&str, &str)] = &[("spec.node.maxUnavailable", "spec.node.update.maxUnavailable")];

/// What kubectl remembers of `kubectl apply`.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What whoever still applies such fields is to be told. Those whom only `Update` is known of are left out: the defaults of the
/// earlier version count as theirs.
pub fn moved(metadata: &ObjectMeta) -> Option<Notice> {
    let last = metadata.annotations.as_ref().and_then(|all| all.get(LAST_APPLIED));
    let last: Option<Value> = last.and_then(|text| serde_json::from_str(text).ok());
    let managers = metadata.managed_fields.iter().flatten();
    let applied: Vec<&Value> = managers
        .filter(|entry| entry.operation.as_deref() == Some("Apply"))
        .filter_map(|entry| Some(&entry.fields_v1.as_ref()?.0))
        .collect();
    let is_written = |field: &str| {
        let plain = format!("/{}", field.replace('.', "/"));
        let owned = format!("/f:{}", field.replace('.', "/f:"));
        last.as_ref().is_some_and(|object| object.pointer(&plain).is_some())
            || applied.iter().any(|fields| fields.pointer(&owned).is_some())
    };
    let told: Vec<String> = MOVED
        .iter()
        .filter(|(old, _)| is_written(old))
        .map(|(old, new)| format!("{old} has no effect in this version: it is {new} now"))
        .collect();
    (!told.is_empty()).then(|| {
        let note = format!("{}. Change the manifest and apply it again", told.join("; "));
        Notice::warning("FieldMoved", "Observe", note)
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn applied(operation: &str, fields: &Value) -> Value {
        json!({"managedFields": [{"manager": "kubectl", "operation": operation, "fieldsV1": fields}]})
    }

    fn last(object: &str) -> Value {
        json!({"annotations": {LAST_APPLIED: object}})
    }

    #[rstest]
    #[case::by_the_server(applied("Apply", &json!({"f:spec": {"f:node": {"f:maxUnavailable": {}}}})))]
    #[case::by_kubectl(last(r#"{"spec": {"node": {"maxUnavailable": 2}}}"#))]
    fn whoever_still_applies_a_field_that_moved_is_told_where_it_is(#[case] metadata: Value) {
        let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap();

        let notice = moved(&metadata).unwrap();

        assert!(
            notice.note.contains("it is spec.node.update.maxUnavailable now"),
            "{}",
            notice.note
        );
    }

    #[rstest]
    #[case::nobody(json!({}))]
    #[case::the_new_place(last(r#"{"spec": {"node": {"update": {"maxUnavailable": 2}}}}"#))]
    #[case::a_default_of_the_earlier_version(applied("Update", &json!({"f:spec": {"f:node": {"f:maxUnavailable": {}}}})))]
    #[case::what_is_no_object(last("text"))]
    fn nobody_else_is_told(#[case] metadata: Value) {
        let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap();

        assert_eq!(moved(&metadata), None);
    }
}
