// SPDX-License-Identifier: Apache-2.0
//! Objects of the scenarios: the driver, claims and pods.

use harness::BUSYBOX_IMAGE;
use serde_json::{Value, json};

use super::{CLASS, DRIVER, SECRET, USERS};

/// Returns a driver with one cloud and one class.
pub(super) fn good_driver() -> Value {
    json!({
        "apiVersion": "csi.openstack.org/v1beta1", "kind": "CinderCSIDriver", "metadata": {"name": DRIVER},
        "spec": {
            "managementState": "Managed",
            "clouds": [{"name": "default", "credentialsSecretRef": {"name": SECRET, "key": "clouds.yaml"}, "cloudName": "openstack"}],
            "storageClasses": {"items": [{"name": CLASS}]},
        },
    })
}

/// Returns a claim of the default class.
pub fn claim(name: &str, mode: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": USERS},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS, "volumeMode": mode,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    })
}

/// Returns a claim with a file system and another class.
pub fn claim_of_class(name: &str, class: &str) -> Value {
    let mut claim = claim(name, "Filesystem");
    claim["spec"]["storageClassName"] = json!(class);
    claim
}

/// Returns the data source of a claim that restores a snapshot.
pub fn from_snapshot(name: &str) -> Value {
    json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": name})
}

/// Returns a StorageClass of the driver that binds claims immediately.
pub fn storage_class(name: &str, parameters: &Value) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": DRIVER, "parameters": parameters,
    })
}

/// Returns a pod that runs a script, with the claim of the same name as its volume `data`.
pub fn pod(name: &str, script: &str, node: Option<&str>) -> Value {
    let selector = node.map_or_else(|| json!({}), |node| json!({"kubernetes.io/hostname": node}));
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": USERS},
        "spec": {
            "terminationGracePeriodSeconds": 2, "nodeSelector": selector,
            "containers": [{
                "name": "user", "image": BUSYBOX_IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script],
            }],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}],
        },
    })
}

/// Like [`pod`], with the volume mounted at `/data`.
pub(super) fn mounted_pod(name: &str, script: &str, node: Option<&str>) -> Value {
    let mut pod = pod(name, script, node);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    pod
}
