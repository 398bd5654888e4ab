// SPDX-License-Identifier: Apache-2.0
//! What `diff` reports about a cluster, and what a reconcile does there.

use cinder_csi_crds::ChangeAction;

use super::*;
use crate::commands::plugin::diff;

async fn report(world: &World) -> diff::DiffReport {
    let images = InstalledImages::default();
    let report = diff::report(&world.api.client, world.driver(), "cinder-csi", images);
    Box::pin(report).await.expect("a report")
}

async fn deleted(world: &World) -> Vec<String> {
    let changes = report(world).await.changes.into_iter();
    changes
        .filter(|change| change.action == ChangeAction::Delete)
        .map(|change| change.resource)
        .collect()
}

#[tokio::test]
async fn nothing_differs_after_a_reconcile() {
    let world = World::managed();
    assert!(report(&world).await.differs());
    world.reconcile().await.expect("reconciled");
    let report = report(&world).await;
    assert!(!report.differs(), "{report}");
}

#[tokio::test]
async fn classes_that_are_left_to_others_stay_and_others_go() {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    world.api.change(DRIVER, "/spec/storageClasses", json!({"items": []}));
    assert_eq!(deleted(&world).await, ["StorageClass cinder"]);
    let left = json!({"items": [], "state": "Unmanaged"});
    world.api.change(DRIVER, "/spec/storageClasses", left);
    assert_eq!(deleted(&world).await, [""; 0]);
}

#[tokio::test]
async fn what_was_let_go_of_is_in_the_way_until_it_is_to_be_taken_up() {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    world.api.change(DAEMON_SET, "/metadata/labels", json!({}));
    world.api.change(DAEMON_SET, "/metadata/annotations", json!({}));
    let action = async || report(&world).await.changes.first().map(|change| change.action);
    assert_eq!(action().await, Some(ChangeAction::Blocked));
    world.api.change(DRIVER, "/spec/adoption", json!({"mode": "Adopt"}));
    assert_ne!(action().await, Some(ChangeAction::Blocked));
    assert!(action().await.is_some(), "the marks are put back");
}
