//! Objects that an earlier installation left, and drivers of somebody else whose place is taken.

use cinder_csi_crds::{AdoptionMode, INSTANCE_LABEL};

use super::*;
use crate::controller::adoption::{TAKEOVER_PAUSE, TAKEOVER_STALLS_AFTER};

#[tokio::test]
async fn what_was_let_go_of_is_taken_up_where_the_spec_says_so() {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    for path in [DEPLOYMENT, DAEMON_SET] {
        world.api.change(path, "/metadata/labels", json!({}));
        world.api.change(path, "/metadata/annotations", json!({}));
    }
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.condition(ConditionType::Degraded).0, "True/ForeignObject");

    world.api.change(DRIVER, "/spec/adoption", json!({"mode": "Adopt"}));
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.condition(ConditionType::Degraded).0, "False/AsExpected");
    // The operator itself has released it.
    assert_eq!(world.condition(ConditionType::DriftDetected).0, "False/AsExpected");
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

/// A driver that is to take the place of a Go driver whose controller nothing scales down.
fn beside_another(state: ManagementState, password: &str) -> World {
    let mut spec = mk_spec();
    spec.management_state = state;
    spec.adoption.mode = AdoptionMode::Migrate;
    let world = World::new(spec, mk_index(&[], true));
    world.set_password(password);
    let container = json!({"name": "driver", "image": "registry.k8s.io/provider-os/cinder-csi-plugin:v1.36.0"});
    world.api.put(
        "/apis/apps/v1/namespaces/kube-system/deployments/csi-cinder-controllerplugin",
        json!({"metadata": {"name": "csi-cinder-controllerplugin", "namespace": "kube-system", "uid": "old"},
            "spec": {"replicas": 1, "selector": {}, "template": {"spec": {"containers": [container]}}}}),
    );
    world
}

#[rstest]
#[case::it_goes_on(ManagementState::Managed, "good", Duration::ZERO, TAKEOVER_PAUSE)]
#[case::it_has_stalled(ManagementState::Managed, "good", TAKEOVER_STALLS_AFTER, OBSTACLE_PAUSE)]
#[case::nothing_may_be_changed(ManagementState::DryRun, "good", Duration::ZERO, OBSTACLE_PAUSE)]
#[case::credentials_do_not_work(ManagementState::Managed, "wrong", Duration::ZERO, OBSTACLE_PAUSE)]
#[tokio::test(start_paused = true)]
async fn a_take_over_is_looked_at_every_second_only_while_it_goes_on(
    #[case] state: ManagementState,
    #[case] password: &str,
    #[case] later: Duration,
    #[case] pause: Duration,
) {
    let world = beside_another(state, password);
    world.reconcile().await.expect("reconciled");
    tokio::time::advance(later).await;
    let action = world.reconcile().await.expect("reconciled");
    assert_eq!(action, Action::requeue(pause + Duration::from_millis(100)));
}

/// The objects of an operator of another version that nothing marks as the operator's, and an object that is to take them up.
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
async fn what_is_taken_up_waits_for_its_update_like_all_else(
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
async fn the_nodes_that_are_taken_up_follow_the_controller() {
    let world = let_go_of("0.0.1", json!({})).await;
    world.reconcile().await.expect("reconciled");
    let writes = world.api.take_writes();
    let is_written = |path| writes.contains(&format!("PATCH {path}"));
    assert!(is_written(DEPLOYMENT) && !is_written(DAEMON_SET), "{writes:?}");
}

#[tokio::test]
async fn a_pod_on_a_dead_node_does_not_keep_our_controller_away() {
    let mut spec = mk_spec();
    spec.adoption.mode = AdoptionMode::Migrate;
    let world = World::new(spec, mk_index(&[], true));
    let container = json!({"name": "driver", "image": "registry.k8s.io/provider-os/cinder-csi-plugin:v1.36.0"});
    world.api.put(
        "/api/v1/namespaces/kube-system/pods/old",
        json!({"metadata": {"name": "old", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "dead", "containers": [container]}}),
    );
    world.api.put(
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cinder-csi-openstack-org",
        json!({"metadata": {"name": "cinder-csi-openstack-org"}, "spec": {"holderIdentity": "old",
            "leaseDurationSeconds": 137, "renewTime": "2026-01-01T00:00:00.000000Z"}}),
    );
    world.reconcile().await.expect("reconciled");
    assert!(
        world.api.get(DEPLOYMENT).is_some(),
        "{:?}",
        world.condition(ConditionType::Progressing)
    );
}
