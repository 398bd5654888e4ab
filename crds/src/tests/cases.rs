//! Objects that the API server has to accept or to refuse. The same table is run offline (`rules.rs` beside this file) and
//! against a real API server (`tests/suites/tests/operator`).

use serde_json::{Value, json};

/// A change of the smallest object.
pub struct Case {
    /// What is tried.
    pub name: &'static str,
    /// Where the value is put.
    pub pointer: &'static str,
    /// What is put there.
    pub value: Value,
    /// A part of the sentence that refuses it; empty where it is accepted.
    pub refusal: &'static str,
}

/// A change of an object that exists.
pub struct Update {
    /// What is tried.
    pub name: &'static str,
    /// Which field changes.
    pub pointer: &'static str,
    /// What it was; null where it was not there.
    pub old: Value,
    /// What it becomes; null where it goes.
    pub new: Value,
    /// A part of the sentence that refuses it; empty where it is accepted.
    pub refusal: &'static str,
}

/// The smallest object that works.
pub fn smallest() -> Value {
    json!({
        "apiVersion": "csi.openstack.org/v1alpha1",
        "kind": "CinderCSIDriver",
        "metadata": { "name": "cinder.csi.openstack.org" },
        "spec": { "clouds": [{ "credentialsSecretRef": { "name": "openstack-credentials" } }] },
    })
}

/// The smallest object with `value` at `pointer`; null takes the field away.
pub fn with(pointer: &str, value: Value) -> Value {
    let mut object = smallest();
    set(&mut object, pointer, value);
    object
}

fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut place = object;
    let (parents, last) = pointer
        .trim_start_matches('/')
        .rsplit_once('/')
        .unwrap_or(("", pointer));
    for step in parents.split('/') {
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

/// New objects.
pub fn cases() -> Vec<Case> {
    let mut cases = names_and_paths();
    cases.extend(classes());
    cases.extend(updates_and_removals());
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
            "one default class",
            classes,
            json!({ "items": [{ "name": "a", "isDefault": true }, { "name": "b" }] }),
        ),
        accepted("no class", classes, json!({ "items": [] })),
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
            "a window",
            update,
            json!({ "window": { "schedule": "30 2 * * 6", "duration": "2h30m", "timeZone": "Europe/Berlin" } }),
        ),
    ]
}

/// Changes of objects that exist.
pub fn updates() -> Vec<Update> {
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
            name: "another number of replicas",
            pointer: "/spec/controller",
            old: json!({}),
            new: json!({ "replicas": 3 }),
            refusal: "",
        },
    ]
}
