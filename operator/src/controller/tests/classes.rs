// SPDX-License-Identifier: Apache-2.0
//! Classes and zones in whole reconciles.

use cinder_csi_crds::ClassesState;
use csi_sources::Sources;

use super::*;

#[tokio::test]
async fn new_driver_waits_for_its_zones() {
    let mut spec = mk_spec();
    spec.topology.mode = TopologyMode::Auto;
    let world = World::new(spec, mk_index(&[], true));
    let mut driver = world.api.get(DRIVER).expect("the driver");
    driver["metadata"]["creationTimestamp"] = json!(format!("{:.0}", Sources::system().now()));
    world.api.put(DRIVER, driver.clone());

    let action = world.reconcile().await.expect("reconciled");

    assert!(world.api.get(CSI_DRIVER).is_some() && world.api.get(CLASS).is_some());
    assert!(world.api.get(DEPLOYMENT).is_none() && world.api.get(DAEMON_SET).is_none());
    assert_ne!(action, Action::await_change());

    // The wait is limited.
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
async fn unmanaged_class_is_created_once() {
    let mut spec = mk_spec();
    spec.storage_classes.state = ClassesState::Unmanaged;
    let world = World::new(spec, mk_index(&[], true));
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(CLASS).is_some());

    // Changes of other clients remain, and so do classes that the spec no longer contains.
    world.api.change(CLASS, "/allowVolumeExpansion", json!(false));
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.get(CLASS).expect("the class")["allowVolumeExpansion"], false);

    world.api.remove(CLASS);
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(CLASS).is_none());
    let status = world.driver().status.and_then(|status| status.storage_classes);
    assert_eq!(
        status.map(|status| status.created_once),
        Some(vec!["cinder".to_owned()])
    );
}

#[rstest]
#[case::nothing_fails(9)]
#[case::the_creation(1)]
#[case::the_last_write(2)]
#[tokio::test(start_paused = true)]
async fn recreated_class_retains_metadata_after_any_interruption(#[case] writes: usize) {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    let mut class = world.api.get(CLASS).expect("the class");
    class["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] = json!("false");
    class["metadata"]["labels"]["team"] = json!("storage");
    let ours = class.pointer_mut("/metadata/managedFields/0/fieldsV1/f:metadata/f:annotations");
    let ours = ours.and_then(Value::as_object_mut).expect("what the operator applied");
    ours.remove("f:storageclass.kubernetes.io/is-default-class")
        .expect("the mark");
    world.api.put(CLASS, class);
    world.reconcile().await.expect("reconciled");

    world.api.change(CLASS, "/reclaimPolicy", json!("Retain"));
    world.api.cut_writes_to(CLASS, writes);
    assert_eq!(world.reconcile().await.is_ok(), writes == 9);
    assert_eq!(world.api.get(CLASS).is_none(), writes == 1);
    world.api.cut_writes_to(CLASS, usize::MAX);
    world.reconcile().await.expect("reconciled");

    let class = world.api.get(CLASS).expect("the class");
    let metadata = &class["metadata"];
    assert_eq!(class["reclaimPolicy"], "Delete");
    assert_eq!(
        world.driver().metadata.annotations.unwrap_or_default().len(),
        0,
        "nothing is remembered of it"
    );
    assert_eq!(
        metadata["annotations"]["storageclass.kubernetes.io/is-default-class"],
        "false"
    );
    assert_eq!(metadata["labels"]["team"], "storage");
    assert!(cinder_operator_core::cluster::is_applied(&class), "{metadata}");
    let kept = metadata["managedFields"].as_array().and_then(|all| all.last());
    let theirs = json!({
        "f:annotations": {"f:storageclass.kubernetes.io/is-default-class": {}},
        "f:labels": {"f:team": {}},
    });
    assert_eq!(
        kept.map(|entry| (&entry["operation"], &entry["fieldsV1"]["f:metadata"])),
        Some((&json!("Update"), &theirs))
    );
    world.reconcile().await.expect("reconciled");
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), [""; 0], "at rest nothing is written");
}

#[tokio::test(start_paused = true)]
async fn class_is_retained_if_replacement_is_invalid() {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    let before = world.api.get(CLASS);
    let patch = json!([{"target": {"kind": "StorageClass", "name": "cinder"}, "patch": "reclaimPolicy: Bogus"}]);
    let mut spec = world.api.get(DRIVER).expect("the driver")["spec"].clone();
    spec["overrides"] = patch;
    world.api.change(DRIVER, "/spec", spec);
    let error = world.reconcile().await.expect_err("it is refused");
    assert_eq!(world.api.get(CLASS), before);
    let error = error.to_string();
    assert!(
        error.contains("StorageClass cinder") && error.contains("left as it is") && error.contains("Invalid"),
        "{error}"
    );
    assert_eq!(world.condition(ConditionType::Degraded).0, "True/ApplyFailed");
}

#[tokio::test(start_paused = true)]
async fn record_of_class_ends_with_its_request() {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    let mut metadata = world.api.get(DRIVER).expect("the driver")["metadata"].clone();
    let kept = json!({"StorageClass of-old": {"labels": {"team": "storage"}}}).to_string();
    metadata["annotations"] = json!({"csi.openstack.org/made-anew": kept});
    world.api.change(DRIVER, "/metadata", metadata);
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.driver().metadata.annotations.unwrap_or_default().len(), 0);
}

#[tokio::test]
async fn classes_are_removed_on_request() {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    world.api.change(DRIVER, "/spec/storageClasses/state", json!("Removed"));
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(CLASS).is_none());
    assert!(world.api.get(DEPLOYMENT).is_some());
}

const SNAPSHOT_GROUP: &str = "/apis/snapshot.storage.k8s.io/v1";
const CONTENT: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents/c1";

/// A driver with a snapshot.
async fn mk_with_snapshot() -> World {
    let apis = cluster::OptionalApis {
        snapshots: true,
        ..cluster::OptionalApis::default()
    };
    let world = World::on(mk_spec(), Cluster::fixed(mk_index(&[], true)).with_apis(apis));
    world.api.put(SNAPSHOT_GROUP, json!({}));
    world.reconcile().await.expect("reconciled");
    world
        .api
        .put(CONTENT, json!({"metadata": {"name": "c1"}, "spec": {"driver": NAME}}));
    tokio::time::advance(world.context.idle_interval).await;
    world.reconcile().await.expect("reconciled");
    assert!(has_snapshotter(&world));
    world
}

fn has_snapshotter(world: &World) -> bool {
    let deployment = world.api.get(DEPLOYMENT).expect("the controller");
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array();
    containers
        .expect("containers")
        .iter()
        .any(|container| container["name"] == "csi-snapshotter")
}

#[rstest]
#[case::disabled_snapshots(true)]
#[case::missing_crds(false)]
#[tokio::test(start_paused = true)]
async fn snapshotter_stays_while_contents_exist(#[case] is_disabled: bool) {
    let mut world = mk_with_snapshot().await;
    if is_disabled {
        let mut spec = world.api.get(DRIVER).expect("the driver")["spec"].clone();
        spec["snapshots"] = json!({"mode": "Disabled"});
        world.api.change(DRIVER, "/spec", spec);
    } else {
        world.restart(mk_index(&[], true));
    }
    for (hidden, expected) in [("nothing", "c1"), ("volumesnapshotcontents", "unknown")] {
        world.api.hide(hidden);
        tokio::time::advance(CONTENTS_PAUSE).await;
        world.reconcile().await.expect("reconciled");
        assert!(has_snapshotter(&world), "{expected}");
        let (verdict, message) = world.condition(ConditionType::Degraded);
        assert_eq!(verdict, "True/SnapshotsInUse", "{message}");
        assert!(message.contains(expected), "{message}");
    }

    world.api.hide("nothing");
    world.api.remove(CONTENT);
    tokio::time::advance(CONTENTS_PAUSE).await;
    world.reconcile().await.expect("reconciled");
    assert!(!has_snapshotter(&world));
    assert_eq!(world.condition(ConditionType::Degraded).0, "False/AsExpected");
    world.reconcile().await.expect("reconciled");
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), Vec::<String>::new());
}

const CONTENTS_PAUSE: std::time::Duration = std::time::Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn contents_of_deleted_crds_are_reported_after_restart() {
    let mut world = mk_with_snapshot().await;
    world.api.remove(CONTENT);
    world.api.remove(SNAPSHOT_GROUP);
    world.restart(mk_index(&[], true));
    // One response does not prove that the kinds do not exist.
    for runs in [true, false, false] {
        world.reconcile().await.expect("reconciled");
        assert_eq!(has_snapshotter(&world), runs);
        let (verdict, message) = world.condition(ConditionType::Degraded);
        assert_eq!(verdict, "True/SnapshotCRDsMissing", "{message}");
        assert!(message.contains("1 or more VolumeSnapshotContents"), "{message}");
        tokio::time::advance(CONTENTS_PAUSE).await;
    }
    world.restart(mk_index(&[], true));
    world.reconcile().await.expect("reconciled");
    assert!(!has_snapshotter(&world));
    assert_eq!(world.condition(ConditionType::Degraded).0, "True/SnapshotCRDsMissing");

    // The definitions exist again, and the list is empty.
    world.api.put(SNAPSHOT_GROUP, json!({}));
    world.restart(mk_index(&[], true));
    world.reconcile().await.expect("reconciled");
    assert!(!has_snapshotter(&world));
    assert_eq!(world.condition(ConditionType::Degraded).0, "False/AsExpected");
}

#[tokio::test(start_paused = true)]
async fn cluster_without_snapshots_has_no_snapshotter() {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    assert!(!has_snapshotter(&world));
    assert_eq!(world.condition(ConditionType::Degraded).0, "False/AsExpected");
}
