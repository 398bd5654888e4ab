//! The CEL rules, as the API server runs them.

use rstest::rstest;
use serde_json::{Value, json};

use super::mk_object;
use crate::CinderCSIDriver;

/// The smallest object with `value` at `pointer`.
fn mk_driver(pointer: &str, value: Value) -> CinderCSIDriver {
    let mut object = mk_object();
    set(&mut object, pointer, value);
    serde_json::from_value(object).unwrap()
}

fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut place = object;
    for step in pointer.trim_start_matches('/').split('/') {
        place = match step.parse::<usize>() {
            Ok(index) => &mut place[index],
            Err(_) => &mut place[step],
        };
    }
    *place = value;
}

/// What the API server says, nothing if it accepts.
fn complaint(driver: &CinderCSIDriver) -> String {
    driver
        .validate_cel()
        .map_or_else(|errors| errors.to_string(), |()| String::new())
}

#[test]
fn the_smallest_object_is_accepted() {
    assert_eq!(complaint(&serde_json::from_value(mk_object()).unwrap()), "");
}

#[rstest]
#[case::name("/metadata/name", json!("x".repeat(64)), "at most 63 characters")]
#[case::socket_path("/spec/node", json!({ "kubeletDir": format!("/{}", "x".repeat(70)) }), "at most 80 characters together")]
#[case::relative_directory("/spec/node", json!({ "kubeletDir": "var/lib/kubelet" }), "absolute path")]
#[case::parent_directory("/spec/node", json!({ "kubeletDir": "/var/lib/../kubelet" }), "absolute path")]
#[case::parent_at_the_end("/spec/node", json!({ "kubeletDir": "/var/lib/.." }), "absolute path")]
#[case::same_directory("/spec/node", json!({ "kubeletDir": "/var/./lib" }), "absolute path")]
#[case::slash_at_the_end("/spec/node", json!({ "kubeletDir": "/var/lib/kubelet/" }), "absolute path")]
#[case::root("/spec/node", json!({ "kubeletDir": "/" }), "absolute path")]
#[case::key_without_ending("/spec/clouds/0/credentialsSecretRef/key", json!("credentials"), "must end in")]
#[case::two_defaults(
    "/spec/storageClasses",
    json!({ "items": [{ "name": "a", "isDefault": true }, { "name": "b", "isDefault": true }] }),
    "at most one"
)]
#[case::type_as_parameter(
    "/spec/storageClasses",
    json!({ "items": [{ "name": "a", "extraParameters": { "type": "ssd" } }] }),
    "volumeType"
)]
#[case::secret_as_parameter(
    "/spec/storageClasses",
    json!({ "items": [{ "name": "a", "extraParameters": { "csi.storage.k8s.io/provisioner-secret-name": "s" } }] }),
    "not supported"
)]
fn what_cannot_work_is_refused_with_the_reason(#[case] pointer: &str, #[case] value: Value, #[case] reason: &str) {
    let complaint = complaint(&mk_driver(pointer, value));

    assert!(complaint.contains(reason), "{complaint:?}");
}

#[rstest]
#[case::longest_name("/metadata/name", json!("x".repeat(63)))]
#[case::directory_of_microk8s("/spec/node", json!({ "kubeletDir": "/var/snap/microk8s/common/var/lib/kubelet" }))]
#[case::directory_with_dots("/spec/node", json!({ "kubeletDir": "/opt/k0s-1.36..x/.kubelet" }))]
#[case::cloud_conf("/spec/clouds/0/credentialsSecretRef/key", json!("cloud.conf"))]
#[case::one_default(
    "/spec/storageClasses",
    json!({ "items": [{ "name": "a", "isDefault": true }, { "name": "b" }] })
)]
#[case::no_class("/spec/storageClasses", json!({ "items": [] }))]
fn what_works_is_accepted(#[case] pointer: &str, #[case] value: Value) {
    assert_eq!(complaint(&mk_driver(pointer, value)), "");
}

#[rstest]
#[case::changed(json!("one"), json!("two"))]
#[case::removed(json!("one"), Value::Null)]
#[case::added(Value::Null, json!("two"))]
fn the_cluster_id_stays_what_it_was(#[case] old: Value, #[case] new: Value) {
    let (old, new) = (mk_driver("/spec/clusterID", old), mk_driver("/spec/clusterID", new));

    let complaint = new.validate_cel_update(&old).unwrap_err().to_string();

    assert!(complaint.contains("clusterID"), "{complaint}");
}

#[rstest]
#[case(json!("one"))]
#[case(Value::Null)]
fn other_fields_change_while_the_cluster_id_stays(#[case] id: Value) {
    let old = mk_driver("/spec/clusterID", id);
    let mut new = old.clone();
    new.spec.controller.replicas = Some(3);

    assert!(new.validate_cel_update(&old).is_ok());
}
