// SPDX-License-Identifier: Apache-2.0
//! Objects that the API server must accept or reject. `rules.rs` next to this file checks the table offline,
//! and `tests/suites/tests/operator` checks it against a real API server.

use serde_json::{Value, json};

/// A change of the minimal object.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// JSON pointer of the changed field.
    pub(crate) pointer: &'static str,
    pub(crate) value: Value,
    /// Part of the expected error message. Empty if the object is valid.
    pub(crate) refusal: &'static str,
}

/// A change of an existing object.
pub(crate) struct Update {
    pub(crate) name: &'static str,
    /// JSON pointer of the changed field.
    pub(crate) pointer: &'static str,
    /// Previous value. Null if absent.
    pub(crate) old: Value,
    /// New value. Null if removed.
    pub(crate) new: Value,
    /// Part of the expected error message. Empty if the change is valid.
    pub(crate) refusal: &'static str,
}

/// The minimal valid object.
pub(crate) fn smallest() -> Value {
    json!({
        "apiVersion": "csi.openstack.org/v1beta1",
        "kind": "CinderCSIDriver",
        "metadata": { "name": "cinder.csi.openstack.org" },
        "spec": { "clouds": [{ "credentialsSecretRef": { "name": "openstack-credentials" } }] },
    })
}

/// The minimal object with `value` at `pointer`. Null removes the field.
pub(crate) fn with(pointer: &str, value: Value) -> Value {
    let mut object = smallest();
    set(&mut object, pointer, value);
    object
}

fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut place = object;
    let pointer = pointer.trim_start_matches('/');
    let (parents, last) = pointer.rsplit_once('/').unwrap_or(("", pointer));
    for step in parents.split('/').filter(|step| !step.is_empty()) {
        place = match step.parse::<usize>() {
            Ok(index) => &mut place[index],
            Err(_) => &mut place[step],
        };
    }
    match (last.parse::<usize>(), place.as_object_mut()) {
        (Err(_), Some(fields)) if value.is_null() => {
            fields.remove(last);
        }
        (Ok(index), None) => place[index] = value,
        _ => place[last] = value,
    }
}

fn refused(name: &'static str, pointer: &'static str, value: Value, refusal: &'static str) -> Case {
    Case {
        name,
        pointer,
        value,
        refusal,
    }
}

fn accepted(name: &'static str, pointer: &'static str, value: Value) -> Case {
    refused(name, pointer, value, "")
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = names_and_paths();
    cases.extend(classes());
    cases.extend(snapshots_and_zones());
    cases.extend(updates_and_removals());
    cases.extend(clouds());
    cases.extend(health());
    cases.extend(pods());
    cases.extend(cluster_objects());
    cases
}

fn names_and_paths() -> Vec<Case> {
    let directory = |path: &str| json!({ "kubeletDir": path });
    let node = "/spec/node";
    let key = "/spec/clouds/0/credentialsSecretRef/key";
    vec![
        refused(
            "a long name",
            "/metadata/name",
            json!("x".repeat(64)),
            "at most 63 characters",
        ),
        refused(
            "a long socket path",
            node,
            directory(&format!("/{}", "x".repeat(70))),
            "at most 80 characters together",
        ),
        refused(
            "a relative directory",
            node,
            directory("var/lib/kubelet"),
            "absolute path",
        ),
        refused(
            "a parent directory",
            node,
            directory("/var/lib/../kubelet"),
            "absolute path",
        ),
        refused("a parent at the end", node, directory("/var/lib/.."), "absolute path"),
        refused("the same directory", node, directory("/var/./lib"), "absolute path"),
        refused(
            "a slash at the end",
            node,
            directory("/var/lib/kubelet/"),
            "absolute path",
        ),
        refused("the root", node, directory("/"), "absolute path"),
        refused("a key without ending", key, json!("credentials"), "must end in"),
        accepted("the longest name", "/metadata/name", json!("x".repeat(63))),
        accepted(
            "the directory of microk8s",
            node,
            directory("/var/snap/microk8s/common/var/lib/kubelet"),
        ),
        accepted("a directory with dots", node, directory("/opt/k0s-1.36..x/.kubelet")),
        accepted("cloud.conf", key, json!("cloud.conf")),
    ]
}

fn classes() -> Vec<Case> {
    let classes = "/spec/storageClasses";
    let parameters = |parameters: Value| json!({ "items": [{ "name": "a", "extraParameters": parameters }] });
    vec![
        refused(
            "two default classes",
            classes,
            json!({ "items": [{ "name": "a", "isDefault": true }, { "name": "b", "isDefault": true }] }),
            "at most one",
        ),
        refused(
            "a volume type as parameter",
            classes,
            parameters(json!({ "type": "ssd" })),
            "volumeType",
        ),
        refused(
            "a secret as parameter",
            classes,
            parameters(json!({ "csi.storage.k8s.io/provisioner-secret-name": "s" })),
            "not supported",
        ),
        accepted(
            "a class with all that has come to it",
            classes,
            json!({ "items": [{ "name": "a", "secretName": "cloud-west", "fsType": "btrfs",
                "labels": { "team": "shop", "empty": "" }, "annotations": { "example.org/why": "any text: ä" } }] }),
        ),
        accepted(
            "one default class",
            classes,
            json!({ "items": [{ "name": "a", "isDefault": true }, { "name": "b" }] }),
        ),
        accepted("no class", classes, json!({ "items": [] })),
        refused(
            "a default class named in two ways",
            classes,
            json!({ "default": { "name": "b" }, "items": [{ "name": "a", "isDefault": true }] }),
            "name two classes",
        ),
        refused(
            "a default class and none",
            classes,
            json!({ "default": { "policy": "Never", "name": "b" } }),
            "leave name out",
        ),
        accepted(
            "a default class without items",
            classes,
            json!({ "default": { "policy": "Always", "name": "cinder-ssd" }, "items": [] }),
        ),
    ]
}

fn snapshots_and_zones() -> Vec<Case> {
    let (snapshots, topology) = ("/spec/snapshots", "/spec/topology");
    vec![
        refused(
            "two default snapshot classes",
            snapshots,
            json!({ "classes": [{ "name": "a", "isDefault": true }, { "name": "b", "isDefault": true }] }),
            "at most one",
        ),
        refused(
            "two default group snapshot classes",
            snapshots,
            json!({ "groupClasses": [{ "name": "a", "isDefault": true }, { "name": "b", "isDefault": true }] }),
            "at most one",
        ),
        refused(
            "an incremental snapshot",
            snapshots,
            json!({ "classes": [{ "name": "a", "incremental": true }] }),
            "set type to backup",
        ),
        refused(
            "the zone of the backup service for a snapshot",
            snapshots,
            json!({ "classes": [{ "name": "a", "type": "snapshot", "availability": "nova" }] }),
            "set type to backup",
        ),
        accepted(
            "a backup class",
            snapshots,
            json!({ "classes": [{ "name": "a", "type": "backup", "incremental": true, "availability": "nova",
                "backupMaxDurationSecondsPerGB": 60, "deletionPolicy": "Retain" }] }),
        ),
        refused(
            "a volume attributes class without attributes",
            "/spec/volumeAttributesClasses",
            json!({ "items": [{ "name": "a", "parameters": {} }] }),
            "at least one",
        ),
        refused(
            "zones compared all the time",
            topology,
            json!({ "reevaluateInterval": "5s" }),
            "30s to 24h",
        ),
        refused(
            "the driver's own label",
            topology,
            json!({ "additional": { "topology.cinder.csi.openstack.org/zone": "a" } }),
            "which the driver sets itself",
        ),
        accepted(
            "all of topology",
            topology,
            json!({ "mode": "Auto", "reevaluateInterval": "1h30m", "additional": { "example.com/rack": "r1" } }),
        ),
    ]
}

fn updates_and_removals() -> Vec<Case> {
    let update = "/spec/update";
    vec![
        refused(
            "a downgrade that nobody approves",
            update,
            json!({ "allowDowngrade": true }),
            "only with policy Manual",
        ),
        accepted(
            "a downgrade that is approved",
            update,
            json!({ "policy": "Manual", "allowDowngrade": true, "approvedVersion": "v0.1.0-rc.1" }),
        ),
        accepted(
            "an approved update within a version",
            update,
            json!({ "policy": "Manual", "approvedVersion": "0.1.0+5f2c01ab" }),
        ),
    ]
}

/// Changes of existing objects.
pub(crate) fn updates() -> Vec<Update> {
    let id = |name, old: Value, new: Value, refusal| Update {
        name,
        pointer: "/spec/clusterID",
        old,
        new,
        refusal,
    };
    vec![
        id("another cluster id", json!("one"), json!("two"), "clusterID"),
        id("no cluster id any more", json!("one"), Value::Null, "clusterID"),
        id(
            "a cluster id where there was none",
            Value::Null,
            json!("two"),
            "clusterID",
        ),
        id("the same cluster id", json!("one"), json!("one"), ""),
        Update {
            name: "another instance name",
            pointer: "/spec/instanceName",
            old: json!("one"),
            new: json!("two"),
            refusal: "instanceName",
        },
        Update {
            name: "an instance name where there was none",
            pointer: "/spec/instanceName",
            old: Value::Null,
            new: json!("two"),
            refusal: "instanceName",
        },
        Update {
            name: "another namespace of the driver",
            pointer: "/spec/operandNamespace",
            old: json!("one"),
            new: json!("two"),
            refusal: "operandNamespace",
        },
        Update {
            name: "a namespace of the driver where there was none",
            pointer: "/spec/operandNamespace",
            old: Value::Null,
            new: json!("two"),
            refusal: "operandNamespace",
        },
        Update {
            name: "no namespace of the driver any more",
            pointer: "/spec/operandNamespace",
            old: json!("one"),
            new: Value::Null,
            refusal: "operandNamespace",
        },
        Update {
            name: "another number of replicas",
            pointer: "/spec/controller",
            old: json!({}),
            new: json!({ "replicas": 3 }),
            refusal: "",
        },
    ]
}

const CLOUDS: &str = "/spec/clouds";

fn clouds() -> Vec<Case> {
    let cloud = |more: Value| {
        let mut cloud = json!({ "credentialsSecretRef": { "name": "openstack-credentials" } });
        for (key, value) in more.as_object().into_iter().flatten() {
            cloud[key] = value.clone();
        }
        json!([cloud])
    };
    let two = |east: Value, west: Value| {
        let clouds = [("east", east), ("west", west)].map(|(name, region)| {
            let mut cloud = json!({ "name": name, "credentialsSecretRef": { "name": name } });
            if !region.is_null() {
                cloud["nodeRegion"] = region;
            }
            cloud
        });
        json!(clouds)
    };
    vec![
        refused(
            "a CA that is not heeded",
            CLOUDS,
            cloud(json!({ "insecureSkipTLSVerify": true, "caBundleRef": { "name": "ca" } })),
            "give one of them",
        ),
        refused(
            "a zone of which nobody knows where it ends",
            CLOUDS,
            cloud(json!({ "availabilityZoneMap": { "a=b": "c" } })),
            "without =",
        ),
        refused(
            "a zone without a name",
            CLOUDS,
            cloud(json!({ "availabilityZoneMap": { "": "c" } })),
            "must have names",
        ),
        accepted(
            "no verification",
            CLOUDS,
            cloud(json!({ "insecureSkipTLSVerify": true })),
        ),
        accepted(
            "a section of the Go driver",
            CLOUDS,
            cloud(json!({ "section": "Region One/ü = 1" })),
        ),
        refused(
            "a section of two clouds",
            CLOUDS,
            json!(
                ["a", "b"].map(
                    |name| json!({ "name": name, "section": "RegionOne", "credentialsSecretRef": { "name": name } })
                )
            ),
            "the same section",
        ),
        refused(
            "a section with the name of another cloud",
            CLOUDS,
            json!([{ "credentialsSecretRef": { "name": "a" } },
                { "name": "b", "section": "default", "credentialsSecretRef": { "name": "b" } }]),
            "the same section",
        ),
        accepted(
            "sections in place of names",
            CLOUDS,
            json!([{ "name": "a", "section": "b", "credentialsSecretRef": { "name": "a" } },
                { "name": "b", "section": "a", "credentialsSecretRef": { "name": "b" } }]),
        ),
        refused(
            "nodes of two clouds that cannot be told apart",
            CLOUDS,
            two(json!("one"), json!("one")),
            "the same nodeRegion",
        ),
        refused(
            "nodes of one cloud of two that are known",
            CLOUDS,
            two(json!("east"), Value::Null),
            "every cloud or for none",
        ),
        accepted(
            "nodes that tell two clouds apart",
            CLOUDS,
            two(json!("east"), json!("west")),
        ),
        accepted(
            "two clouds whose nodes nobody tells apart",
            CLOUDS,
            two(Value::Null, Value::Null),
        ),
        accepted(
            "all that a cloud may have",
            CLOUDS,
            cloud(json!({
                "caBundleRef": { "name": "ca" },
                "endpointType": "internal",
                "clientCertSecretRef": { "name": "client" },
                "availabilityZoneMap": { "nova zone": "cinder zone" },
            })),
        ),
    ]
}

fn health() -> Vec<Case> {
    vec![accepted(
        "times",
        "/spec/health",
        json!({ "expiryWarning": "30d", "stuck": { "attach": "90s" } }),
    )]
}

fn pods() -> Vec<Case> {
    let (controller, node) = ("/spec/controller", "/spec/node");
    vec![
        refused(
            "a controller without the attacher",
            controller,
            json!({ "sidecars": [{ "name": "csi-attacher", "enabled": false }] }),
            "no volume would reach a node",
        ),
        accepted(
            "a controller without the resizer",
            controller,
            json!({ "sidecars": [{ "name": "csi-resizer", "enabled": false }] }),
        ),
        refused(
            "ports of the sidecars beyond the last one",
            node,
            json!({ "registration": "Sidecar", "httpPort": 65533 }),
            "65532",
        ),
        accepted("the last port", node, json!({ "httpPort": 65534 })),
        accepted(
            "the kubelet's registrar and pods that nobody replaces",
            node,
            json!({ "registration": "Sidecar", "update": { "type": "OnDelete" } }),
        ),
        accepted(
            "a migration",
            "/spec/adoption",
            json!({ "mode": "Migrate", "namespace": "storage" }),
        ),
        refused(
            "a taint of Kubernetes as the startup taint",
            node,
            json!({ "startupTaint": { "enabled": true, "key": "node.kubernetes.io/not-ready" } }),
            "a taint of Kubernetes",
        ),
        accepted(
            "a startup taint of one's own",
            node,
            json!({ "startupTaint": { "enabled": true, "key": "example.org/storage-not-ready" } }),
        ),
    ]
}

fn cluster_objects() -> Vec<Case> {
    let override_of = |kind: &str| json!([{ "target": { "kind": kind, "name": "x" }, "patch": "spec: {}" }]);
    let proxy = "/spec/proxy";
    vec![
        accepted("metrics in plain HTTP", "/spec/monitoring", json!({ "secure": false })),
        refused(
            "a proxy for nothing",
            proxy,
            json!({ "noProxy": ["example.org"] }),
            "httpProxy",
        ),
        refused(
            "a proxy with a password",
            proxy,
            json!({ "httpsProxy": "http://user:secret@proxy.example.org:3128" }),
            "must not hold credentials",
        ),
        refused(
            "authorities of no proxy",
            proxy,
            json!({ "caBundleRef": { "name": "proxy-ca" } }),
            "httpProxy",
        ),
        accepted(
            "a proxy with authorities of its own",
            proxy,
            json!({ "httpsProxy": "https://proxy.example.org:3128", "caBundleRef": { "kind": "Secret", "name": "proxy-ca" } }),
        ),
        accepted(
            "a proxy",
            proxy,
            json!({ "httpsProxy": "http://proxy.example.org:3128", "noProxy": [".example.org", "10.0.0.0/8"] }),
        ),
        refused(
            "a patch of a Secret",
            "/spec/overrides",
            override_of("Secret"),
            "cannot be overridden",
        ),
        refused(
            "a patch of a role",
            "/spec/overrides",
            override_of("ClusterRole"),
            "cannot be overridden",
        ),
        accepted(
            "a patch of the controller",
            "/spec/overrides",
            override_of("Deployment"),
        ),
    ]
}
