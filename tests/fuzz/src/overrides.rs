// SPDX-License-Identifier: Apache-2.0
//! Patches in `spec.overrides`. Checks that each patch changes its object within the limits or is refused, and that no
//! other object changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use cinder_csi_crds::{CinderCSIDriver, CinderCSIDriverSpec, Cloud, Override, OverrideTarget, OverrideType};
use cinder_operator_core::cluster::{KubernetesVersion, OptionalApis, SnapshotContents};
use cinder_operator_core::manifests::{Operand, render};
use cinder_operator_core::releases::InstalledImages;
use cinder_operator_core::resolve::{ControllerSight, Environment, Resolved, resolve_parts};
use cinder_operator_core::restrictions::Restrictions;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{Target, texts};

const REGISTRIES: [&str; 2] = ["ghcr.io/cinder-csi", "registry.k8s.io/sig-storage"];

pub(crate) const TARGET: Target = Target {
    name: "overrides",
    seeds: || {
        texts(&[
            "spec:\n  template:\n    metadata:\n      labels: {a: b}\n    spec:\n      nodeSelector:\n        disk: ssd\n      tolerations: []\n",
            "[{op: add, path: /spec/template/spec/containers/-, value: {name: x, image: ghcr.io/cinder-csi/x}}, {op: replace, path: /spec/replicas, value: 3}]",
            "[{\"op\": \"test\", \"path\": \"/kind\", \"value\": \"DaemonSet\"}, {\"op\": \"move\", \"from\": \"/spec/template/spec/volumes/0\", \"path\": \"/spec/template/spec/volumes/-\"}, {\"op\": \"copy\", \"from\": \"/metadata\", \"path\": \"/spec/template/metadata\"}]",
            "metadata: {name: other, labels: null, annotations: {a: b}, ownerReferences: []}\nspec: {template: {spec: {volumes: [{name: v, image: {reference: evil.example.org/x}}]}}}\n",
        ])
    },
    words: &[
        "spec:",
        "metadata:",
        "template:",
        "containers:",
        "initContainers:",
        "ephemeralContainers:",
        "volumes:",
        "image: ",
        "reference: ",
        "evil.example.org/x",
        "name: ",
        "null",
        "{",
        "}",
        "[",
        "]",
        "{op: ",
        "add",
        "remove",
        "replace",
        "move",
        "copy",
        "path: /spec",
        "from: /",
        "/-",
        "/0",
        "~1",
        "~0",
        "&x ",
        "*x",
        "<<: ",
        "18446744073709551616",
        "ü",
    ],
    eat,
};

/// The driver's objects without a patch.
struct Plain {
    resolved: Resolved,
    operands: Vec<Operand>,
}

static PLAIN: LazyLock<Plain> = LazyLock::new(|| {
    let (resolved, _) = resolve_parts(&driver(), &environment());
    let operands = render(&resolved, None).map(|(operands, _)| operands);
    Plain {
        operands: operands.unwrap_or_else(|error| panic!("no objects: {error}")),
        resolved,
    }
});

fn driver() -> CinderCSIDriver {
    let clouds = vec![Cloud::from_secret("openstack-credentials")];
    CinderCSIDriver::new("cinder.csi.openstack.org", CinderCSIDriverSpec::new(clouds))
}

fn environment() -> Environment {
    Environment {
        namespace: "cinder-csi".to_owned(),
        operator_version: "0.1.0".to_owned(),
        kubernetes_version: Some(KubernetesVersion { major: 1, minor: 36 }),
        cluster_uid: Some("0ca5a8c2-7a55-4a1c-8b3c-5b1f0f2d1e11".to_owned()),
        nodes: 3,
        apis: OptionalApis::default(),
        clouds: BTreeMap::new(),
        images: InstalledImages::default(),
        restrictions: Restrictions {
            registries: REGISTRIES.map(str::to_owned).to_vec(),
            ..Restrictions::default()
        },
        other_drivers: Vec::new(),
        default_classes: Vec::new(),
        snapshot_controller: ControllerSight::default(),
        snapshot_contents: SnapshotContents::default(),
        silent_clouds: BTreeSet::new(),
        zoned_volumes: 0,
        records: BTreeMap::new(),
        definition_mismatch: None,
        now: Timestamp::UNIX_EPOCH,
    }
}

fn eat(bytes: &[u8]) {
    let Ok(patch) = std::str::from_utf8(bytes) else { return };
    let patches = [
        ("Deployment", "cinder-csi-controller", OverrideType::Merge),
        ("DaemonSet", "cinder-csi-node", OverrideType::Json),
    ];
    let overrides = patches.map(|(kind, name, how)| Override {
        target: OverrideTarget {
            kind: kind.to_owned(),
            name: name.to_owned(),
        },
        kind: how,
        patch: patch.to_owned(),
    });
    let resolved = Resolved {
        overrides: overrides.to_vec(),
        ..PLAIN.resolved.clone()
    };
    let (operands, overridden) = render(&resolved, None).unwrap_or_else(|error| panic!("no objects: {error}"));
    assert_eq!(
        overridden.changed.len() + overridden.failed.len(),
        patches.len(),
        "{overridden:?}"
    );
    assert_eq!(overridden.held.len(), overridden.failed.len(), "{overridden:?}");
    assert_eq!(operands.len(), PLAIN.operands.len());
    for (operand, plain) in operands.iter().zip(&PLAIN.operands) {
        let target = format!("{} {}", plain.kind.kind, plain.name());
        if overridden.changed.contains(&target) {
            check(operand, plain);
        } else {
            assert!(operand == plain, "{target} has changed without a patch");
        }
    }
}

/// Checks the fields that no patch may change, and the registries of images.
fn check(operand: &Operand, plain: &Operand) {
    let [changed, before] = [operand, plain].map(|operand| json!(operand.object));
    for path in [
        "/apiVersion",
        "/kind",
        "/metadata/name",
        "/metadata/namespace",
        "/metadata/ownerReferences",
        "/spec/selector",
    ] {
        assert_eq!(changed.pointer(path), before.pointer(path), "{path}");
    }
    let account = "/spec/template/spec/serviceAccountName";
    assert_eq!(changed.pointer(account), before.pointer(account));
    let mut images = Vec::new();
    collect_images(
        changed.pointer("/spec/template/spec").unwrap_or(&Value::Null),
        &mut images,
    );
    for image in images {
        let is_allowed = REGISTRIES
            .iter()
            .any(|registry| image.starts_with(&format!("{registry}/")));
        assert!(is_allowed, "the image {image}");
    }
}

/// Collects every image of a pod: of its containers, and of its volumes.
fn collect_images<'a>(pod: &'a Value, images: &mut Vec<&'a str>) {
    for list in ["containers", "initContainers", "ephemeralContainers", "volumes"] {
        for item in pod[list].as_array().into_iter().flatten() {
            images.extend(
                [&item["image"], &item["image"]["reference"]]
                    .into_iter()
                    .filter_map(Value::as_str),
            );
        }
    }
}
