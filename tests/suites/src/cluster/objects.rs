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
