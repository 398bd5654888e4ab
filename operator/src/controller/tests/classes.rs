//! Classes and zones in whole reconciles.

use cinder_csi_crds::ClassesState;
use k8s_openapi::jiff::Timestamp;

use super::*;

#[tokio::test]
async fn controller_and_nodes_of_a_new_driver_wait_until_its_zones_are_known() {
    let mut spec = mk_spec();
    spec.topology.mode = TopologyMode::Auto;
    let world = World::new(spec, mk_index(&[], true));
    let mut driver = world.api.get(DRIVER).expect("the driver");
    driver["metadata"]["creationTimestamp"] = json!(format!("{:.0}", Timestamp::now()));
    world.api.put(DRIVER, driver.clone());

    let action = world.reconcile().await.expect("reconciled");

    assert!(world.api.get(CSI_DRIVER).is_some() && world.api.get(CLASS).is_some());
    assert!(world.api.get(DEPLOYMENT).is_none() && world.api.get(DAEMON_SET).is_none());
    assert_ne!(action, Action::await_change());

    // Not for ever.
    driver["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.api.put(DRIVER, driver);
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(DEPLOYMENT).is_some() && world.api.get(DAEMON_SET).is_some());
    let topology = world.driver().status.and_then(|status| status.topology);
    assert_eq!(
        topology.map(|topology| topology.reason).as_deref(),
        Some("ZonesUnknown")
    );
}

#[tokio::test]
async fn a_class_that_is_left_to_others_is_made_once() {
    let mut spec = mk_spec();
    spec.storage_classes.state = ClassesState::Unmanaged;
    let world = World::new(spec, mk_index(&[], true));
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(CLASS).is_some());

    // What somebody changes stays, and so does what the spec no longer has.
    world.api.change(CLASS, "/allowVolumeExpansion", json!(false));
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.get(CLASS).expect("the class")["allowVolumeExpansion"], false);

    world.api.remove(CLASS);
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(CLASS).is_none());
    let status = world.driver().status.and_then(|status| status.storage_classes);
    assert_eq!(status.map(|status| status.made), Some(vec!["cinder".to_owned()]));
}

#[tokio::test]
async fn classes_that_are_to_be_removed_go() {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    world.api.change(DRIVER, "/spec/storageClasses/state", json!("Removed"));
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(CLASS).is_none());
    assert!(world.api.get(DEPLOYMENT).is_some());
}
