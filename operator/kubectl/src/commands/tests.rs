// SPDX-License-Identifier: Apache-2.0
//! Text that tenants, OpenStack and devices write, in all commands. The terminal does not interpret it, and it does not
//! become part of a request.

use std::{convert::Infallible, sync::Arc};

use http::{Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use rstest::rstest;
use serde_json::Value;
use tower::service_fn;

use clap::Parser as _;

use super::*;
use crate::args::PROGRAM;

/// Sets the clipboard, clears the screen, reverses the text direction, and begins a line.
const CONTROLS: &str = "x\u{1b}]52;c;eA==\u{7}\u{1b}[2J\u{9b}H\u{7f}\u{202e}\u{2066}\u{200b}\r\nForged: all is well";
/// A path in place of a name.
const PATH: &str = "n1/../../../../api/v1/secrets?x=";

const CLAIM: &str = "/api/v1/namespaces/n/persistentvolumeclaims/c";
const POD: &str = "/api/v1/namespaces/n/pods/web";
const VOLUME: &str = "/api/v1/persistentvolumes/pv";
const ATTACHMENT: &str = "/apis/storage.k8s.io/v1/volumeattachments/va";
const SNAPSHOT: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/n/volumesnapshots/s";
const CONTENT: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents/content";
const DRIVER: &str = "/apis/csi.openstack.org/v1beta1/cindercsidrivers/d";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/cinder-csi/leases/cinder-csi-operator";
const EVENT: &str = "/api/v1/namespaces/n/events/e";
const OWN_POD: &str = "/api/v1/namespaces/cinder-csi/pods/own";
const OLD: &str = "/apis/apps/v1/namespaces/kube-system/deployments/old";

const COMMANDS: [&[&str]; 9] = [
    &["status"],
    &["status", "-o", "json"],
    &["diagnose", "c", "-n", "n"],
    &["diagnose", "c", "-n", "n", "-o", "json"],
    &["diagnose", "pod/web", "-n", "n"],
    &["diagnose", "pv/pv"],
    &["diagnose", "va/va"],
    &["diagnose", "vs/s", "-n", "n"],
    &["adopt", "--check"],
];

fn mk_driver() -> Value {
    let time = "2026-06-01T10:00:00Z";
    let condition = |type_: &str| json!({"type": type_, "status": "False", "reason": "R", "message": "m", "lastTransitionTime": time});
    let stuck = json!({"kind": "VolumeAttachment", "name": "va", "claim": "n/c", "operation": "Attach", "node": "n1", "volumeID": "id",
        "since": time, "reason": "NodeGone", "hint": "h"});
    json!({"apiVersion": "csi.openstack.org/v1beta1", "kind": "CinderCSIDriver", "metadata": {"name": "d", "generation": 1}, "spec": {"clouds": [{"name": "one", "credentialsSecretRef": {"name": "s"}}],
        "adoption": {"namespace": "kube-system"}},
        "status": {"observedGeneration": 1, "version": "1", "targetVersion": "2", "kubernetesVersion": "1.36", "operandNamespace": "cinder-csi",
        "conditions": [condition("Available"), condition("Other")],
        "nodes": {"desired": 1, "registered": 0, "unregistered": ["n1"]},
        "clouds": [{"name": "one", "authMethod": "password", "authenticated": false}],
        "components": [{"name": "controller", "kind": "Deployment", "version": "1", "desired": 1, "updated": 1, "ready": 1, "image": "i"}],
        "sidecars": [{"name": "csi-attacher", "image": "i", "release": "v1", "versionSkew": "Old"}],
        "rollout": {"component": "node", "state": "Rolling", "toVersion": "2", "updated": 0, "desired": 1, "failed": [{"node": "n1", "reason": "r"}]},
        "deletion": {"blockers": [{"kind": "PersistentVolume", "count": 1, "names": ["pv"]}]},
        "volumes": {"stuckCount": 1, "stuck": [stuck]}}})
}

fn mk_objects() -> Vec<(&'static str, Value)> {
    let time = "2026-06-01T10:05:00Z";
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "cinder-csi-plugin",
        "image": "registry.k8s.io/provider-os/cinder-csi-plugin:v1.36.0", "args": ["--cluster=c", "--odd=y"],
        "env": [{"name": "E", "value": "v"}]}], "volumes": [{"name": "secret", "secret": {"secretName": "s"}}]}});
    vec![
        (DRIVER, mk_driver()),
        (
            CLAIM,
            json!({"metadata": {"namespace": "n", "name": "c", "uid": "u", "annotations": {
            "volume.kubernetes.io/selected-node": "n1", "volume.kubernetes.io/storage-provisioner": "d"}},
            "spec": {"volumeName": "pv", "storageClassName": "fast"}, "status": {"phase": "Bound"}}),
        ),
        (
            VOLUME,
            json!({"metadata": {"name": "pv", "uid": "v"}, "spec": {"claimRef": {"namespace": "n", "name": "c"},
            "csi": {"driver": "d", "volumeHandle": "id"}}}),
        ),
        (
            POD,
            json!({"metadata": {"namespace": "n", "name": "web", "uid": "p"}, "spec": {"containers": [], "nodeName": "n1", "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "scratch", "ephemeral": {}}]}}),
        ),
        (
            ATTACHMENT,
            json!({"metadata": {"name": "va", "uid": "a"}, "spec": {"attacher": "d", "nodeName": "n1", "source":
            {"persistentVolumeName": "pv"}}, "status": {"attached": false, "attachError": {"time": time, "message": "rpc error"}}}),
        ),
        (
            SNAPSHOT,
            json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": {"name": "s", "uid": "s"},
            "spec": {"source": {"persistentVolumeClaimName": "c", "volumeSnapshotContentName": "content"}},
            "status": {"boundVolumeSnapshotContentName": "content", "error": {"time": time, "message": "rpc error"}}}),
        ),
        (
            CONTENT,
            json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent", "metadata": {"name": "content"},
            "spec": {"source": {"volumeHandle": "id"}}, "status": {"error": {"message": "m"}}}),
        ),
        (
            LEASE,
            json!({"metadata": {"name": "cinder-csi-operator"}, "spec": {"holderIdentity": "pod", "leaseDurationSeconds": 60,
            "renewTime": "2020-06-01T10:09:55.000000Z"}}),
        ),
        (
            EVENT,
            json!({"metadata": {"name": "e"}, "type": "Warning", "reason": "FailedMount", "message": "no way",
            "involvedObject": {"kind": "Pod", "name": "web"}, "source": {"component": "c"}, "lastTimestamp": time}),
        ),
        (
            OWN_POD,
            json!({"metadata": {"namespace": "cinder-csi", "name": "own", "uid": "o"}, "spec": {"containers": [{"name": "c"}]}}),
        ),
        (
            OLD,
            json!({"metadata": {"namespace": "kube-system", "name": "old"}, "spec": {"selector": {}, "template": template}}),
        ),
    ]
}

/// A client of an API server with these objects, and the requested paths. Lists contain the objects below their path.
fn mk_client(objects: Vec<(&'static str, Value)>) -> (Client, Arc<Mutex<Vec<String>>>) {
    let paths = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&paths);
    let service = service_fn(move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        seen.lock().push(path.clone());
        let one = objects
            .iter()
            .find(|(known, _)| *known == path)
            .map(|(_, object)| object.clone());
        let parent = |known: &str| known.rsplit_once('/').map(|(parent, _)| parent.to_owned());
        let items: Vec<Value> = objects
            .iter()
            .filter(|(known, _)| parent(known).as_deref() == Some(path.as_str()))
            .map(|(_, object)| object.clone())
            .collect();
        let missing = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404, "reason": "NotFound",
            "message": CONTROLS});
        let (code, body) = match one {
            Some(object) => (200, object),
            None if items.is_empty() => (404, missing),
            None => (200, json!({"metadata": {}, "items": items})),
        };
        let response = Response::builder()
            .status(code)
            .body(Body::from(body.to_string().into_bytes()));
        async move { Ok::<_, Infallible>(response.expect("a response")) }
    });
    (Client::new(service, "n"), paths)
}

async fn output_of(client: &Client, command: &[&str]) -> String {
    let words = [PROGRAM].into_iter().chain(command.iter().copied());
    let mut out = Vec::new();
    match run(client, PluginArgs::parse_from(words), &mut out).await {
        Ok(_) => String::from_utf8(out).expect("text"),
        Err(error) => printable_error(&error),
    }
}

/// The pointers of all texts except names and types.
fn texts(object: &Value) -> Vec<String> {
    const BASIC: [&str; 4] = ["/metadata/name", "/metadata/namespace", "/apiVersion", "/kind"];
    let mut pointers = Vec::new();
    collect_texts(object, "", &mut pointers);
    pointers.retain(|pointer| !BASIC.contains(&pointer.as_str()));
    pointers
}

fn collect_texts(value: &Value, pointer: &str, pointers: &mut Vec<String>) {
    let fields: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Value::Array(items) => (0..).map(|index: usize| index.to_string()).zip(items).collect(),
        Value::String(_) => return pointers.push(pointer.to_owned()),
        _ => return,
    };
    for (name, value) in fields {
        let name = name.replace('~', "~0").replace('/', "~1");
        collect_texts(value, &format!("{pointer}/{name}"), pointers);
    }
}

fn assert_printable(text: &str, place: &str) {
    let is_shown = |character| character == '\n' || csi_sources::is_printable(character);
    assert!(text.chars().all(is_shown), "{place}: {text:?}");
    let is_forged = |line: &str| line.trim_start().starts_with("Forged");
    assert!(!text.lines().any(is_forged), "{place}: {text}");
}

fn assert_plain_paths(paths: &Mutex<Vec<String>>, place: &str) {
    for path in paths.lock().iter() {
        let is_plain = |part: &str| {
            part.chars()
                .all(|one| one.is_ascii_alphanumeric() || matches!(one, '-' | '.'))
                && part != ".."
        };
        assert!(
            path.split('/').all(is_plain) && !path.starts_with("/api/v1/secrets"),
            "{place}: {path}"
        );
    }
}

#[rstest]
#[tokio::test]
async fn no_text_reaches_terminal_or_path(#[values(CONTROLS, PATH)] hostile: &str) {
    let mut count = 0;
    for (path, object) in mk_objects() {
        for pointer in texts(&object) {
            let mut changed = object.clone();
            *changed.pointer_mut(&pointer).expect("a text") = json!(hostile);
            let mut objects = mk_objects();
            objects.retain(|(known, _)| *known != path);
            objects.push((path, changed));
            let (client, paths) = mk_client(objects);
            for command in COMMANDS {
                let place = format!("{command:?}, {path} {pointer}");
                let text = output_of(&client, command).await;
                assert_printable(&text, &place);
                if command.contains(&"json") && !text.contains("cannot be decoded") && text.starts_with(['{', '[']) {
                    serde_json::from_str::<Value>(&text).expect("JSON");
                }
                count += 1;
            }
            assert_plain_paths(&paths, &pointer);
        }
    }
    assert!(count > 500, "{count}");
}

#[tokio::test]
async fn plain_objects_are_shown() {
    let (client, _) = mk_client(mk_objects());
    for (command, part) in [
        (COMMANDS[0], "Conditions"),
        (COMMANDS[2], "what to do: h"),
        (COMMANDS[4], "FailedMount, Pod web: \"no way\""),
        (COMMANDS[5], "PersistentVolume pv"),
        (COMMANDS[6], "attachError"),
        (COMMANDS[7], "VolumeSnapshot n/s"),
        (COMMANDS[8], "findings"),
    ] {
        let text = output_of(&client, command).await;
        assert!(text.contains(part), "{command:?}: {text}");
    }
}

#[tokio::test]
async fn bundle_reports_in_printable_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut objects = mk_objects();
    for (_, object) in &mut objects {
        for pointer in texts(object) {
            *object.pointer_mut(&pointer).expect("a text") = json!(CONTROLS);
        }
    }
    let (client, paths) = mk_client(objects);
    let directory = folder.path().join("bundle");
    let text = output_of(&client, &["support-bundle", "-d", &directory.to_string_lossy()]).await;
    assert_printable(&text, "support-bundle");
    assert_plain_paths(&paths, "support-bundle");
    for entry in std::fs::read_dir(&directory).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            assert_printable(&std::fs::read_to_string(&path).expect("text"), &path.to_string_lossy());
        }
    }
}
