// SPDX-License-Identifier: Apache-2.0
//! Reconciles that fail before their end.

use cinder_csi_crds::INSTANCE_LABEL;
use cinder_operator_core::cluster::{COMPONENT_LABEL, NODE_COMPONENT, PodObject, REVISION_LABEL};
use prometheus::{Encoder as _, TextEncoder};

use super::*;

/// A text that no path contains: `hide(NOTHING)` makes all paths readable again.
const NOTHING: &str = "nothing has this in its path";

impl World {
    /// Expects a failure. Returns condition Degraded after it. A second failure has the same message and writes no
    /// status.
    async fn fails(&self) -> (String, String) {
        self.reconcile().await.expect_err("it fails");
        let told = self.condition(ConditionType::Degraded);
        self.api.take_writes();
        self.reconcile().await.expect_err("it fails again");
        let writes = self.api.take_writes();
        assert!(!writes.iter().any(|write| write.ends_with("/status")), "{writes:?}");
        assert_eq!(self.condition(ConditionType::Degraded), told);
        told
    }

    fn status_but_degraded(&self) -> Value {
        let mut status = self.api.get(DRIVER).expect("the driver")["status"].clone();
        let conditions = status["conditions"].as_array_mut().expect("conditions");
        conditions.retain(|condition| condition["type"] != "Degraded");
        status
    }
}

#[tokio::test]
async fn forbidden_list_is_reported_and_status_remains() {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    world.reconcile().await.expect("reconciled");
    let before = world.status_but_degraded();
    world.api.hide("/deployments");
    let (verdict, message) = world.fails().await;
    assert_eq!(verdict, "True/ReconcileFailed");
    for part in [
        "cannot list deployments: Forbidden: Forbidden by the test. ",
        "roles",
        "last observed state",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(
        !message.contains("ErrorResponse") && !message.contains("Status {"),
        "{message}"
    );
    assert_eq!(world.status_but_degraded(), before);
    assert!(world.api.kinds_of_events().contains(&"Warning Degraded".to_owned()));

    world.api.hide(NOTHING);
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.condition(ConditionType::Degraded).0, "False/AsExpected");
}

#[tokio::test]
async fn first_failure_is_reported() {
    let world = World::managed();
    world.api.break_writes_to(Some(&format!("{DRIVER} ")));
    let (verdict, message) = world.fails().await;
    assert_eq!(verdict, "True/ReconcileFailed");
    assert!(message.contains("cannot change the finalizer"), "{message}");
}

#[tokio::test]
async fn deletion_reports_failed_list() {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    world.api.hide("/persistentvolumes");
    world.delete();
    let (verdict, message) = world.fails().await;
    assert_eq!(verdict, "True/ReconcileFailed");
    assert!(message.contains("cannot list persistentvolumes"), "{message}");
    assert_eq!(world.driver().finalizers(), [FINALIZER]);
}

#[tokio::test]
async fn failed_finalizer_removal_is_reported() {
    let world = World::new(mk_spec(), mk_index(&[], false));
    world.reconcile().await.expect("reconciled");
    world.delete();
    world.api.break_writes_to(Some(&format!("{DRIVER} ")));
    // Other conditions follow from Degraded.
    world.reconcile().await.expect_err("it fails");
    let (verdict, message) = world.fails().await;
    assert_eq!(verdict, "True/ReconcileFailed");
    assert!(message.contains("cannot change the finalizer"), "{message}");
    assert_eq!(world.condition(ConditionType::Available).0, "False/Removed");
    world.api.break_writes_to(None);
    world.reconcile().await.expect("reconciled");
    assert!(world.driver().finalizers().is_empty());
}

/// A driver with a node whose pod is of an old revision. `ready` is the status of the pod.
async fn with_old_pod(ready: &str) -> World {
    let pod = json!({
        "metadata": {"name": "node-1", "namespace": "cinder-csi", "uid": "pod-uid", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {(INSTANCE_LABEL): NAME, (COMPONENT_LABEL): NODE_COMPONENT, (REVISION_LABEL): "old"}},
        "spec": {"nodeName": "n1", "containers": []},
        "status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    });
    let mut index = mk_index(&[], true);
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let node =
        json!({"metadata": {"name": "n1", "labels": {"kubernetes.io/os": "linux"}}, "status": {"conditions": ready}});
    index.put(&serde_json::from_value::<cluster::NodeObject>(node).expect("a node"));
    index.put(&serde_json::from_value::<PodObject>(pod.clone()).expect("a pod"));
    let world = World::new(mk_spec(), index);
    world.api.put("/api/v1/namespaces/cinder-csi/pods/node-1", pod);
    world.reconcile().await.expect("reconciled");
    let uid = world.api.get(DAEMON_SET).expect("the DaemonSet")["metadata"]["uid"].clone();
    let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "cinder-csi-node", "uid": uid});
    world.api.put(
        "/apis/apps/v1/namespaces/cinder-csi/controllerrevisions/new",
        json!({"metadata": {"name": "new", "labels": {(INSTANCE_LABEL): NAME, (REVISION_LABEL): "new"}, "ownerReferences": [owner]},
            "revision": 2}),
    );
    world
}

#[tokio::test]
async fn broken_node_is_recorded_before_pod_replacement() {
    let world = with_old_pod("False").await;
    world.api.take_writes();
    let action = world.reconcile().await.expect("reconciled");
    let writes = world.api.take_writes();
    assert_eq!(deletes(&writes), [] as [&str; 0]);
    let status = world.driver().status.expect("a status");
    assert_eq!(status.nodes.expect("nodes").broken_before, ["n1"]);
    assert_eq!(action, Action::requeue(Duration::from_millis(1_100)));
    assert_eq!(world.condition(ConditionType::Degraded).0, "True/NodePodsFailing");

    world.reconcile().await.expect("reconciled");
    assert_eq!(
        deletes(&world.api.take_writes()),
        ["/api/v1/namespaces/cinder-csi/pods/node-1"]
    );
}

#[tokio::test]
async fn failed_pod_replacement_is_reported_with_progress() {
    let world = with_old_pod("True").await;
    world.api.break_writes_to(Some("/pods/"));
    let (verdict, message) = world.fails().await;
    assert_eq!(verdict, "True/ReconcileFailed");
    for part in [
        "cannot replace pod node-1 on node n1",
        "InternalError by the test",
        "webhook",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let (verdict, message) = world.condition(ConditionType::Progressing);
    assert_eq!(verdict, "True/RollingOut");
    assert!(message.contains("node pods: 0 of 1 updated"), "{message}");
}

#[tokio::test]
async fn failed_migration_step_is_reported() {
    let world = super::migration::shown_to_start().await;
    world.api.break_writes_to(Some("/kube-system/deployments/"));
    let (verdict, message) = world.fails().await;
    assert_eq!(verdict, "True/ReconcileFailed");
    assert!(
        message.contains("cannot migrate: ") && message.contains("scaled to 0"),
        "{message}"
    );
    assert_eq!(world.condition(ConditionType::Progressing).0, "True/Migrating");
}

impl World {
    /// Reconciles the object of a watch event, which may be undecodable.
    async fn reconcile_watched(&self) -> Result<Action, ReconcileError> {
        let watched: Watched = serde_json::from_value(self.api.get(DRIVER).expect("the driver")).expect("metadata");
        reconcile(Arc::new(watched), Arc::clone(&self.context)).await
    }

    /// Conditions of an object that may be undecodable, as `Type=Status/Reason`.
    fn words(&self) -> Vec<String> {
        let conditions = self.api.get(DRIVER).expect("the driver")["status"]["conditions"].take();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let word = |one: &Value| {
            format!(
                "{}={}/{}",
                text(&one["type"]),
                text(&one["status"]),
                text(&one["reason"])
            )
        };
        conditions.as_array().into_iter().flatten().map(word).collect()
    }
}

#[tokio::test]
async fn undecodable_driver_is_reported() {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    world.api.change(DRIVER, "/spec/managementState", json!("Frozen"));
    world.api.take_writes();

    world.reconcile_watched().await.expect_err("it cannot be read");
    assert_eq!(world.api.take_writes(), [format!("PATCH {DRIVER}/status")]);
    let words = world.words();
    for word in ["Available=Unknown/NotReconciled", "Degraded=True/Unreadable"] {
        assert!(words.iter().any(|one| one == word), "{word}: {words:?}");
    }
    assert!(
        !words.iter().any(|word| word.starts_with("DeletionBlocked=True")),
        "{words:?}"
    );
    let status = world.api.get(DRIVER).expect("the driver")["status"].take();
    assert!(status["controller"].is_object(), "all else stays: {status}");
    assert!(world.api.kinds_of_events().contains(&"Warning Unreadable".to_owned()));

    world.reconcile_watched().await.expect_err("it still cannot be read");
    assert_eq!(world.api.take_writes(), Vec::<String>::new(), "the status says it");

    world.delete();
    let mut metadata = world.api.get(DRIVER).expect("the driver")["metadata"].take();
    metadata["finalizers"] = json!([FINALIZER]);
    world.api.change(DRIVER, "/metadata", metadata);
    world.reconcile_watched().await.expect_err("it still cannot be read");
    let words = world.words();
    assert!(
        words.iter().any(|word| word == "DeletionBlocked=True/Unreadable"),
        "{words:?}"
    );
    assert_eq!(
        world.api.get(DRIVER).expect("the driver")["status"]["state"],
        "DeletionBlocked"
    );

    world.api.change(DRIVER, "/spec/managementState", json!("Paused"));
    world.reconcile_watched().await.expect("reconciled");
    assert_eq!(world.condition(ConditionType::DeletionBlocked).0, "True/Held");
}

#[tokio::test]
async fn undecodable_status_is_overwritten() {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    let mut status = world.api.get(DRIVER).expect("the driver")["status"].take();
    status["state"] = json!("Frozen");
    world.api.change(DRIVER, "/status", status);
    world.reconcile_watched().await.expect("reconciled");
    assert_eq!(world.condition(ConditionType::Degraded).0, "False/AsExpected");
}

#[tokio::test(start_paused = true)]
async fn reconcile_timeout_is_reported() {
    let world = World::managed();
    world.set_password("unheard");
    let (verdict, message) = world.fails().await;
    assert_eq!(verdict, "True/ReconcileFailed");
    assert!(message.contains("did not finish within 10s"), "{message}");
}

#[tokio::test]
async fn consecutive_failures_are_counted_until_success() {
    let world = World::new(mk_spec(), mk_index(&[], false));
    let registry = world.context.metrics.registry();
    let failures = || {
        let mut text = Vec::new();
        TextEncoder::new()
            .encode(&registry.gather(), &mut text)
            .expect("encoded");
        let text = String::from_utf8(text).expect("text");
        let line = text
            .lines()
            .find(|line| line.starts_with("cinder_csi_operator_reconcile_failures{"));
        line.map(str::to_owned)
    };
    world.api.hide("/deployments");
    for _ in 0..2 {
        let error = world.reconcile().await.expect_err("it fails");
        error_policy(
            Arc::new(GuardedObject(Ok(world.driver()))),
            &error,
            Arc::clone(&world.context),
        );
    }
    let told = |count| {
        Some(format!(
            "cinder_csi_operator_reconcile_failures{{driver=\"{NAME}\"}} {count}"
        ))
    };
    assert_eq!(failures(), told(2));
    world.api.hide(NOTHING);
    world.reconcile().await.expect("reconciled");
    assert_eq!(failures(), told(0));
    world.delete();
    world.reconcile().await.expect("reconciled");
    assert!(world.driver().finalizers().is_empty());
    assert_eq!(failures(), None, "nothing is left of it");
}
