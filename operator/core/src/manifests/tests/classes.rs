// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeSet;

use super::*;
use crate::cluster::{OptionalApi, OptionalApis};
use crate::resolve::Environment;

fn mk_everything() -> Environment {
    Environment {
        apis: OptionalApi::ALL.into_iter().collect(),
        ..mk_environment()
    }
}

fn mk_driver_with_classes() -> CinderCSIDriver {
    let mut driver = mk_in_cluster();
    driver.spec.storage_classes = serde_json::from_value(json!({
        "default": { "policy": "Always", "name": "cinder-ssd" },
        "items": [
            { "name": "cinder-ssd", "volumeType": "SSD", "reclaimPolicy": "Retain" },
            { "name": "fixed", "allowVolumeExpansion": false, "onImmutableChange": "Refuse" },
            { "name": "elsewhere", "secretName": "cloud-west", "fsType": "btrfs",
              "labels": { "example.org/team": "shop" }, "annotations": { "example.org/why": "a second site" } },
        ],
    }))
    .unwrap();
    driver.spec.snapshots = serde_json::from_value(json!({
        "classes": [
            { "name": "quick", "isDefault": true, "forceCreate": false },
            { "name": "away", "type": "backup", "incremental": true, "availability": "nova", "deletionPolicy": "Retain",
              "backupMaxDurationSecondsPerGB": 60, "labels": { "velero.io/csi-volumesnapshot-class": "true" } },
        ],
        "groupClasses": [{ "name": "together", "isDefault": true, "groupType": "consistent",
                           "labels": { "example.org/team": "shop" } }],
    }))
    .unwrap();
    driver.spec.volume_attributes_classes = serde_json::from_value(json!({ "items": [{
            "name": "gold", "parameters": { "type": "SSD" }, "annotations": { "example.org/why": "databases" },
        }] }))
    .unwrap();
    driver
}

#[test]
fn renders_classes() {
    let resolved = resolve(&mk_driver_with_classes(), &mk_everything()).unwrap();

    let mut operands = operands(&resolved, Some(&mk_credentials())).unwrap();
    operands.retain(|operand| operand.kind.kind.ends_with("Class"));

    insta::assert_snapshot!(text(&operands));
}

#[test]
fn unserved_kinds_are_not_rendered() {
    let environment = Environment {
        apis: OptionalApis::default(),
        ..mk_everything()
    };
    let resolved = resolve(&mk_driver_with_classes(), &environment).unwrap();

    for operand in operands(&resolved, Some(&mk_credentials())).unwrap() {
        assert!(operand.kind.is_served(environment.apis), "{operand}");
    }
}

#[test]
fn spec_cannot_override_operator_metadata_of_classes() {
    let resolved = resolve(&mk_driver_with_classes(), &mk_everything()).unwrap();
    let mut own = BTreeSet::new();
    for operand in operands(&resolved, None).unwrap() {
        if operand.kind.kind.ends_with("Class") {
            let metadata = operand.object.metadata;
            own.extend(
                metadata
                    .labels
                    .into_iter()
                    .chain(metadata.annotations)
                    .flatten()
                    .map(|(key, _)| key),
            );
        }
    }
    own.retain(|key| !key.starts_with("example.org/") && !key.starts_with("velero.io/"));
    assert!(own.len() > 8, "{own:?}");

    for (key, map) in own.iter().flat_map(|key| [(key, "labels"), (key, "annotations")]) {
        let mut driver = mk_in_cluster();
        driver.spec.storage_classes =
            serde_json::from_value(json!({"items": [{"name": "a", map: {key: "x"}}]})).unwrap();
        let problems = resolve(&driver, &mk_everything()).unwrap_err();
        assert!(problems[0].message.contains(key), "{problems:?}");
    }
}

#[test]
fn sidecars_can_read_only_secrets_of_classes() {
    let rights = |driver: &CinderCSIDriver| {
        let operands = mk_operands(driver);
        let found = operands
            .into_iter()
            .filter(|operand| operand.name().ends_with("-class-secrets"));
        found
            .map(|operand| (operand.to_string(), operand.object.data))
            .collect::<Vec<_>>()
    };
    assert_eq!(rights(&mk_in_cluster()), []);

    // Volumes of removed classes still need their Secrets.
    let mut driver = mk_in_cluster();
    driver.spec.storage_classes = serde_json::from_value(json!({ "state": "Removed", "items": [
        { "name": "a", "secretName": "west" }, { "name": "b", "secretName": "east" }, { "name": "c", "secretName": "west" },
    ] }))
    .unwrap();
    let [(role, rules), (binding, subjects)] = &rights(&driver)[..] else {
        panic!("a role and its binding are wanted");
    };

    assert_eq!(role, "Role cinder-csi/cinder-csi-class-secrets");
    assert_eq!(binding, "RoleBinding cinder-csi/cinder-csi-class-secrets");
    assert_eq!(
        rules["rules"],
        json!([{ "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["east", "west"], "verbs": ["get"] }])
    );
    assert_eq!(subjects["subjects"][0]["name"], "cinder-csi-controller");
}
