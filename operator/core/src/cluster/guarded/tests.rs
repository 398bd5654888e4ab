// SPDX-License-Identifier: Apache-2.0
//! Objects that the API server accepts, and that must not fail a list.

use k8s_openapi::api::{apps::v1::Deployment, coordination::v1::Lease, core::v1::Secret};
use kube::{
    api::{DynamicObject, ObjectList, PartialObjectMeta, WatchEvent},
    core::Resource as _,
};
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::cluster::{
    AttachmentObject, ClaimObject, ClassObject, Indexed, NodeObject, PodObject, RegistrationObject, VolumeObject,
};

/// A claim that kube-apiserver 1.36 accepted.
const YEAR_9999: &str = include_str!("../../../testdata/claim-of-year-9999.json");

/// The first and the last time that Go parses, and times that Go writes with a year outside four digits.
const TIMES: [&str; 7] = [
    "0001-01-01T00:00:00Z",
    "0000-01-01T00:00:00Z",
    "-001-12-31T10:00:00Z",
    "9999-12-30T21:59:59Z",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59.999999Z",
    "10000-01-01T11:59:59Z",
];

fn list<K: DeserializeOwned + Clone>(items: &str) -> Vec<GuardedObject<K>> {
    let text = format!(
        r#"{{"kind": "List", "apiVersion": "v1", "metadata": {{"resourceVersion": "7"}}, "items": [{items}]}}"#
    );
    let list: ObjectList<GuardedObject<K>> = serde_json::from_str(&text).expect("a list");
    list.items
}

/// Decodes an object next to a plain one, in a list and as an event of a watch.
fn decode_everywhere<K: DeserializeOwned + Clone + Resource>(object: &str) -> GuardedObject<K> {
    let plain = r#"{"metadata": {"name": "plain", "resourceVersion": "6"}, "spec": {"csi": {"driver": "d"}, "attacher": "d"}, "provisioner": "d"}"#;
    let mut items = list::<K>(&format!("{plain}, {object}, {plain}"));
    assert_eq!(items.len(), 3);
    for plain in [&items[0], &items[2]] {
        assert!(plain.0.is_ok(), "{:?}", plain.0.as_ref().err());
    }
    for type_ in ["ADDED", "MODIFIED", "DELETED"] {
        let event = format!(r#"{{"type": "{type_}", "object": {object}}}"#);
        let event: WatchEvent<GuardedObject<K>> = serde_json::from_str(&event).expect("an event");
        let (WatchEvent::Added(one) | WatchEvent::Modified(one) | WatchEvent::Deleted(one)) = event else {
            panic!("{type_} became another event");
        };
        let version = one.meta().resource_version.as_deref().unwrap_or_default();
        assert!(one.0.is_ok() || !version.is_empty(), "the watch would list again");
    }
    items.remove(1)
}

fn mk_object(time: &str) -> Value {
    let conditions = json!([
        {"type": "Ready", "status": "True", "lastTransitionTime": time, "lastHeartbeatTime": time},
        {"type": "Resizing", "status": "True", "lastTransitionTime": time},
    ]);
    json!({
        "metadata": {
            "name": "odd", "namespace": "shop", "uid": "u", "resourceVersion": "5", "generation": 1,
            "creationTimestamp": time, "deletionTimestamp": time, "deletionGracePeriodSeconds": 0,
            "annotations": {"when": "9999-12-31T23:59:59Z", "volume.kubernetes.io/storage-provisioner": "d"},
            "managedFields": [
                {"manager": "x", "operation": "Update", "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:metadata": {"f:labels": {"f:nothing": {}}}}},
                {"manager": "y", "operation": "Apply", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z"},
            ],
        },
        "provisioner": "d",
        "spec": {"attacher": "d", "csi": {"driver": "d", "volumeHandle": "h"}, "drivers": null, "renewTime": time,
            "acquireTime": time, "unknown": {"deep": [time]}},
        "status": {"phase": "Bound", "attached": true, "lastPhaseTransitionTime": time, "conditions": conditions},
    })
}

fn assert_decodes<K: DeserializeOwned + Clone + Resource>(kind: &str, object: &Value) {
    let decoded = decode_everywhere::<K>(&object.to_string());
    let name = decoded.meta().name.as_deref();
    assert!(decoded.0.is_ok(), "{kind}: {:?} of {object}", decoded.0.err());
    assert_eq!(name, Some("odd"), "{kind}");
}

#[test]
fn lists_survive_undecodable_claim() {
    let claim = decode_everywhere::<ClaimObject>(YEAR_9999).0.expect("it decodes");
    assert_eq!(claim.meta().name.as_deref(), Some("year-9999"));
}

#[rstest]
fn every_kind_decodes_with_any_time(#[values(0, 1, 2, 3, 4, 5, 6)] time: usize) {
    let object = mk_object(TIMES[time]);
    assert_decodes::<NodeObject>("Node", &object);
    assert_decodes::<RegistrationObject>("CSINode", &object);
    assert_decodes::<VolumeObject>("PersistentVolume", &object);
    assert_decodes::<AttachmentObject>("VolumeAttachment", &object);
    assert_decodes::<ClaimObject>("PersistentVolumeClaim", &object);
    assert_decodes::<ClassObject>("StorageClass", &object);
    assert_decodes::<PodObject>("Pod", &object);
    assert_decodes::<Lease>("Lease", &object);
    assert_decodes::<PartialObjectMeta<Secret>>("metadata of a Secret", &object);
    assert_decodes::<DynamicObject>("any", &object);
    let deployment = json!({"metadata": object["metadata"], "status": object["status"]});
    assert_decodes::<Deployment>("Deployment", &deployment);
}

#[test]
fn text_of_users_is_not_changed() {
    let object = mk_object("9999-12-31T23:59:59Z").to_string();
    let decoded = decode_everywhere::<DynamicObject>(&object).0.expect("it decodes");
    let annotations = decoded.metadata.annotations.expect("annotations");
    assert_eq!(annotations["when"], "9999-12-31T23:59:59Z");
}

#[test]
fn managers_are_retained_as_far_as_possible() {
    let deep = format!("{}{{}}{}", r#"{"f:a":"#.repeat(500), "}".repeat(500));
    let object = format!(
        r#"{{"metadata": {{"name": "odd", "managedFields": [
            {{"manager": "deep", "fieldsV1": {deep}}},
            {{"manager": 5}},
            {{"manager": "late", "time": "9999-12-31T23:59:59Z"}}]}}}}"#
    );
    let decoded = decode_everywhere::<PartialObjectMeta<Secret>>(&object)
        .0
        .expect("it decodes");
    let managers = decoded.metadata.managed_fields.expect("managers");
    let names: Vec<_> = managers.iter().filter_map(|one| one.manager.as_deref()).collect();
    assert_eq!(names, ["late"]);
}

#[test]
fn unused_fields_may_nest_deeply() {
    let deep = format!("{}{{}}{}", r#"{"a":"#.repeat(500), "}".repeat(500));
    let object = format!(r#"{{"metadata": {{"name": "odd", "unknown": {deep}}}, "spec": {{"unknown": {deep}}}}}"#);
    assert_decodes_text::<NodeObject>(&object);
    assert_decodes_text::<VolumeObject>(&object);
    assert_decodes_text::<ClaimObject>(&object);
}

fn assert_decodes_text<K: DeserializeOwned + Clone + Resource>(object: &str) {
    let decoded = decode_everywhere::<K>(object);
    assert!(decoded.0.is_ok(), "{:?}", decoded.0.err());
}

#[rstest]
#[case::wrong_type(
    r#"{"metadata": {"name": "odd", "namespace": "shop", "uid": "u", "resourceVersion": "5"}, "spec": "s3cret"}"#,
    "shop/odd"
)]
#[case::wrong_metadata(
    r#"{"metadata": {"name": "odd", "labels": {"a": 5, "b": "c"}, "finalizers": "s3cret"}}"#,
    "odd"
)]
#[case::name_of_another_type(r#"{"metadata": {"name": ["s3cret"], "uid": {}}}"#, "an object without a name")]
#[case::no_metadata(r#"{"spec": {}}"#, "an object without a name")]
#[case::metadata_is_null(r#"{"metadata": null}"#, "an object without a name")]
#[case::text(r#""s3cret""#, "an object without a name")]
#[case::null("null", "an object without a name")]
#[case::list("[]", "an object without a name")]
#[case::control_characters(r#"{"metadata": {"name": "\u001b[2J"}, "spec": 5}"#, "\\u{1b}[2J")]
fn undecodable_object_has_name_and_reason(#[case] object: &str, #[case] expected: &str) {
    let undecodable = decode_everywhere::<VolumeObject>(object)
        .0
        .expect_err("it does not decode");
    assert_eq!(undecodable.key(), expected);
    let shown = undecodable.to_string();
    assert!(
        shown.contains("cannot be decoded: ") && !shown.contains("s3cret"),
        "{shown}"
    );
}

#[test]
fn huge_maps_decode() {
    let labels: BTreeMap<String, String> = (0..20_000)
        .map(|number| (format!("l{number}"), "x".repeat(50)))
        .collect();
    let object = json!({"metadata": {"name": "odd", "labels": labels, "creationTimestamp": "10000-01-01T00:00:00Z"}});
    assert_decodes::<NodeObject>("Node", &object);
}

/// Replaces every value of an object by one of another type. No list fails, and each result is either correct or
/// undecodable.
#[test]
fn no_value_of_another_type_fails_a_list() {
    fn each<K: Indexed + DeserializeOwned + Clone>(object: &Value) {
        let decoded = decode_everywhere::<K>(&object.to_string());
        match decoded.0 {
            Ok(object) => drop(object.keep()),
            Err(undecodable) => assert!(!undecodable.reason.is_empty()),
        }
    }
    let plain = mk_object("2026-01-01T00:00:00Z");
    let mut pointers = Vec::new();
    collect_pointers(&plain, String::new(), &mut pointers);
    assert!(pointers.len() > 50);
    for pointer in pointers {
        for value in [
            json!(null),
            json!(5),
            json!(1e300),
            json!("text"),
            json!([[]]),
            json!({"a": {}}),
            json!(true),
        ] {
            let mut object = plain.clone();
            *object.pointer_mut(&pointer).expect("a value") = value;
            each::<NodeObject>(&object);
            each::<RegistrationObject>(&object);
            each::<VolumeObject>(&object);
            each::<AttachmentObject>(&object);
            each::<ClaimObject>(&object);
            each::<ClassObject>(&object);
            each::<PodObject>(&object);
        }
    }
}

fn collect_pointers(value: &Value, pointer: String, found: &mut Vec<String>) {
    let escape = |name: &str| name.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(fields) => {
            let fields = fields.iter();
            fields.for_each(|(name, value)| collect_pointers(value, format!("{pointer}/{}", escape(name)), found));
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(index, value)| collect_pointers(value, format!("{pointer}/{index}"), found));
        }
        _ => {}
    }
    found.push(pointer);
}
