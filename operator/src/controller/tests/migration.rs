// SPDX-License-Identifier: Apache-2.0
//! Replacement of an existing driver.

use cinder_csi_crds::{AdoptionMode, INSTANCE_LABEL};
use cinder_operator_core::{
    cluster::{COMPONENT_LABEL, NOTE},
    migration::ACCEPT_FINDINGS,
};

use super::*;
use crate::migration::pauses::{MIGRATION_PAUSE, MIGRATION_STALLS_AFTER};

pub(super) const OLD: &str = "/apis/apps/v1/namespaces/kube-system/deployments/csi-cinder-controllerplugin";

/// A driver that replaces a Go driver whose controller the operator has not scaled down.
pub(super) fn beside_another(state: ManagementState, password: &str) -> World {
    let mut spec = mk_spec();
    spec.management_state = state;
    spec.adoption.mode = AdoptionMode::Migrate;
    let world = World::new(spec, mk_index(&[], true));
    world.set_password(password);
    let container = json!({"name": "driver", "image": "registry.k8s.io/provider-os/cinder-csi-plugin:v1.36.0"});
    world.api.put(
        OLD,
        json!({"metadata": {"name": "csi-cinder-controllerplugin", "namespace": "kube-system", "uid": "old"},
            "spec": {"replicas": 1, "selector": {}, "template": {"spec": {"containers": [container]}}}}),
    );
    world.api.put(
        CSI_DRIVER,
        json!({"metadata": {"name": NAME, "uid": "theirs"}, "spec": {"attachRequired": true}}),
    );
    accept_findings(&world, true);
    world
}

/// Sets or removes the annotation with which an administrator accepts the findings of the check.
pub(super) fn accept_findings(world: &World, accepted: bool) {
    let driver = world.api.get(DRIVER).expect("the driver");
    let mut metadata = driver["metadata"].clone();
    let uid = metadata["uid"].clone();
    metadata["annotations"] = if accepted {
        json!({(ACCEPT_FINDINGS): uid})
    } else {
        json!({})
    };
    world.api.change(DRIVER, "/metadata", metadata);
}

#[rstest]
#[case::it_goes_on(ManagementState::Managed, "good", Duration::ZERO, MIGRATION_PAUSE)]
#[case::it_has_stalled(ManagementState::Managed, "good", MIGRATION_STALLS_AFTER, OBSTACLE_PAUSE)]
#[case::nothing_may_be_changed(ManagementState::DryRun, "good", Duration::ZERO, OBSTACLE_PAUSE)]
#[case::credentials_do_not_work(ManagementState::Managed, "wrong", Duration::ZERO, OBSTACLE_PAUSE)]
#[tokio::test(start_paused = true)]
async fn migration_reconciles_every_second_while_in_progress(
    #[case] state: ManagementState,
    #[case] password: &str,
    #[case] later: Duration,
    #[case] pause: Duration,
) {
    let world = beside_another(state, password);
    for _ in 0..2 {
        world.reconcile().await.expect("reconciled");
    }
    tokio::time::advance(later).await;
    let action = world.reconcile().await.expect("reconciled");
    assert_eq!(action, Action::requeue(pause + Duration::from_millis(100)));
}

/// Renews the Lease of the existing provisioner, at this time of its node's clock.
fn renew_theirs(world: &World, holder: &str, renewed: &str) {
    world.api.put(
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cinder-csi-openstack-org",
        json!({"metadata": {"name": "cinder-csi-openstack-org", "namespace": "kube-system"}, "spec": {"holderIdentity": holder,
            "leaseDurationSeconds": 137, "renewTime": renewed}}),
    );
}

/// The clock of one node is far behind, and the clock of the other is far ahead.
#[rstest]
#[case::slow_clock("2001-01-01T00:00")]
#[case::fast_clock("2101-01-01T00:00")]
#[tokio::test(start_paused = true)]
async fn pod_on_dead_node_does_not_block_controller(#[case] clock: &str) {
    let mut spec = mk_spec();
    spec.adoption.mode = AdoptionMode::Migrate;
    let world = World::new(spec, mk_index(&[], true));
    let container = json!({"name": "driver", "image": "registry.k8s.io/provider-os/cinder-csi-plugin:v1.36.0"});
    world.api.put(
        "/api/v1/namespaces/kube-system/pods/old",
        json!({"metadata": {"name": "old", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "dead", "containers": [container]}}),
    );
    // The kubelet is dead, and the sidecar continues.
    for second in 10..15 {
        renew_theirs(&world, "old", &format!("{clock}:{second}.000000Z"));
        world.reconcile().await.expect("reconciled");
        assert!(world.api.get(DEPLOYMENT).is_none(), "the Lease is renewed");
        tokio::time::advance(Duration::from_secs(100)).await;
    }
    tokio::time::advance(Duration::from_secs(2 * 137 - 101)).await;
    world.reconcile().await.expect("reconciled");
    assert!(
        world.api.get(DEPLOYMENT).is_none(),
        "the Lease was not unchanged for long enough"
    );
    tokio::time::advance(Duration::from_secs(1)).await;
    world.reconcile().await.expect("reconciled");
    assert!(
        world.api.get(DEPLOYMENT).is_some(),
        "{:?}",
        world.condition(ConditionType::Progressing)
    );
}

/// The replicas of the existing controller, and the record on it.
pub(super) fn theirs(world: &World) -> (i64, Value) {
    let old = world.api.get(OLD).expect("the other controller");
    let note = old["metadata"]["annotations"][NOTE].as_str();
    let note = note.map_or(Value::Null, |note| serde_json::from_str(note).expect("a note"));
    (old["spec"]["replicas"].as_i64().expect("a number"), note)
}

/// Sets the record on the existing controller to a stop long ago.
pub(super) fn since_long_stopped(world: &World) {
    let note = json!({"replicas": 1, "stopped": "2026-01-01T00:00:00Z"}).to_string();
    let mut old = world.api.get(OLD).expect("the other controller");
    old["metadata"]["annotations"] = json!({(NOTE): note});
    old["spec"]["replicas"] = json!(0);
    world.api.put(OLD, old);
}

/// A migration where a pod of the new node plugin runs on the node next to the old one.
pub(super) async fn shown_to_start() -> World {
    let world = beside_another(ManagementState::Managed, "good");
    world.reconcile().await.expect("reconciled");
    let labels = json!({(INSTANCE_LABEL): NAME, (COMPONENT_LABEL): "node"});
    world.api.put(
        "/api/v1/namespaces/cinder-csi/pods/ours-n1",
        json!({"metadata": {"name": "ours-n1", "labels": labels}, "spec": {"nodeName": "n1", "containers": []},
            "status": {"containerStatuses": [{"name": "cinder-csi-driver", "image": "", "imageID": "", "ready": false,
                "restartCount": 0, "state": {"running": {}}}]}}),
    );
    world
}

/// A migration where the old controller is stopped, and the new one exists but is not available.
async fn started() -> World {
    let world = shown_to_start().await;
    world.reconcile().await.expect("theirs is stopped");
    world.reconcile().await.expect("ours starts");
    assert!(world.api.get(DEPLOYMENT).is_some());
    world
}

#[tokio::test]
async fn old_controller_runs_until_new_node_pod_runs() {
    let world = beside_another(ManagementState::Managed, "good");
    for _ in 0..3 {
        world.reconcile().await.expect("reconciled");
    }
    assert_eq!(theirs(&world), (1, Value::Null), "no pod of ours runs");
    assert!(world.api.get(DAEMON_SET).is_some() && world.api.get(DEPLOYMENT).is_none());

    let world = shown_to_start().await;
    world.api.break_writes_to(Some("/namespaces/cinder-csi/pods"));
    world.reconcile().await.expect("reconciled");
    assert_eq!(
        theirs(&world),
        (1, Value::Null),
        "a pod of our controller would be refused"
    );
    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert!(
        verdict == "True/MigrationHeldUp" && message.contains("by the test"),
        "{verdict}: {message}"
    );

    world.api.break_writes_to(None);
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    let (replicas, note) = theirs(&world);
    assert_eq!((replicas, &note["replicas"]), (0, &json!(1)));
    let writes = world.api.take_writes();
    assert_eq!(
        writes.iter().filter(|write| write.ends_with(OLD)).count(),
        1,
        "{writes:?}"
    );
    assert!(world.api.get(DEPLOYMENT).is_none(), "theirs ends first");
}

#[tokio::test]
async fn failed_migration_restores_old_controller() {
    let world = started().await;
    since_long_stopped(&world);
    // A failure of other objects does not delay the step.
    world.api.remove(OWN_SECRET);
    world.api.break_writes_to(Some("/secrets/"));
    world.reconcile().await.expect_err("a Secret cannot be written");
    assert!(
        world.api.get(DEPLOYMENT).is_none() && theirs(&world).0 == 0,
        "ours goes first"
    );
    world.reconcile().await.expect_err("a Secret cannot be written");
    let (replicas, note) = theirs(&world);
    assert_eq!((replicas, &note["failedGeneration"]), (1, &json!(1)));
    world.api.break_writes_to(None);
    let events = world.api.kinds_of_events();
    assert!(events.contains(&"Warning MigrationFailed".to_owned()), "{events:?}");

    world.reconcile().await.expect("reconciled");
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    assert_eq!(
        world.api.take_writes(),
        Vec::<String>::new(),
        "it is not tried again at once"
    );
    assert_eq!(world.condition(ConditionType::Progressing).0, "False/Blocked");
    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert!(
        verdict == "True/MigrationFailed" && message.contains("0 of 1 pods"),
        "{verdict}: {message}"
    );

    world.api.change(DRIVER, "/metadata/generation", json!(2));
    world.reconcile().await.expect("reconciled");
    assert_eq!(theirs(&world).0, 0, "the spec has changed: it is tried again");
}

#[tokio::test]
async fn cancelled_migration_restores_old_controller() {
    let world = started().await;
    world.api.change(DRIVER, "/spec/adoption", json!({"mode": "Refuse"}));
    for _ in 0..2 {
        world.reconcile().await.expect("reconciled");
    }
    assert_eq!(theirs(&world), (1, Value::Null));
    assert!(world.api.get(DEPLOYMENT).is_none() && world.api.get(DAEMON_SET).is_none());
    world.reconcile().await.expect("reconciled");
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), Vec::<String>::new());
    let adoption = world.driver().status.expect("a status").adoption;
    assert_eq!(adoption.and_then(|adoption| adoption.step), None);
}

#[rstest]
#[case::without_the_role("/kube-system/", json!({}))]
#[case::paused_with_a_broken_spec("nothing has this in its path", json!({
    "/spec/managementState": "Paused",
    "/spec/topology": {"mode": "Enabled", "additional": {"no key": "x"}},
}))]
#[tokio::test]
async fn stopped_controller_is_restored_after_failures(#[case] hidden: &str, #[case] changes: Value) {
    let world = started().await;
    let whole = world.api.get(DRIVER).expect("the driver")["spec"].clone();
    world.api.hide(hidden);
    for (pointer, value) in changes.as_object().into_iter().flatten() {
        world.api.change(DRIVER, pointer, value.clone());
    }
    world.reconcile().await.expect("reconciled");
    world.api.change(DRIVER, "/spec/adoption", json!({"mode": "Refuse"}));
    for _ in 0..2 {
        world.reconcile().await.expect("reconciled");
    }
    assert_eq!(theirs(&world).0, 0);
    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert!(
        verdict == "True/InvalidSpec" || message.contains("config/rbac/adoption"),
        "{verdict}: {message}"
    );

    world.api.hide("nothing has this in its path");
    world.api.change(DRIVER, "/spec", whole);
    world.api.change(DRIVER, "/spec/adoption", json!({"mode": "Refuse"}));
    for _ in 0..2 {
        world.reconcile().await.expect("reconciled");
    }
    assert_eq!(theirs(&world), (1, Value::Null));
}

#[tokio::test]
async fn failed_migration_names_pod_that_blocked_it() {
    let world = started().await;
    world.api.remove(DEPLOYMENT);
    since_long_stopped(&world);
    let container = json!({"name": "driver", "image": "registry.k8s.io/provider-os/cinder-csi-plugin:v1.36.0"});
    world.api.put(
        "/api/v1/namespaces/kube-system/pods/old",
        json!({"metadata": {"name": "old", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "dead", "containers": [container]}}),
    );
    world.reconcile().await.expect("reconciled");
    let (replicas, note) = theirs(&world);
    let reason = note["reason"].as_str().unwrap_or_default();
    assert!(replicas == 1 && reason.contains("old on node dead"), "{note}");
}

#[tokio::test]
async fn migration_steps_are_not_reported_as_drift() {
    let world = started().await;
    let as_expected = |when: &str| {
        let events = world.api.events();
        assert!(
            !events.iter().any(|event| event.contains("DriftRepaired")),
            "{when}: {events:?}"
        );
    };
    since_long_stopped(&world);
    for when in ["ours goes", "theirs comes back", "theirs goes on"] {
        world.reconcile().await.expect("reconciled");
        as_expected(when);
    }
    world.context.forget(NAME);
    for when in ["after a start of the operator", "later"] {
        world.reconcile().await.expect("reconciled");
        as_expected(when);
    }
    world.api.change(DRIVER, "/metadata/generation", json!(2));
    for when in ["theirs is stopped", "ours comes", "it is there"] {
        world.reconcile().await.expect("reconciled");
        as_expected(when);
    }
    assert!(world.api.get(DEPLOYMENT).is_some());
    let events = world.api.kinds_of_events();
    assert!(!events.iter().any(|event| event.contains("Drift")), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn completed_migration_is_checked_periodically() {
    let mut spec = mk_spec();
    spec.adoption.mode = AdoptionMode::Migrate;
    let world = World::new(spec, mk_index(&[], true));
    let looks = async || {
        world.api.take_reads();
        world.reconcile().await.expect("reconciled");
        let reads = world.api.take_reads();
        reads
            .iter()
            .filter(|path| path.ends_with("/namespaces/kube-system/pods"))
            .count()
    };
    assert_eq!([looks().await, looks().await, looks().await], [1, 0, 0]);
    tokio::time::advance(Duration::from_mins(5)).await;
    assert_eq!([looks().await, looks().await], [1, 0]);
    world.api.change(DRIVER, "/metadata/generation", json!(2));
    assert_eq!([looks().await, looks().await], [1, 0]);
}

fn put_pod(world: &World, name: &str, image: &str, labels: &Value) {
    world.api.put(
        &format!("/api/v1/namespaces/kube-system/pods/{name}"),
        json!({"metadata": {"name": name, "namespace": "kube-system", "uid": name, "labels": labels},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": image}]}}),
    );
}

#[tokio::test(start_paused = true)]
async fn migration_lists_all_pods_once_a_minute() {
    let world = shown_to_start().await;
    let labels = json!({"app": "csi", "pod-template-hash": "5f"});
    put_pod(
        &world,
        "theirs",
        "registry.k8s.io/provider-os/cinder-csi-plugin:v1.36.0",
        &labels,
    );
    put_pod(&world, "agent", "agent", &json!({"app": "agent"}));
    world
        .api
        .change(OLD, "/spec/selector", json!({"matchLabels": {"app": "csi"}}));
    tokio::time::advance(Duration::from_mins(1)).await;
    world.reconcile().await.expect("theirs is stopped");
    let lists = async || {
        world.api.take_lists();
        world.reconcile().await.expect("reconciled");
        let lists = world.api.take_lists();
        let mut of_pods = lists
            .iter()
            .filter(|list| list.contains("/namespaces/kube-system/pods?"));
        (
            of_pods
                .clone()
                .filter(|list| {
                    !list.contains("labelSelector=app%3Dcsi") && !list.contains("fieldSelector=metadata.name%3D")
                })
                .count(),
            of_pods.any(|list| list.contains("labelSelector=app%3Dcsi")),
        )
    };
    for second in 0..3 {
        assert_eq!(lists().await, (0, true), "{second}");
        assert!(world.api.get(DEPLOYMENT).is_none(), "a pod of theirs runs");
        tokio::time::advance(MIGRATION_PAUSE).await;
    }
    tokio::time::advance(Duration::from_mins(1)).await;
    assert_eq!(lists().await, (1, false));

    // A pod that lost its label still runs.
    put_pod(
        &world,
        "theirs",
        "registry.k8s.io/provider-os/cinder-csi-plugin:v1.36.0",
        &json!({}),
    );
    assert_eq!(lists().await, (0, true));
    assert!(world.api.get(DEPLOYMENT).is_none(), "a pod of theirs runs");
    world.api.remove("/api/v1/namespaces/kube-system/pods/theirs");
    world.reconcile().await.expect("reconciled");
    assert!(
        world.api.get(DEPLOYMENT).is_some(),
        "{:?}",
        world.condition(ConditionType::Progressing)
    );
}
