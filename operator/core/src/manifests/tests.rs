// SPDX-License-Identifier: Apache-2.0
//! Tests of the rendered objects and their invariants.

use cinder_csi_crds::{CinderCSIDriver, INSTANCE_LABEL, OWNER_UID_ANNOTATION, StorageClassItem, to_yaml};
use cinder_csi_driver::args::Args;
use rstest::rstest;
use serde_json::{Value, json};

use super::{DriverCredentials, Operand, operands};
use crate::cluster::{MANAGED_BY, MANAGED_BY_LABEL};
use crate::releases::Component;
use crate::resolve::{
    Registration, Resolved, resolve,
    tests::{mk_driver, mk_environment},
};

mod access;
mod classes;
mod monitoring;
mod overrides;
mod pods;
mod regions;

/// Creates the default driver as an object in a cluster.
fn mk_in_cluster() -> CinderCSIDriver {
    let mut driver = mk_driver("cinder.csi.openstack.org");
    driver.metadata.uid = Some("6c1e5a52-44a5-4b0e-9d3b-0f4a5a4f9a10".into());
    driver
}

fn mk_resolved(driver: &CinderCSIDriver) -> Resolved {
    resolve(driver, &mk_environment()).unwrap()
}

fn mk_credentials() -> DriverCredentials {
    DriverCredentials::new("[Global]\npassword = hunter2\n".into(), Some("certificates\n".into()))
}

fn mk_operands(driver: &CinderCSIDriver) -> Vec<Operand> {
    operands(&mk_resolved(driver), Some(&mk_credentials())).unwrap()
}

/// Returns the single object of a kind.
fn only<'a>(operands: &'a [Operand], kind: &str) -> &'a Value {
    let found: Vec<_> = operands.iter().filter(|operand| operand.kind.kind == kind).collect();
    assert_eq!(found.len(), 1, "{kind}: {found:?}");
    &found[0].object.data
}

fn pod_spec<'a>(operands: &'a [Operand], kind: &str) -> &'a Value {
    &only(operands, kind)["spec"]["template"]["spec"]
}

fn text(operands: &[Operand]) -> String {
    let documents: Vec<_> = operands
        .iter()
        .map(|operand| to_yaml(&operand.object).unwrap())
        .collect();
    documents.join("---\n")
}

#[test]
fn renders_minimal_spec() {
    insta::assert_snapshot!(text(&mk_operands(&mk_in_cluster())));
}

#[test]
fn renders_complete_spec() {
    let mut driver = mk_in_cluster();
    driver.metadata.name = Some("second.csi.example.org".into());
    let spec: Value = json!({
        "logLevel": "Debug",
        "clusterID": "kubernetes",
        "clouds": [{ "credentialsSecretRef": { "name": "openstack-credentials" } }],
        "images": { "overrides": { "driver": "mirror/driver@sha256:1" }, "pullPolicy": "Never",
                    "pullSecrets": [{ "name": "mirror" }] },
        "topology": { "mode": "Disabled" },
        "controller": {
            "replicas": 1,
            "nodeSelector": { "role": "infra" },
            "tolerations": [{ "key": "infra", "operator": "Exists", "effect": "NoSchedule" }],
            "affinity": { "nodeAffinity": {} },
            "priorityClassName": "high",
            "resources": { "requests": { "cpu": 1 }, "limits": { "memory": "128Mi" } },
            "sidecars": [{ "name": "csi-attacher", "timeout": "90s", "workerThreads": 10,
                           "resources": { "limits": { "memory": "64Mi" } } }],
        },
        "node": {
            "kubeletDir": "/var/lib/k0s/kubelet",
            "httpPort": 9999,
            "nodeSelector": { "storage": "yes" },
            "tolerations": [],
            "affinity": { "nodeAffinity": {} },
            "priorityClassName": "higher",
            "resources": { "limits": { "memory": "64Mi" } },
            "update": { "maxUnavailable": 3 },
        },
        "storageClasses": { "items": [
            { "name": "fast", "isDefault": true, "volumeType": "ssd", "availability": "az1", "fsType": "xfs",
              "reclaimPolicy": "Retain", "volumeBindingMode": "Immediate", "mountOptions": ["noatime"],
              "extraParameters": { "other": "off" },
              "allowedTopologies": [{ "matchLabelExpressions": [
                  { "key": "topology.cinder.csi.openstack.org/zone", "values": ["az1"] }] }] },
        ]},
    });
    driver.spec = serde_json::from_value(spec).unwrap();

    insta::assert_snapshot!(text(&mk_operands(&driver)));
}

#[test]
fn objects_are_ordered_by_dependency() {
    let operands = mk_operands(&mk_in_cluster());

    let stages: Vec<_> = operands.iter().map(|operand| operand.stage).collect();

    assert!(stages.is_sorted(), "{stages:?}");
}

#[test]
fn every_object_has_owner_metadata() {
    for operand in mk_operands(&mk_in_cluster()) {
        let labels = operand.object.metadata.labels.as_ref().unwrap();
        assert_eq!(labels[INSTANCE_LABEL], "cinder.csi.openstack.org", "{operand}");
        assert_eq!(labels[MANAGED_BY_LABEL], MANAGED_BY, "{operand}");
        assert_eq!(operand.namespace().is_some(), operand.kind.namespaced, "{operand}");
    }
}

#[test]
fn no_object_has_an_owner_reference() {
    for operand in mk_operands(&mk_in_cluster()) {
        let metadata = &operand.object.metadata;
        let has_owner = metadata
            .annotations
            .iter()
            .flatten()
            .any(|(key, _)| key == OWNER_UID_ANNOTATION);
        assert_eq!(metadata.owner_references, None, "{operand}");
        assert!(has_owner, "{operand}");
    }
}

#[test]
fn nodes_have_neither_credentials_nor_api_access() {
    let operands = mk_operands(&mk_in_cluster());
    let node = pod_spec(&operands, "DaemonSet");

    assert_eq!(node["automountServiceAccountToken"], false);
    for volume in node["volumes"].as_array().unwrap() {
        assert!(volume["hostPath"].is_object(), "{volume}");
    }
    let words = node.to_string();
    assert!(!words.contains("cloud-config") && !words.contains("secret"), "{words}");
}

#[test]
fn controller_driver_has_no_api_access() {
    let operands = mk_operands(&mk_in_cluster());
    let containers = pod_spec(&operands, "Deployment")["containers"].as_array().unwrap();

    let with = |volume: &str| {
        containers
            .iter()
            .filter(|container| {
                container["volumeMounts"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .any(|m| m["name"] == volume)
            })
            .map(|container| container["name"].as_str().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(with("cloud-config"), ["cinder-csi-driver"]);
    assert_eq!(
        with("kube-api-access"),
        ["csi-provisioner", "csi-attacher", "csi-resizer"]
    );
}

#[test]
fn new_credentials_change_only_the_secret() {
    let resolved = mk_resolved(&mk_in_cluster());
    let before = operands(&resolved, Some(&mk_credentials())).unwrap();
    let after = operands(&resolved, Some(&DriverCredentials::new("[Global]\n".into(), None))).unwrap();

    let changed: Vec<_> = before
        .iter()
        .zip(&after)
        .filter(|(a, b)| a != b)
        .map(|(a, _)| a.kind.kind)
        .collect();

    assert_eq!(changed, ["Secret"]);
}

#[test]
fn secret_is_omitted_without_credentials() {
    let operands = operands(&mk_resolved(&mk_in_cluster()), None).unwrap();

    assert!(
        operands.iter().all(|operand| operand.kind.kind != "Secret"),
        "{operands:?}"
    );
}

#[test]
fn debug_output_omits_secret_content() {
    let operands = mk_operands(&mk_in_cluster());

    let secret = only(&operands, "Secret");
    assert!(secret["data"]["cloud.conf"].is_string());
    assert!(!format!("{operands:?}").contains("data"), "{operands:?}");
}

#[rstest]
#[case("Deployment", true, false)]
#[case("DaemonSet", false, true)]
fn driver_parses_its_rendered_arguments(#[case] kind: &str, #[case] controller: bool, #[case] node: bool) {
    let operands = mk_operands(&mk_in_cluster());
    let argv: Vec<String> = serde_json::from_value(pod_spec(&operands, kind)["containers"][0]["args"].clone()).unwrap();

    let args = Args::from_argv(std::iter::once("cinder-csi-driver".to_owned()).chain(argv)).unwrap();

    assert_eq!(
        (args.provide_controller_service, args.provide_node_service),
        (controller, node)
    );
    assert_eq!(args.register, node);
    assert_eq!(args.cluster.is_empty(), node);
}

#[rstest]
#[case(Registration::Register, "--register=true")]
#[case(Registration::Unregister, "--unregister=true")]
fn pods_end_registration_before_removal(#[case] wanted: Registration, #[case] flag: &str) {
    let mut resolved = mk_resolved(&mk_in_cluster());
    resolved.node.registration = wanted;

    let operands = operands(&resolved, None).unwrap();

    let args = pod_spec(&operands, "DaemonSet")["containers"][0]["args"].to_string();
    assert!(args.contains(flag), "{args}");
    assert_eq!(args.matches("register=").count(), 1, "{args}");
}

#[test]
fn two_drivers_have_no_common_object() {
    let mut second = mk_in_cluster();
    second.metadata.name = Some("second.csi.example.org".into());

    let names: Vec<String> = mk_operands(&mk_in_cluster()).iter().map(ToString::to_string).collect();

    for operand in mk_operands(&second) {
        assert!(!names.contains(&operand.to_string()), "{operand}");
    }
}

#[test]
fn other_classes_omit_the_default_annotation() {
    const MARK: &str = "storageclass.kubernetes.io/is-default-class";
    let mut driver = mk_in_cluster();
    let class = |name: &str, is_default| StorageClassItem {
        is_default,
        ..StorageClassItem::named(name)
    };
    driver.spec.storage_classes.items = Some(vec![class("usual", true), class("other", false)]);

    let mut marks = Vec::new();
    for operand in mk_operands(&driver)
        .iter()
        .filter(|operand| operand.kind.kind == "StorageClass")
    {
        let annotations = operand.object.metadata.annotations.as_ref().unwrap();
        marks.push((operand.name().to_owned(), annotations.get(MARK).cloned()));
    }

    assert_eq!(
        marks,
        [
            ("usual".to_owned(), Some("true".to_owned())),
            ("other".to_owned(), None)
        ]
    );
}

#[test]
fn operator_release_with_same_images_replaces_no_pod() {
    let driver = mk_in_cluster();
    let mut environment = mk_environment();
    let image = (Component::Driver, "mirror/driver@sha256:1".to_owned());
    environment.images = std::iter::once(image).collect();
    let template = |environment: &_| {
        let operands = operands(&resolve(&driver, environment).unwrap(), Some(&mk_credentials())).unwrap();
        ["Deployment", "DaemonSet"].map(|kind| only(&operands, kind)["spec"]["template"].clone())
    };
    let before = template(&environment);

    environment.operator_version = "9.9.9".into();

    assert_eq!(template(&environment), before);
}

#[test]
fn class_has_only_parameters_of_spec() {
    let mut driver = mk_in_cluster();
    let plain = StorageClassItem::named("plain");
    driver.spec.storage_classes.items = Some(vec![plain]);

    let operands = mk_operands(&driver);

    let class = only(&operands, "StorageClass");
    assert_eq!(class["parameters"], json!({ "csi.storage.k8s.io/fstype": "ext4" }));
    assert_eq!(class["provisioner"], "cinder.csi.openstack.org");
    assert_eq!(class["volumeBindingMode"], "WaitForFirstConsumer");
}
