// SPDX-License-Identifier: Apache-2.0
//! Evaluates the CEL rules as the API server does.

use kube::core::cel::Validator;
use serde_json::Value;

use super::cases::{self, Case, Update};
use crate::{CinderCSIDriver, crd};

/// Applies the rules to stored objects, which contain no defaults.
fn validate(object: &Value, old: Option<&Value>) -> Result<(), impl ToString + use<>> {
    let crd = serde_json::to_value(crd()).unwrap();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    for object in [Some(object), old].into_iter().flatten() {
        serde_json::from_value::<CinderCSIDriver>(object.clone()).unwrap();
    }
    Validator::new().validate(schema, object, old)
}

/// Asserts that the errors of the API server match the case.
fn expect(name: &str, complaint: Result<(), impl ToString>, refusal: &str) {
    let complaint = complaint.map_or_else(|errors| errors.to_string(), |()| String::new());
    if refusal.is_empty() {
        assert_eq!(complaint, "", "{name}");
    } else {
        assert!(complaint.contains(refusal), "{name}: {complaint:?}");
    }
}

#[test]
fn minimal_object_is_accepted() {
    expect("the smallest", validate(&cases::smallest(), None), "");
}

#[test]
fn rules_reject_invalid_objects_with_reason() {
    for case in cases::cases() {
        let Case {
            name,
            pointer,
            value,
            refusal,
        } = case;
        expect(name, validate(&cases::with(pointer, value), None), refusal);
    }
}

#[test]
fn rules_reject_changes_of_immutable_fields() {
    for case in cases::updates() {
        let Update {
            name,
            pointer,
            old,
            new,
            refusal,
        } = case;
        let (old, new) = (cases::with(pointer, old), cases::with(pointer, new));
        expect(name, validate(&new, Some(&old)), refusal);
    }
}

#[test]
fn operand_namespace_can_only_match_status() {
    for (recorded, added, refusal) in [
        (Some("one"), "one", ""),
        (Some("one"), "two", "operandNamespace"),
        (None, "one", "operandNamespace"),
    ] {
        let old = recorded.map_or_else(cases::smallest, |recorded| {
            cases::with("/status", serde_json::json!({ "operandNamespace": recorded }))
        });
        let mut new = old.clone();
        new["spec"]["operandNamespace"] = added.into();
        expect(added, validate(&new, Some(&old)), refusal);
        expect(added, validate(&old, Some(&new)), "operandNamespace");
    }
}

#[test]
fn only_driver_with_go_name_can_migrate() {
    for (name, registration, refusal) in [
        ("cinder.csi.openstack.org", "Integrated", ""),
        (
            "other.csi.openstack.org",
            "Integrated",
            "for the object with the name of the Go driver",
        ),
        (
            "cinder.csi.openstack.org",
            "Sidecar",
            "needs node.registration Integrated",
        ),
    ] {
        let mut object = cases::with("/metadata/name", name.into());
        object["spec"]["adoption"] = serde_json::json!({ "mode": "Migrate" });
        object["spec"]["node"] = serde_json::json!({ "registration": registration });
        expect(name, validate(&object, None), refusal);
    }
}
