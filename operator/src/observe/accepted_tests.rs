// SPDX-License-Identifier: Apache-2.0
//! No object that the API server accepts breaks a list, for every kind that the operator or its plugin reads.

use cinder_csi_crds::CinderCSIDriver;
use cinder_operator_core::cluster::{
    AttachmentObject, ClaimObject, ClassObject, GuardedObject, NodeObject, PodObject, RegistrationObject, VolumeObject,
};
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet},
    authorization::v1::SubjectAccessReview,
    coordination::v1::Lease,
    core::v1::{ConfigMap, Event as CoreEvent, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret},
    events::v1::Event,
    rbac::v1::ClusterRoleBinding,
    storage::v1::VolumeAttachment,
};
use kube::{
    Resource,
    api::{DynamicObject, ObjectList, PartialObjectMeta},
};
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::revisions::Revision;
use crate::{
    kubernetes::json_pointers,
    migration::{AnyPod, InlinePod, LabelledNode, Workload},
};

/// Times at both ends of the range that the API server accepts, and times that it formats with more than four digits of
/// a year.
const TIMES: [&str; 8] = [
    "0000-01-01T00:00:00Z",
    "-001-12-31T10:00:00Z",
    "0001-01-01T00:00:00Z",
    "2026-01-01T00:00:00.000000Z",
    "9999-12-30T21:59:59Z",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59.999999Z",
    "10000-01-01T11:59:59Z",
];

/// A time in a template.
const TIME: &str = "2026-01-01T00:00:00Z";

/// Maps with keys that users or Kubernetes choose.
const MAPS: [&str; 9] = [
    "labels",
    "annotations",
    "matchLabels",
    "nodeSelector",
    "data",
    "parameters",
    "limits",
    "requests",
    "capacity",
];

/// A kind: an object with all used fields, the required fields, and the function that decodes it.
struct Kind {
    name: &'static str,
    object: fn() -> Value,
    required: &'static [&'static str],
    check: fn(&str),
}

const fn kind(name: &'static str, object: fn() -> Value, required: &'static [&'static str], check: fn(&str)) -> Kind {
    Kind {
        name,
        object,
        required,
        check,
    }
}

fn pod() -> Value {
    json!({"spec": {"nodeName": "n1", "serviceAccountName": "a", "containers": [{"name": "c", "image": "i", "args": ["--a"], "command": ["c"],
        "env": [{"name": "E", "value": "v"}], "resources": {"limits": {"memory": "1Gi"}}, "livenessProbe": {"httpGet": {"port": "http"}}}],
        "volumes": [{"name": "v", "csi": {"driver": "d"}}, {"name": "s", "secret": {"secretName": "s"}},
            {"name": "p", "persistentVolumeClaim": {"claimName": "c"}}], "tolerations": [{"key": "k", "tolerationSeconds": 5}]},
        "status": {"phase": "Running", "startTime": TIME, "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": TIME}],
        "containerStatuses": [{"name": "c", "ready": true, "restartCount": 1, "image": "i", "imageID": "",
            "state": {"running": {"startedAt": TIME}}, "lastState": {"terminated": {"exitCode": 1, "finishedAt": TIME}}}]}})
}

const POD_FIELDS: &[&str] = &[
    "/spec",
    "/spec/containers",
    "/spec/containers/0/name",
    "/spec/containers/0/env/0/name",
    "/spec/containers/0/livenessProbe/httpGet/port",
    "/spec/volumes/0/name",
    "/spec/volumes/0/csi/driver",
    "/spec/volumes/1/name",
    "/spec/volumes/2/name",
    "/spec/volumes/2/persistentVolumeClaim/claimName",
    "/status/conditions/0/type",
    "/status/conditions/0/status",
    "/status/containerStatuses/0/name",
    "/status/containerStatuses/0/ready",
    "/status/containerStatuses/0/restartCount",
    "/status/containerStatuses/0/image",
    "/status/containerStatuses/0/imageID",
    "/status/containerStatuses/0/lastState/terminated/exitCode",
];

fn workload() -> Value {
    json!({"spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"},
        "creationTimestamp": null}, "spec": pod()["spec"]}}, "status": {"replicas": 1, "availableReplicas": 1, "observedGeneration": 1,
        "currentNumberScheduled": 1, "desiredNumberScheduled": 1, "numberMisscheduled": 0, "numberReady": 1,
        "conditions": [{"type": "Available", "status": "True", "lastTransitionTime": TIME, "lastUpdateTime": TIME}]}})
}

const WORKLOAD_FIELDS: &[&str] = &[
    "/spec",
    "/spec/selector",
    "/spec/template",
    "/spec/template/spec",
    "/spec/template/spec/containers",
    "/spec/template/spec/containers/0/name",
    "/spec/template/spec/containers/0/env/0/name",
    "/spec/template/spec/containers/0/livenessProbe/httpGet/port",
    "/spec/template/spec/volumes/0/name",
    "/spec/template/spec/volumes/0/csi/driver",
    "/spec/template/spec/volumes/1/name",
    "/spec/template/spec/volumes/2/name",
    "/spec/template/spec/volumes/2/persistentVolumeClaim/claimName",
    "/status/replicas",
    "/status/currentNumberScheduled",
    "/status/desiredNumberScheduled",
    "/status/numberMisscheduled",
    "/status/numberReady",
    "/status/conditions/0/type",
    "/status/conditions/0/status",
];

fn node() -> Value {
    json!({"spec": {"providerID": "openstack:///u", "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": TIME}]},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": TIME, "lastHeartbeatTime": TIME}]}})
}

const NODE_FIELDS: &[&str] = &[
    "/spec/taints/0/key",
    "/spec/taints/0/effect",
    "/status/conditions/0/type",
    "/status/conditions/0/status",
];

fn volume() -> Value {
    let secret = json!({"name": "s", "namespace": "n"});
    let term = json!({"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]});
    json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": {"driver": "d", "volumeHandle": "h",
        "controllerPublishSecretRef": secret, "controllerExpandSecretRef": secret}, "claimRef": {"namespace": "n", "name": "c", "uid": "u"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}},
        "status": {"phase": "Bound", "lastPhaseTransitionTime": TIME}})
}

const VOLUME_FIELDS: &[&str] = &[
    "/spec/csi/driver",
    "/spec/csi/volumeHandle",
    "/spec/nodeAffinity/required/nodeSelectorTerms",
    "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/key",
    "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/operator",
];

fn claim() -> Value {
    json!({"spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "pv", "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Pending", "capacity": {"storage": "1Gi"}, "conditions": [{"type": "Resizing", "status": "True",
            "lastTransitionTime": TIME, "lastProbeTime": TIME, "message": "m"}]}})
}

const CLAIM_FIELDS: &[&str] = &["/status/conditions/0/type", "/status/conditions/0/status"];

fn attachment() -> Value {
    json!({"spec": {"attacher": "d", "nodeName": "n1", "source": {"persistentVolumeName": "pv"}},
        "status": {"attached": false, "attachError": {"time": TIME, "message": "m"}, "detachError": {"time": TIME}}})
}

const ATTACHMENT_FIELDS: &[&str] = &[
    "/spec",
    "/spec/attacher",
    "/spec/nodeName",
    "/spec/source",
    "/status/attached",
];

fn driver() -> Value {
    json!({"spec": {"clouds": [{"name": "one", "credentialsSecretRef": {"name": "s"}}]}, "status": {"conditions": [{"type": "Ready",
        "status": "True", "reason": "R", "message": "", "lastTransitionTime": TIME}], "clouds": [{"name": "one",
        "authenticated": true, "credentialExpiresAt": TIME}]}})
}

const DRIVER_FIELDS: &[&str] = &[
    "/spec",
    "/spec/clouds",
    "/spec/clouds/0/credentialsSecretRef",
    "/spec/clouds/0/credentialsSecretRef/name",
    "/status/conditions/0/type",
    "/status/conditions/0/status",
    "/status/conditions/0/reason",
    "/status/conditions/0/message",
    "/status/conditions/0/lastTransitionTime",
    "/status/clouds/0/name",
    "/status/clouds/0/authenticated",
];

fn event() -> Value {
    json!({"eventTime": TIME, "reason": "R", "note": "n", "message": "m", "type": "Warning", "lastTimestamp": TIME, "firstTimestamp": TIME,
        "deprecatedLastTimestamp": TIME, "regarding": {"kind": "Pod", "name": "p"}, "involvedObject": {"kind": "Pod", "name": "p"},
        "series": {"count": 2, "lastObservedTime": TIME}})
}

const EVENT_FIELDS: &[&str] = &["/involvedObject", "/series/count", "/series/lastObservedTime"];

fn lease() -> Value {
    json!({"spec": {"holderIdentity": "h", "leaseDurationSeconds": 60, "renewTime": TIME, "acquireTime": TIME, "leaseTransitions": 1}})
}

fn binding() -> Value {
    json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": "n"}]})
}

const KINDS: &[Kind] = &[
    kind("Node as watched", node, NODE_FIELDS, check::<NodeObject>),
    kind("Node with labels", node, NODE_FIELDS, check::<LabelledNode>),
    kind(
        "CSINode as watched",
        || json!({"spec": {"drivers": [{"name": "d", "nodeID": "n", "allocatable": {"count": 5}}]}}),
        &[
            "/spec",
            "/spec/drivers",
            "/spec/drivers/0/name",
            "/spec/drivers/0/nodeID",
        ],
        check::<RegistrationObject>,
    ),
    kind(
        "CSINode without drivers",
        || json!({"spec": {"drivers": null}}),
        &[],
        check::<RegistrationObject>,
    ),
    kind(
        "PersistentVolume as watched",
        volume,
        VOLUME_FIELDS,
        check::<VolumeObject>,
    ),
    kind(
        "PersistentVolumeClaim as watched",
        claim,
        CLAIM_FIELDS,
        check::<ClaimObject>,
    ),
    kind(
        "VolumeAttachment as watched",
        attachment,
        ATTACHMENT_FIELDS,
        check::<AttachmentObject>,
    ),
    kind(
        "StorageClass as watched",
        || json!({"provisioner": "d", "parameters": {"type": "t"}, "allowVolumeExpansion": true}),
        &["/provisioner"],
        check::<ClassObject>,
    ),
    kind("Pod as watched", pod, POD_FIELDS, check::<PodObject>),
    kind("pod with in-line volumes", pod, POD_FIELDS, check::<InlinePod>),
    kind("any pod", pod, POD_FIELDS, check::<AnyPod>),
    kind("any workload", workload, WORKLOAD_FIELDS, check::<Workload>),
    kind(
        "ControllerRevision as read",
        || json!({"revision": 1, "data": {"spec": {}}}),
        &["/revision"],
        check::<Revision>,
    ),
    kind("Node", node, NODE_FIELDS, check::<Node>),
    kind("PersistentVolume", volume, VOLUME_FIELDS, check::<PersistentVolume>),
    kind(
        "PersistentVolumeClaim",
        claim,
        CLAIM_FIELDS,
        check::<PersistentVolumeClaim>,
    ),
    kind(
        "VolumeAttachment",
        attachment,
        ATTACHMENT_FIELDS,
        check::<VolumeAttachment>,
    ),
    kind("Pod", pod, POD_FIELDS, check::<Pod>),
    kind("Deployment", workload, WORKLOAD_FIELDS, check::<Deployment>),
    kind("DaemonSet", workload, WORKLOAD_FIELDS, check::<DaemonSet>),
    kind("ReplicaSet", workload, WORKLOAD_FIELDS, check::<ReplicaSet>),
    kind(
        "ControllerRevision",
        || json!({"revision": 1, "data": {"spec": {}}}),
        &["/revision"],
        check::<ControllerRevision>,
    ),
    kind("Lease", lease, &[], check::<Lease>),
    kind("ConfigMap", || json!({"data": {"a": "b"}}), &[], check::<ConfigMap>),
    kind(
        "ClusterRoleBinding",
        binding,
        &[
            "/roleRef",
            "/roleRef/apiGroup",
            "/roleRef/kind",
            "/roleRef/name",
            "/subjects/0/kind",
            "/subjects/0/name",
        ],
        check::<ClusterRoleBinding>,
    ),
    kind("Event of core", event, EVENT_FIELDS, check::<CoreEvent>),
    kind("Event", event, EVENT_FIELDS, check::<Event>),
    kind(
        "SubjectAccessReview",
        || json!({"spec": {"user": "u"}, "status": {"allowed": true}}),
        &["/spec", "/status/allowed"],
        check::<SubjectAccessReview>,
    ),
    kind("CinderCSIDriver", driver, DRIVER_FIELDS, check::<CinderCSIDriver>),
    kind(
        "metadata of a Secret",
        || json!({"data": {"a": "Yg=="}, "type": "Opaque"}),
        &[],
        check::<PartialObjectMeta<Secret>>,
    ),
    kind(
        "metadata of a CinderCSIDriver",
        driver,
        &[],
        check::<PartialObjectMeta<CinderCSIDriver>>,
    ),
    kind("any object", workload, &[], check::<DynamicObject>),
];

/// Decodes a list with the object between two valid ones, which must remain unchanged.
fn check<K: DeserializeOwned + Clone + Resource>(object: &str) {
    let named = |name: &str| {
        let mut plain: Value = serde_json::from_str(object).expect("JSON");
        plain["metadata"] = json!({"name": name, "resourceVersion": "1"});
        plain.to_string()
    };
    let text = format!(
        r#"{{"kind": "List", "apiVersion": "v1", "metadata": {{"resourceVersion": "7"}}, "items": [{}, {object}, {}]}}"#,
        named("first"),
        named("last")
    );
    let list: ObjectList<GuardedObject<K>> = serde_json::from_str(&text).expect("a list");
    let found: Vec<_> = list
        .items
        .iter()
        .map(|item| item.meta().name.clone().unwrap_or_default())
        .collect();
    assert_eq!(found, ["first", "odd", "last"]);
    for item in &list.items {
        assert!(item.0.is_ok(), "{:?} of {object}", item.0.as_ref().err());
    }
}

fn mk_object(kind: &Kind) -> Value {
    let mut object = (kind.object)();
    object["metadata"] = json!({
        "name": "odd", "namespace": "shop", "uid": "u", "resourceVersion": "5", "generation": 1, "creationTimestamp": TIME,
        "deletionTimestamp": TIME, "deletionGracePeriodSeconds": 0, "labels": {"a": "b"}, "annotations": {"when": TIME},
        "finalizers": ["f"], "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}],
        "managedFields": [{"manager": "x", "operation": "Update", "apiVersion": "v1", "time": TIME, "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {"f:nothing": {}}}}}],
    });
    // Items of lists have neither, except custom resources.
    if kind.name.ends_with("CinderCSIDriver") {
        object["apiVersion"] = json!("csi.openstack.org/v1beta1");
        object["kind"] = json!("CinderCSIDriver");
    }
    object
}

/// A change at a position of an object that the API server accepts.
#[derive(Debug, Clone)]
enum Change {
    Time(usize),
    Remove,
    UnknownField(Value),
    HugeMap(usize),
    DeepField(usize),
}

fn change() -> impl Strategy<Value = Change> {
    let unknown = prop_oneof![
        Just(json!(null)),
        Just(json!("9999-12-31T23:59:59Z")),
        Just(json!(1e308)),
        Just(json!([[{"a": []}]])),
        "\\PC{0,20}".prop_map(|text| json!({ "a": text })),
        "[\u{0}-\u{9f}\u{202e}]{0,20}".prop_map(Value::String),
    ];
    prop_oneof![
        (0..TIMES.len()).prop_map(Change::Time),
        Just(Change::Remove),
        unknown.prop_map(Change::UnknownField),
        (1_usize..500).prop_map(Change::HugeMap),
        (1_usize..60).prop_map(Change::DeepField),
    ]
}

fn apply(kind: &Kind, object: &mut Value, place: usize, change: &Change) {
    let pointers = json_pointers(object);
    let pointer = pointers[place % pointers.len()].clone();
    let last = |pointer: &str| pointer.rsplit('/').next().unwrap_or_default().to_owned();
    let is_text_map = MAPS.contains(&last(&pointer).as_str());
    let is_in_managers = pointer.contains("/fieldsV1");
    match change {
        Change::Time(time) => {
            let times = pointers
                .iter()
                .filter(|pointer| object.pointer(pointer) == Some(&json!(TIME)));
            let times: Vec<String> = times.cloned().collect();
            if let Some(pointer) = times.get(place % times.len().max(1)) {
                *object.pointer_mut(pointer).expect("a time") = json!(TIMES[*time]);
            }
        }
        Change::Remove => {
            let is_basic = ["/metadata", "/metadata/name", "/apiVersion", "/kind"].contains(&pointer.as_str())
                || pointer.starts_with("/metadata/ownerReferences/0/");
            // An object in an optional list retains its own required fields, and is removed with the list.
            let is_required = kind.required.contains(&pointer.as_str());
            if is_basic || is_required {
                return;
            }
            let (parent, name) = pointer.rsplit_once('/').expect("a field");
            if let Some(fields) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
                fields.remove(name);
            }
        }
        Change::UnknownField(value) => {
            if let Some(fields) = object
                .pointer_mut(&pointer)
                .and_then(Value::as_object_mut)
                .filter(|_| !is_text_map && !is_in_managers)
            {
                fields.insert("fieldOfALaterVersion".to_owned(), value.clone());
            }
        }
        Change::HugeMap(count) => {
            let map: serde_json::Map<String, Value> = (0..*count)
                .map(|number| (format!("k{number}"), json!("\u{1b}\u{202e}9999-12-31T23:59:59Z")))
                .collect();
            object["metadata"]["annotations"] = Value::Object(map);
        }
        Change::DeepField(depth) => {
            let mut deep = json!({});
            for _ in 0..*depth {
                deep = json!({ "f:a": deep });
            }
            if object["metadata"]["managedFields"].is_array() {
                object["metadata"]["managedFields"][0]["fieldsV1"] = deep;
            }
        }
    }
}

#[test]
fn unchanged_objects_decode() {
    for kind in KINDS {
        (kind.check)(&mk_object(kind).to_string());
    }
}

#[test]
fn any_time_in_any_field_decodes() {
    for kind in KINDS {
        for time in TIMES {
            let text = mk_object(kind).to_string().replace(TIME, time);
            // Text of users remains unchanged.
            (kind.check)(&text);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn accepted_objects_break_no_list(changes in prop::collection::vec((any::<usize>(), change()), 0..12)) {
        for kind in KINDS {
            let mut object = mk_object(kind);
            for (place, change) in &changes {
                apply(kind, &mut object, *place, change);
            }
            let result = std::panic::catch_unwind(|| (kind.check)(&object.to_string()));
            prop_assert!(result.is_ok(), "{}: {object}", kind.name);
        }
    }
}
