// SPDX-License-Identifier: Apache-2.0
//! Adoption of objects from an earlier installation.

use cinder_csi_crds::INSTANCE_LABEL;

use super::*;

#[tokio::test]
async fn orphaned_objects_are_adopted_on_request() {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    for path in [DEPLOYMENT, DAEMON_SET] {
        world.api.change(path, "/metadata/labels", json!({}));
        world.api.change(path, "/metadata/annotations", json!({}));
    }
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.condition(ConditionType::Degraded).0, "True/OwnershipConflict");

    world.api.change(DRIVER, "/spec/adoption", json!({"mode": "Adopt"}));
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.condition(ConditionType::Degraded).0, "False/AsExpected");
    // The operator itself has released it.
    let events = world.api.events();
    assert!(
        !events.iter().any(|event| event.contains("DriftRepaired")),
        "{events:?}"
    );
    for path in [DEPLOYMENT, DAEMON_SET] {
        let labels = world.api.get(path).expect("the object")["metadata"]["labels"].clone();
        assert_eq!(labels[INSTANCE_LABEL], NAME, "{path}");
    }
}

/// Objects of an operator of a different version without the operator's labels, and an object that adopts them.
async fn let_go_of(version: &str, update: Value) -> World {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    let labels = json!({"app.kubernetes.io/version": version});
    for path in [DEPLOYMENT, DAEMON_SET] {
        world.api.change(path, "/metadata/labels", labels.clone());
        world.api.change(path, "/metadata/annotations", json!({}));
    }
    world.api.change(DRIVER, "/spec/adoption", json!({"mode": "Adopt"}));
    world.api.change(DRIVER, "/spec/update", update);
    world.api.take_writes();
    world
}

#[rstest]
#[case::not_approved("0.0.1", json!({"policy": "Manual"}), ConditionType::Progressing, "True/WaitingForApproval")]
#[case::back("99.0.0", json!({}), ConditionType::Degraded, "True/DowngradeRefused")]
#[tokio::test]
async fn adopted_workloads_wait_for_update(
    #[case] version: &str,
    #[case] update: Value,
    #[case] condition: ConditionType,
    #[case] expected: &str,
) {
    let world = let_go_of(version, update).await;
    let before = (world.api.get(DEPLOYMENT), world.api.get(DAEMON_SET));
    world.reconcile().await.expect("reconciled");
    assert_eq!((world.api.get(DEPLOYMENT), world.api.get(DAEMON_SET)), before);
    assert_eq!(world.condition(condition).0, expected);
}

#[tokio::test]
async fn adopted_nodes_follow_controller() {
    let world = let_go_of("0.0.1", json!({})).await;
    world.reconcile().await.expect("reconciled");
    let writes = world.api.take_writes();
    let is_written = |path| writes.contains(&format!("PATCH {path}"));
    assert!(is_written(DEPLOYMENT) && !is_written(DAEMON_SET), "{writes:?}");
}
