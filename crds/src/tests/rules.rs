//! The CEL rules, as the API server runs them.

use serde_json::Value;

use super::cases::{self, Case, Update};
use crate::CinderCSIDriver;

fn mk_driver(object: Value) -> CinderCSIDriver {
    serde_json::from_value(object).unwrap()
}

/// Whether what the API server says is what the case expects.
fn expect(name: &str, complaint: Result<(), impl ToString>, refusal: &str) {
    let complaint = complaint.map_or_else(|errors| errors.to_string(), |()| String::new());
    if refusal.is_empty() {
        assert_eq!(complaint, "", "{name}");
    } else {
        assert!(complaint.contains(refusal), "{name}: {complaint:?}");
    }
}

#[test]
fn the_smallest_object_is_accepted() {
    expect("the smallest", mk_driver(cases::smallest()).validate_cel(), "");
}

#[test]
fn what_cannot_work_is_refused_with_the_reason_and_what_works_is_accepted() {
    for case in cases::cases() {
        let Case {
            name,
            pointer,
            value,
            refusal,
        } = case;
        expect(name, mk_driver(cases::with(pointer, value)).validate_cel(), refusal);
    }
}

#[test]
fn what_is_chosen_for_ever_stays_and_the_rest_may_change() {
    for case in cases::updates() {
        let Update {
            name,
            pointer,
            old,
            new,
            refusal,
        } = case;
        let (old, new) = (
            mk_driver(cases::with(pointer, old)),
            mk_driver(cases::with(pointer, new)),
        );
        expect(name, new.validate_cel_update(&old), refusal);
    }
}

#[test]
fn only_the_object_with_the_go_drivers_name_takes_its_place_and_registers_itself() {
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
        expect(name, mk_driver(object).validate_cel(), refusal);
    }
}
