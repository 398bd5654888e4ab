// SPDX-License-Identifier: Apache-2.0
//! Removal of a driver: the objects that block it, its order, and the objects that remain.

use cinder_csi_crds::{DeletionPolicy, INSTANCE_LABEL};
use cinder_operator_core::{
    cluster::{COMPONENT_LABEL, NODE_COMPONENT},
    removal::{UNREGISTERING_SINCE, UPDATES_STOPPED_SINCE},
};

use super::*;

#[tokio::test]
async fn deletion_waits_for_volume_and_names_it() {
    let world = World::managed();
    world.api.put(
        "/api/v1/persistentvolumes/pv-with-data",
        json!({"metadata": {"name": "pv-with-data"}, "spec": {"csi": {"driver": NAME}}}),
    );
    world.reconcile().await.expect("reconciled");
    world.delete();
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    world.reconcile().await.expect("reconciled");
    assert_eq!(deletes(&world.api.take_writes()), Vec::<&str>::new());
    let (verdict, message) = world.condition(ConditionType::Progressing);
    assert_eq!(verdict, "True/DeletionBlocked");
    assert!(message.contains("pv-with-data"), "{message}");
    assert_eq!(world.driver().finalizers(), [FINALIZER]);
    let events = world.api.events();
    assert_eq!(
        events.iter().filter(|event| event.contains("DeletionBlocked")).count(),
        1,
        "{events:?}"
    );
}

#[tokio::test]
async fn known_blockers_of_deletion_cause_no_lists() {
    let world = World::new(mk_spec(), mk_index(&["pv1"], false));
    world.api.put(
        "/api/v1/persistentvolumes/pv1",
        json!({"metadata": {"name": "pv1"}, "spec": {"csi": {"driver": NAME}}}),
    );
    world.reconcile().await.expect("reconciled");
    world.delete();
    world.api.take_reads();
    world.reconcile().await.expect("reconciled");
    let (verdict, message) = world.condition(ConditionType::DeletionBlocked);
    assert!(
        verdict == "True/VolumesInUse" && message.contains("pv1"),
        "{verdict}: {message}"
    );
    let reads = world.api.take_reads();
    let kinds = [
        "/persistentvolumes",
        "/persistentvolumeclaims",
        "/volumeattachments",
        "contents",
    ];
    let scans = reads
        .iter()
        .filter(|path| kinds.iter().any(|kind| path.ends_with(kind)));
    assert_eq!(scans.collect::<Vec<_>>(), Vec::<&String>::new());
}

#[tokio::test]
async fn new_volume_during_removal_retains_node_pods() {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    world.delete();
    world.reconcile().await.expect("the controller goes");
    // The watches have not reported it yet.
    world.api.put(
        "/api/v1/persistentvolumes/late",
        json!({"metadata": {"name": "late"}, "spec": {"csi": {"driver": NAME}}}),
    );
    world.since_long(DAEMON_SET, UNREGISTERING_SINCE);
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(DAEMON_SET).is_some() && world.api.get(DEPLOYMENT).is_some());
    assert_eq!(world.condition(ConditionType::DeletionBlocked).0, "True/VolumesInUse");
}

#[rstest]
#[case::a_snapshot(
    "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents/s1",
    json!({"metadata": {"name": "s1"}, "spec": {"driver": NAME}})
)]
#[case::a_group_snapshot(
    "/apis/groupsnapshot.storage.k8s.io/v1/volumegroupsnapshotcontents/g1",
    json!({"metadata": {"name": "g1"}, "spec": {"driver": NAME}})
)]
#[case::a_volume_that_is_being_made(
    "/api/v1/persistentvolumeclaims/c1",
    json!({"metadata": {"name": "c1", "namespace": "ns", "annotations": {"volume.kubernetes.io/storage-provisioner": NAME}},
        "status": {"phase": "Pending"}})
)]
#[case::a_volume_of_the_plugin_that_was_before(
    "/api/v1/persistentvolumes/old",
    json!({"metadata": {"name": "old"}, "spec": {"cinder": {"volumeID": "v"}}})
)]
#[tokio::test]
async fn deletion_waits_for_every_kind_of_user(#[case] path: &str, #[case] object: Value) {
    // Discovery has reported no optional API.
    let world = World::new(mk_spec(), mk_index(&[], false));
    world.reconcile().await.expect("reconciled");
    let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
    world.api.put(path, object);
    world.delete();
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    assert_eq!(deletes(&world.api.take_writes()), Vec::<&str>::new());
    let (verdict, message) = world.condition(ConditionType::DeletionBlocked);
    assert!(
        verdict.starts_with("True/") && message.contains(&name),
        "{verdict} {message}"
    );
    world.api.remove(path);
    world.reconcile().await.expect("reconciled");
    assert!(world.driver().finalizers().is_empty(), "nothing is in the way any more");
}

#[tokio::test]
async fn unused_driver_is_deleted_in_order() {
    let world = World::new(mk_spec(), mk_index(&[], false));
    world.reconcile().await.expect("reconciled");
    world.delete();
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    let writes = world.api.take_writes();
    let at = |path: &str| {
        deletes(&writes)
            .iter()
            .position(|deleted| *deleted == path)
            .expect(path)
    };
    assert!(at(CLASS) < at(DEPLOYMENT) && at(DEPLOYMENT) < at(DAEMON_SET) && at(DAEMON_SET) < at(OWN_SECRET));
    assert_eq!(deletes(&writes).last(), Some(&CSI_DRIVER));
    assert_eq!(
        writes.last(),
        Some(&format!("PATCH {DRIVER}")),
        "the finalizer goes last"
    );
    assert!(world.driver().finalizers().is_empty());
    assert!(world.api.get(SOURCE).is_some(), "what the administrator made stays");
}

#[rstest]
#[case::out_of_a_backup("Refuse", |object: &mut Value| {
    object["metadata"]["creationTimestamp"] = json!("2026-01-02T00:00:00Z");
    object["metadata"]["managedFields"][0]["time"] = json!("2026-01-01T00:00:00Z");
})]
#[case::let_go_of_and_not_taken_up_yet("Adopt", |object: &mut Value| object["metadata"]["labels"] = json!({}))]
#[tokio::test]
async fn removal_finds_unlabelled_objects_by_name(#[case] mode: &str, #[case] change: fn(&mut Value)) {
    let world = World::new(mk_spec(), mk_index(&[], false));
    world.reconcile().await.expect("reconciled");
    world.api.change(DRIVER, "/spec/adoption", json!({"mode": mode}));
    let paths = [DEPLOYMENT, DAEMON_SET, OWN_SECRET];
    for path in paths {
        let mut object = world.api.get(path).expect("the object");
        change(&mut object);
        world.api.put(path, object);
    }
    world.delete();
    world.reconcile().await.expect("reconciled");
    assert_eq!(paths.map(|path| world.api.get(path)), [None, None, None]);
    assert!(world.driver().finalizers().is_empty());
}

#[tokio::test]
async fn failed_removal_is_reported() {
    let world = World::new(mk_spec(), mk_index(&[], false));
    world.reconcile().await.expect("reconciled");
    world.delete();
    world.api.break_writes_to(Some(DEPLOYMENT));
    world.reconcile().await.expect_err("the Deployment cannot be deleted");
    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert_eq!(verdict, "True/ApplyFailed");
    assert!(
        message.contains("Deployment cinder-csi/cinder-csi-controller") && message.contains("by the test"),
        "{message}"
    );
    world.api.break_writes_to(None);
    world.reconcile().await.expect("reconciled");
    assert!(world.driver().finalizers().is_empty(), "the removal goes on");
}

#[tokio::test]
async fn registration_ends_before_node_pods() {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    world.delete();
    world.reconcile().await.expect("reconciled");
    let driver = world.api.get(CSI_DRIVER).expect("the CSIDriver");
    assert!(
        driver["spec"]["nodeAllocatableUpdatePeriodSeconds"].is_null(),
        "{driver}"
    );
    let (_, message) = world.condition(ConditionType::Progressing);
    assert!(message.contains("end their updates"), "{message}");
    world.since_long(CSI_DRIVER, UPDATES_STOPPED_SINCE);
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    let writes = world.api.take_writes();
    assert!(
        writes.contains(&format!("PATCH {DAEMON_SET}")) && !deletes(&writes).contains(&DAEMON_SET),
        "{writes:?}"
    );
    let arguments = world.api.get(DAEMON_SET).expect("the DaemonSet")["spec"]["template"].to_string();
    assert!(
        arguments.contains("--unregister") && !arguments.contains("--register"),
        "{arguments}"
    );
    let (verdict, message) = world.condition(ConditionType::Progressing);
    assert!(
        verdict == "True/Removing" && message.contains("n1"),
        "{verdict}: {message}"
    );
    world.reconcile().await.expect("reconciled");
    assert_eq!(
        deletes(&world.api.take_writes()),
        Vec::<&str>::new(),
        "it waits for the kubelet"
    );
}

#[tokio::test]
async fn removal_completes_with_pods_on_dead_node() {
    let mut index = mk_index(&[], true);
    index.put(&serde_json::from_value::<cluster::NodeObject>(json!({"metadata": {"name": "n1"}})).expect("a node"));
    let pod = json!({"metadata": {"name": "p1", "labels": {(INSTANCE_LABEL): NAME, (COMPONENT_LABEL): NODE_COMPONENT}},
        "spec": {"nodeName": "n1"}});
    index.put(&serde_json::from_value::<cluster::PodObject>(pod).expect("a pod"));
    let world = World::new(mk_spec(), index);
    world.reconcile().await.expect("reconciled");
    world.api.put(
        "/api/v1/namespaces/cinder-csi/pods/c1",
        json!({"metadata": {"name": "c1", "labels": {(INSTANCE_LABEL): NAME, (COMPONENT_LABEL): "controller"}}, "spec": {"nodeName": "n1", "containers": []}}),
    );
    for path in [DEPLOYMENT, DAEMON_SET] {
        world.api.keep_pods_of(path);
    }
    world.delete();
    world.reconcile().await.expect("reconciled");
    world.since_long(CSI_DRIVER, UPDATES_STOPPED_SINCE);
    world.reconcile().await.expect("reconciled");
    world.since_long(DAEMON_SET, UNREGISTERING_SINCE);
    world.reconcile().await.expect("reconciled");
    assert!(
        world.driver().finalizers().is_empty(),
        "{:?}",
        world.condition(ConditionType::Progressing)
    );
    assert!(world.api.get(DAEMON_SET).is_none() && world.api.get(CSI_DRIVER).is_none());
    let events = world.api.events();
    for reason in ["RegistrationLeft", "PodsLeft"] {
        let is_reported = |event: &String| {
            event.contains(reason) && event.contains("its last pods did not end") && event.contains("n1")
        };
        assert!(events.iter().any(is_reported), "{reason}: {events:?}");
    }
}

#[tokio::test]
async fn removed_state_deletes_driver_and_retains_object() {
    let mut spec = mk_spec();
    spec.management_state = ManagementState::Removed;
    let world = World::new(spec, mk_index(&[], false));
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.condition(ConditionType::Available).0, "False/Removed");
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn orphaned_driver_can_be_adopted() {
    let mut spec = mk_spec();
    spec.deletion.policy = DeletionPolicy::Orphan;
    let world = World::new(spec, mk_index(&[], false));
    world.reconcile().await.expect("reconciled");
    world
        .api
        .change(DRIVER, "/spec/managementState", json!(ManagementState::Removed));
    world.reconcile().await.expect("let go");
    assert!(world.api.get(DAEMON_SET).is_some() && world.api.get(CSI_DRIVER).is_some());
    assert_eq!(world.condition(ConditionType::Available).0, "Unknown/Orphaned");
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), Vec::<String>::new());

    world
        .api
        .change(DRIVER, "/spec/managementState", json!(ManagementState::Managed));
    world.reconcile().await.expect("told");
    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert_eq!(verdict, "True/OwnershipConflict");
    assert!(
        message.contains("Set spec.adoption.mode to Adopt") && !message.contains("Migrate"),
        "{message}"
    );

    world.delete();
    world.reconcile().await.expect("let go");
    assert!(world.driver().finalizers().is_empty());
    let events = world.api.events();
    assert!(
        events.iter().any(|event| event.contains("goes on running"))
            && !events.iter().any(|event| event.contains("was removed")),
        "{events:?}"
    );
}
