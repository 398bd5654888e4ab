// SPDX-License-Identifier: Apache-2.0
//! Objects of a large cluster, with the sizes of production objects, because the cost of a list depends on them.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use harness::Progress;
use serde_json::{Map, Value, json};
use suites::api::Api;

use super::{DRIVER, NAMESPACE, REVISIONS};

/// Concurrent requests.
const PARALLEL: usize = 32;
/// Number of objects between two lines of progress.
const STEP: u32 = 5_000;
/// Maximum number of images in a node status.
const IMAGES: u32 = 50;
const NAMESPACES: u32 = 20;
const REGISTRATIONS: &str = "/apis/storage.k8s.io/v1/csinodes";
const REVISION: &str = "5d8f7c9b64";
const ZONE: &str = "nova";
const ZONE_LABEL: &str = "topology.cinder.csi.openstack.org/zone";
const TIME: &str = "2026-01-01T00:00:00Z";

/// Size of the cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) nodes: u32,
    pub(crate) volumes: u32,
    /// Number of pods, including one driver pod per node.
    pub(crate) pods: u32,
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, volumes, pods } = self;
        write!(f, "{nodes} nodes, {volumes} PersistentVolumes, {pods} pods")
    }
}

/// Creates all objects.
pub(super) async fn make(api: &Api, scale: Scale) -> Result<()> {
    let Scale { nodes, volumes, pods } = scale;
    let progress = Progress::loud();
    each("namespaces", NAMESPACES, &progress, async |number| {
        let namespace = json!({"metadata": {"name": namespace_of(number)}});
        api.create("/api/v1/namespaces", &namespace).await.map(drop)
    })
    .await?;
    each("nodes with their CSINodes", nodes, &progress, async |number| {
        make_node(api, number).await
    })
    .await?;
    each("PersistentVolumes", volumes, &progress, async |number| {
        let volume = volume(number);
        api.create("/api/v1/persistentvolumes", &volume).await.map(drop)
    })
    .await?;
    each("the driver's pods", nodes, &progress, async |number| {
        let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
        let name = format!("cinder-csi-node-{number}");
        api.create(&pods, &node_pod(&name, number)).await?;
        let status = json!({"status": {"phase": "Running", "conditions": [condition("Ready", "True")]}});
        api.merge(&format!("{pods}/{name}/status"), &status).await.map(drop)
    })
    .await?;
    each("other pods", pods.saturating_sub(nodes), &progress, async |number| {
        let pods = format!("/api/v1/namespaces/{}/pods", namespace_of(number));
        let labels = json!({"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": format!("web-{number}")});
        let pod = pod(&format!("web-{number}"), &node_name(number % nodes), &labels);
        api.create(&pods, &pod).await.map(drop)
    })
    .await
}

/// Creates a node and its CSINode.
pub(super) async fn make_node(api: &Api, number: u32) -> Result<()> {
    api.create("/api/v1/nodes", &node(number)).await?;
    // New nodes have a not-ready taint until the node lifecycle controller removes it.
    let path = format!("/api/v1/nodes/{}", node_name(number));
    api.merge(&path, &json!({"spec": {"taints": null}})).await?;
    let registration = registration(number);
    api.create(REGISTRATIONS, &registration).await.map(drop)
}

/// Deletes a node and its CSINode.
pub(super) async fn remove_node(api: &Api, number: u32) -> Result<()> {
    api.delete(&format!("{REGISTRATIONS}/{}", node_name(number))).await?;
    api.delete(&format!("/api/v1/nodes/{}", node_name(number))).await
}

/// Calls `make` with each number, with bounded concurrency.
async fn each(what: &str, count: u32, progress: &Progress, make: impl AsyncFn(u32) -> Result<()>) -> Result<()> {
    let (done, make) = (AtomicU32::new(0), &make);
    stream::iter(0..count)
        .map(async |number| {
            make(number).await?;
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if done == count || done.is_multiple_of(STEP) {
                progress.say(format!("{what}: {done} of {count}"));
            }
            Ok(())
        })
        .buffer_unordered(PARALLEL)
        .try_collect()
        .await
}

pub(super) fn namespace_of(number: u32) -> String {
    format!("team-{}", number % NAMESPACES)
}

pub(super) fn node_name(number: u32) -> String {
    format!("worker-{number}.cluster.example.org")
}

pub(super) fn uid(number: u32) -> String {
    format!("11111111-2222-4333-8444-{number:012}")
}

fn condition(kind: &str, status: &str) -> Value {
    json!({"type": kind, "status": status, "reason": format!("Kubelet{kind}"), "lastHeartbeatTime": TIME,
        "lastTransitionTime": TIME, "message": "the kubelet has looked at this and found it to be as it tells here"})
}

fn node(number: u32) -> Value {
    let name = node_name(number);
    let digest = |image: u32| format!("{:064x}", u64::from(number % 7) * 1_000 + u64::from(image));
    let images: Vec<Value> = (0..IMAGES)
        .map(|image| {
            let repository = format!("registry.example.org/platform/component-{image}");
            json!({"names": [format!("{repository}@sha256:{}", digest(image)), format!("{repository}:v1.{image}.0")],
                "sizeBytes": 50_000_000 + image})
        })
        .collect();
    let resources = json!({"cpu": "16", "memory": "65806692Ki", "pods": "110", "ephemeral-storage": "101430960Ki"});
    json!({
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name,
                "topology.kubernetes.io/zone": ZONE, "topology.kubernetes.io/region": "RegionOne", (ZONE_LABEL): ZONE,
                "node.kubernetes.io/instance-type": "m1.xlarge", "node-role.kubernetes.io/worker": ""},
            "annotations": {"csi.volume.kubernetes.io/nodeid": json!({DRIVER: uid(number)}).to_string(),
                "node.alpha.kubernetes.io/ttl": "0"},
        },
        "spec": {"podCIDR": format!("10.{}.{}.0/24", 64 + number / 256 % 128, number % 256),
            "providerID": format!("openstack:///{}", uid(number))},
        "status": {
            "capacity": resources, "allocatable": resources,
            "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}, {"type": "Hostname", "address": name}],
            "conditions": [condition("MemoryPressure", "False"), condition("DiskPressure", "False"),
                condition("PIDPressure", "False"), condition("Ready", "True")],
            "images": images,
            "nodeInfo": {"machineID": uid(number), "systemUUID": uid(number), "bootID": uid(number),
                "kernelVersion": "6.12.0", "osImage": "Debian GNU/Linux 13", "containerRuntimeVersion": "containerd://2.2.0",
                "kubeletVersion": "v1.36.0", "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64"},
        },
    })
}

fn registration(number: u32) -> Value {
    let driver =
        json!({"name": DRIVER, "nodeID": uid(number), "topologyKeys": [ZONE_LABEL], "allocatable": {"count": 25}});
    json!({"metadata": {"name": node_name(number)}, "spec": {"drivers": [driver]}})
}

pub(super) fn volume(number: u32) -> Value {
    let (name, namespace) = (format!("pvc-{}", uid(number)), namespace_of(number));
    json!({
        "metadata": {
            "name": name, "finalizers": ["external-provisioner.volume.kubernetes.io/finalizer",
                "kubernetes.io/pv-protection", format!("external-attacher/{}", DRIVER.replace('.', "-"))],
            "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER,
                "volume.kubernetes.io/provisioner-deletion-secret-name": "",
                "volume.kubernetes.io/provisioner-deletion-secret-namespace": ""},
        },
        "spec": {
            "capacity": {"storage": "20Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "cinder", "volumeMode": "Filesystem",
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace,
                "name": format!("data-web-{number}"), "uid": uid(number)},
            "csi": {"driver": DRIVER, "volumeHandle": uid(number), "fsType": "ext4",
                "volumeAttributes": {"storage.kubernetes.io/csiProvisionerIdentity": format!("{}-{DRIVER}", uid(number))}},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": ZONE_LABEL, "operator": "In", "values": [ZONE]}]}]}},
        },
    })
}

/// Returns a pod with two containers of usual size.
fn pod(name: &str, node: &str, labels: &Value) -> Value {
    let container = |name: &str| {
        let variables: Vec<Value> = (0..10)
            .map(|number| json!({"name": format!("SETTING_{number}"), "value": "a value of the usual length"}))
            .collect();
        let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10, "failureThreshold": 3});
        json!({"name": name, "image": format!("registry.example.org/platform/{name}:v1.0.0"), "env": variables,
            "args": ["--listen=:8080", "--log-format=json", "--configuration=/etc/program/configuration.yaml"],
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
            "livenessProbe": probe, "readinessProbe": probe,
            "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "scratch", "mountPath": "/tmp"}]})
    };
    json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "nodeName": node, "automountServiceAccountToken": false,
            "containers": [container("program"), container("helper")],
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": "scratch", "emptyDir": {}}],
            "tolerations": [{"operator": "Exists"}],
        },
    })
}

/// Returns a pod of the driver's DaemonSet.
fn node_pod(name: &str, number: u32) -> Value {
    let mut labels = Map::new();
    for (key, value) in [
        ("csi.openstack.org/instance", DRIVER),
        ("app.kubernetes.io/component", "node"),
        ("controller-revision-hash", REVISION),
    ] {
        labels.insert(key.to_owned(), value.into());
    }
    pod(name, &node_name(number), &Value::Object(labels))
}

/// Returns the API path of [`revision`].
pub(super) fn revision_path() -> String {
    format!("{REVISIONS}/cinder-csi-node-{REVISION}")
}

/// Returns the ControllerRevision of the DaemonSet's pod template.
pub(super) fn revision(daemon_set: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 1, "data": {},
        "metadata": {
            "name": format!("cinder-csi-node-{REVISION}"),
            "labels": {"csi.openstack.org/instance": DRIVER, "controller-revision-hash": REVISION},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "cinder-csi-node",
                "uid": daemon_set["metadata"]["uid"], "controller": true}],
        },
    })
}
