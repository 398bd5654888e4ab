use super::*;
use crate::clouds::{CloudFacts, VolumeTypeFact};
use crate::observe::{OptionalApi, OptionalApis};
use crate::resolve::{Environment, OfType};

fn mk_everything() -> Environment {
    let facts = CloudFacts {
        volume_types: vec![VolumeTypeFact {
            name: "SSD".into(),
            id: "0c7f".into(),
            ..VolumeTypeFact::default()
        }],
        ..CloudFacts::default()
    };
    let mut environment = Environment {
        apis: OptionalApi::ALL.into_iter().collect(),
        clouds: [("default".to_owned(), facts)].into(),
        now: "2026-01-02T00:00:00Z".parse().unwrap(),
        ..mk_environment()
    };
    let gone = OfType {
        volume_type: "tape".into(),
        missing_since: Some("2026-01-01T12:00:00Z".parse().unwrap()),
    };
    environment.classes.of_types = [("cinder-tape".to_owned(), gone)].into();
    environment
}

fn mk_driver_with_classes() -> CinderCSIDriver {
    let mut driver = mk_in_cluster();
    driver.spec.storage_classes = serde_json::from_value(json!({
        "default": { "policy": "Always", "name": "cinder-ssd" },
        "items": [{ "name": "fixed", "allowVolumeExpansion": false, "onImmutableChange": "Refuse" }],
        "fromVolumeTypes": { "enabled": true, "reclaimPolicy": "Retain" },
    }))
    .unwrap();
    driver.spec.snapshots = serde_json::from_value(json!({
        "classes": [
            { "name": "quick", "isDefault": true, "forceCreate": false },
            { "name": "away", "type": "backup", "incremental": true, "availability": "nova", "deletionPolicy": "Retain",
              "backupMaxDurationSecondsPerGB": 60 },
        ],
        "groupClasses": [{ "name": "together", "isDefault": true, "groupType": "consistent" }],
    }))
    .unwrap();
    driver.spec.volume_attributes_classes =
        serde_json::from_value(json!({ "items": [{ "name": "gold", "parameters": { "type": "SSD" } }] })).unwrap();
    driver
}

#[test]
fn classes_become_these_objects() {
    let resolved = resolve(&mk_driver_with_classes(), &mk_everything()).unwrap();

    let mut operands = operands(&resolved, Some(&mk_credentials())).unwrap();
    operands.retain(|operand| operand.kind.kind.ends_with("Class"));

    insta::assert_snapshot!(text(&operands));
}

#[test]
fn nothing_is_made_of_a_kind_that_the_cluster_does_not_know() {
    let environment = Environment {
        apis: OptionalApis::default(),
        ..mk_everything()
    };
    let resolved = resolve(&mk_driver_with_classes(), &environment).unwrap();

    for operand in operands(&resolved, Some(&mk_credentials())).unwrap() {
        assert!(operand.kind.is_served(environment.apis), "{operand}");
    }
}
