// SPDX-License-Identifier: Apache-2.0
//! Objects of the API server. Checks that any JSON is accepted in a list of any kind, and that error texts contain no
//! value of an object.

use cinder_csi_crds::CinderCSIDriver;
use cinder_operator_core::cluster::{
    AttachmentObject, ClaimObject, ClassObject, GuardedObject, NodeObject, PodObject, RegistrationObject, VolumeObject,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::{Target, texts};

/// A value in the seeds that no error text may contain.
const CANARY: &str = "c4n4ry";

pub(crate) const TARGET: Target = Target {
    name: "objects",
    seeds: || {
        texts(&[
            r#"{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"a","namespace":"b","uid":"u","resourceVersion":"1","creationTimestamp":"2026-01-01T00:00:00Z","managedFields":[{"manager":"x","operation":"Update","apiVersion":"v1","time":"9999-12-31T23:59:59Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{}}}],"annotations":{"k":"c4n4ry"}},"spec":{"volumeName":"pv"},"status":{"phase":"Bound"}}"#,
            r#"{"metadata":{"name":"pv","deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["f"],"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"u"}]},"spec":{"capacity":{"storage":"1Gi"},"csi":{"driver":"cinder.csi.openstack.org","volumeHandle":"h"},"claimRef":{"name":"a","namespace":"b","uid":"u"}},"status":{"phase":"Released"}}"#,
            r#"{"metadata":{"name":"s","labels":{"a":"b"}},"type":"Opaque","data":{"password":"c4n4ryAA"}}"#,
            r#"{"metadata":{"name":"n"},"spec":{"drivers":[{"name":"d","nodeID":"i","allocatable":{"count":1},"topologyKeys":null}],"taints":[{"key":"k","effect":"NoSchedule","timeAdded":"-0001-01-01T00:00:00Z"}]},"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"10000-01-01T00:00:00Z"}]}}"#,
            r#"{"metadata":{"name":"d","generation":1},"spec":{"replicas":1,"selector":{},"template":{"spec":{"containers":[{"name":"c","image":"i"}]}},"storageClasses":{"items":[]}},"status":{"conditions":[]}}"#,
        ])
    },
    words: &[
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "null",
        "true",
        "1e999",
        "-1",
        "\"metadata\":",
        "\"managedFields\":[",
        "\"creationTimestamp\":",
        "\"9999-12-31T23:59:59Z\"",
        "\"0000-01-01T00:00:00Z\"",
        "\"-9999-01-01T00:00:00.999999999Z\"",
        "\"292277026596-12-04T15:30:07Z\"",
        "\"c4n4ry\"",
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
        "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
        "\\u001b",
        "\\ud800",
        "\u{202e}",
    ],
    eat,
};

fn eat(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if serde_json::from_str::<Box<RawValue>>(text).is_err() {
        return;
    }
    let page = format!("[{text},{text}]");
    check::<AttachmentObject>(&page);
    check::<CinderCSIDriver>(&page);
    check::<ClaimObject>(&page);
    check::<ClassObject>(&page);
    check::<DaemonSet>(&page);
    check::<Deployment>(&page);
    check::<NodeObject>(&page);
    check::<PodObject>(&page);
    check::<RegistrationObject>(&page);
    check::<Secret>(&page);
    check::<VolumeObject>(&page);
}

fn check<K: DeserializeOwned>(page: &str) {
    let objects: Result<Vec<GuardedObject<K>>, _> = serde_json::from_str(page);
    let kind = std::any::type_name::<K>();
    let objects = objects.unwrap_or_else(|error| panic!("a list of {kind} fails: {error}"));
    assert_eq!(objects.len(), 2, "a list of {kind}");
    for undecodable in objects.into_iter().filter_map(|object| object.0.err()) {
        let key = undecodable.key();
        assert!(!undecodable.reason.contains(CANARY), "{kind}: {}", undecodable.reason);
        assert!(
            !key.is_empty() && !key.chars().chain(undecodable.reason.chars()).any(char::is_control),
            "{kind}: {undecodable}"
        );
        assert!(
            undecodable.reason.chars().count() <= 160,
            "{kind}: {}",
            undecodable.reason
        );
        assert!(undecodable.metadata.managed_fields.is_none());
        assert!(undecodable.metadata.resource_version.is_some());
    }
}
