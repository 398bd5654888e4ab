// SPDX-License-Identifier: Apache-2.0
//! Adoption of objects from an earlier installation, and replacement of existing drivers.

use cinder_csi_crds::{AdoptionMode, INSTANCE_LABEL};
use cinder_operator_core::{
    cluster::{COMPONENT_LABEL, NOTE},
    migration::ACCEPT_FINDINGS,
};

use super::*;
use crate::controller::adoption::{
    CHECK_PAUSE, ELSEWHERE_PAUSE, MIGRATION_PAUSE, MIGRATION_STALLS_AFTER, OPEN_CHECK_PAUSE,
};
use crate::controller::memory::ObjectMemory;

const OLD: &str = "/apis/apps/v1/namespaces/kube-system/deployments/csi-cinder-controllerplugin";

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

/// A driver that replaces a Go driver whose controller the operator has not scaled down.
fn beside_another(state: ManagementState, password: &str) -> World {
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
fn accept_findings(world: &World, accepted: bool) {
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
fn theirs(world: &World) -> (i64, Value) {
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

/// A driver next to a Go driver with its own configuration, whose findings are not accepted.
fn beside_a_kept_one() -> World {
    let world = beside_another(ManagementState::Managed, "good");
    accept_findings(&world, false);
    let secret = json!({"name": "conf", "secret": {"secretName": "cloud-config"}});
    let arguments = [
        "/bin/cinder-csi-plugin",
        "--endpoint=$(ENDPOINT)",
        "--cluster=$(CLUSTER)",
        "--cloud-config=/etc/config/cloud.conf",
    ];
    let variables =
        json!([{"name": "ENDPOINT", "value": "unix:///csi/csi.sock"}, {"name": "CLUSTER", "value": "prod"}]);
    let container = json!({"name": "driver", "image": "mirror/cinder-csi-plugin:v1", "args": arguments, "env": variables,
        "volumeMounts": [{"name": "conf", "mountPath": "/etc/config"}]});
    let pod = json!({"containers": [container], "volumes": [secret]});
    world.api.change(OLD, "/spec/template/spec", pod);
    let conf = "[Global]\npassword=topsecret\nca-file=/etc/topsecret\n";
    world.api.put(
        "/api/v1/namespaces/kube-system/secrets/cloud-config",
        json!({"metadata": {"name": "cloud-config"}, "data": {"cloud.conf": k8s_openapi::ByteString(conf.into())}}),
    );
    for (name, modes, volume_mode) in [
        ("shared", json!(["ReadWriteMany"]), "Filesystem"),
        ("raw", json!(["ReadWriteMany"]), "Block"),
        ("single", json!(["ReadWriteOnce"]), "Filesystem"),
    ] {
        let volume = json!({"metadata": {"name": name}, "spec": {"csi": {"driver": NAME, "volumeHandle": name}, "accessModes": modes,
            "volumeMode": volume_mode, "claimRef": {"namespace": "n", "name": name}}});
        let watched: cluster::VolumeObject = serde_json::from_value(volume.clone()).expect("a volume");
        world.context.cluster.change(|index| drop(index.put(&watched)));
        world.api.put(&format!("/api/v1/persistentvolumes/{name}"), volume);
    }
    world
}

/// The message of condition Degraded while findings stop the migration.
fn held_up(world: &World) -> String {
    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert_eq!(verdict, "True/MigrationHeldUp", "{message}");
    assert!(!message.contains("topsecret"), "{message}");
    message
}

#[tokio::test(start_paused = true)]
async fn open_findings_block_migration_until_accepted() {
    let world = beside_a_kept_one();
    world.reconcile().await.expect("reconciled");
    let message = held_up(&world);
    for subject in ["PersistentVolumes with ReadWriteMany", "--cluster", "[Global] ca-file"] {
        assert!(message.contains(subject), "no {subject} in {message}");
    }
    for path in [DEPLOYMENT, DAEMON_SET] {
        assert!(world.api.get(path).is_none(), "{path} exists");
    }
    let looks = async || {
        world.api.take_reads();
        world.reconcile().await.expect("reconciled");
        let reads = world.api.take_reads();
        reads.iter().filter(|path| path.ends_with("/persistentvolumes")).count()
    };
    assert_eq!([looks().await, looks().await], [0, 0]);
    tokio::time::advance(CHECK_PAUSE).await;
    assert_eq!([looks().await, looks().await], [1, 0]);
    let mut spec = world.api.get(DRIVER).expect("the driver")["spec"].clone();
    spec["clusterID"] = json!("prod");
    world.api.change(DRIVER, "/spec", spec);
    world.api.change(DRIVER, "/metadata/generation", json!(2));
    assert_eq!(looks().await, 1);
    assert!(!held_up(&world).contains("--cluster"));
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), Vec::<String>::new());

    accept_findings(&world, true);
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(DAEMON_SET).is_some(), "the migration did not begin");
    assert_eq!(looks().await, 0);
}

#[tokio::test(start_paused = true)]
async fn accepted_migration_waits_for_secret_access() {
    let world = beside_another(ManagementState::Managed, "good");
    let secret = json!({"name": "openstack-config-region-one", "namespace": "kube-system"});
    let volume = json!({"metadata": {"name": "regional"}, "spec": {"csi": {"driver": NAME, "volumeHandle": "6f3a1c52-8f0e-4d7a-9f2b-0c1d2e3f4a5b",
        "controllerPublishSecretRef": secret}, "accessModes": ["ReadWriteOnce"]}});
    let watched: cluster::VolumeObject = serde_json::from_value(volume.clone()).expect("a volume");
    world.context.cluster.change(|index| drop(index.put(&watched)));
    world.api.put("/api/v1/persistentvolumes/regional", volume);
    let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    for answer in [
        Value::Null,
        json!({"allowed": false}),
        json!({"allowed": false, "evaluationError": "a webhook does not answer"}),
    ] {
        world.api.put(reviews, answer.clone());
        tokio::time::advance(OPEN_CHECK_PAUSE).await;
        world.reconcile().await.expect("reconciled");
        let message = held_up(&world);
        assert!(
            message.contains("Acceptance does not include SecretAccess"),
            "{answer}: {message}"
        );
        assert!(world.api.get(DAEMON_SET).is_none(), "{answer}");
    }
    world.api.put(reviews, json!({"allowed": true}));
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(DAEMON_SET).is_none(), "the answer is remembered");
    tokio::time::advance(OPEN_CHECK_PAUSE).await;
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(DAEMON_SET).is_some(), "the migration did not begin");
}

#[tokio::test(start_paused = true)]
async fn accepted_migration_waits_for_zone_labels() {
    let world = beside_another(ManagementState::Managed, "spaced");
    let labels = json!({"topology.cinder.csi.openstack.org/zone": "zone-one"});
    world.api.put(
        "/api/v1/nodes/n1",
        json!({"metadata": {"name": "n1", "labels": labels}}),
    );
    world.reconcile().await.expect("reconciled");
    let message = held_up(&world);
    assert!(message.contains("Acceptance does not include ZoneLabel"), "{message}");
    assert!(world.api.get(DAEMON_SET).is_none());
    let patch = "- {op: add, path: /spec/template/spec/containers/0/args/-, value: --zone-labels=sanitised}";
    let mut spec = world.api.get(DRIVER).expect("the driver")["spec"].clone();
    let flag = |kind, name| json!({"target": {"kind": kind, "name": name}, "type": "json", "patch": patch});
    spec["overrides"] = json!([
        flag("DaemonSet", "cinder-csi-node"),
        flag("Deployment", "cinder-csi-controller")
    ]);
    world.api.change(DRIVER, "/spec", spec);
    world.api.change(DRIVER, "/metadata/generation", json!(2));
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(DAEMON_SET).is_some(), "the migration did not begin");
}

#[tokio::test(start_paused = true)]
async fn findings_of_deleted_driver_are_discarded() {
    let world = beside_a_kept_one();
    world.reconcile().await.expect("reconciled");
    assert!(held_up(&world).contains("--cluster"));
    // A different object of this name, also with generation 1.
    let mut successor = world.api.get(DRIVER).expect("the driver");
    successor["metadata"]["uid"] = json!("successor");
    successor["spec"]["clusterID"] = json!("prod");
    world.api.put(DRIVER, successor);
    world.reconcile().await.expect("reconciled");
    assert!(!held_up(&world).contains("--cluster"));
}

#[tokio::test(start_paused = true)]
async fn cached_results_end_with_uid() {
    let world = beside_a_kept_one();
    let context = &world.context;
    let remember = |memory: &mut ObjectMemory| {
        memory.migration.remember_settled(Some(1));
        memory.migration.remember_findings(Some(1), &[]);
    };
    let recall = |generation| {
        context.memory(NAME, |memory| {
            let is_settled = memory.migration.is_settled(generation, CHECK_PAUSE);
            (is_settled, memory.migration.findings(generation, CHECK_PAUSE).is_some())
        })
    };
    context.recognize(NAME, "first");
    context.memory(NAME, remember);
    context.recognize(NAME, "first");
    assert_eq!(recall(Some(1)), (true, true));
    assert_eq!(recall(Some(2)), (false, false));
    context.recognize(NAME, "second");
    assert_eq!(recall(Some(1)), (false, false));
}

#[rstest]
#[case::the_secret(
    "/secrets/cloud-config",
    "the file /etc/config/cloud.conf of Deployment kube-system/csi-cinder-controllerplugin, container driver"
)]
#[case::pods("/api/v1/pods", "pods with in-line volumes")]
#[tokio::test]
async fn unreadable_objects_stop_a_migration(#[case] hidden: &str, #[case] expected: &str) {
    let world = beside_a_kept_one();
    world.api.hide(hidden);
    world.reconcile().await.expect("reconciled");
    let message = held_up(&world);
    assert!(message.contains(expected), "{message}");
}

/// A pod of a Go controller in namespace `storage`.
fn put_controller_elsewhere(world: &World) -> String {
    let path = "/api/v1/namespaces/storage/pods/csi-5f-x".to_owned();
    let container = json!({"name": "driver", "image": "registry.k8s.io/provider-os/cinder-csi-plugin:v1.36.0"});
    let owner =
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "csi-5f", "uid": "r", "controller": true});
    world.api.put(
        &path,
        json!({"metadata": {"name": "csi-5f-x", "namespace": "storage", "uid": "u", "labels": {"pod-template-hash": "5f"},
            "ownerReferences": [owner]}, "spec": {"nodeName": "n1", "containers": [container]}}),
    );
    path
}

#[rstest]
#[case::beside_the_named_one(true)]
#[case::without_any_there(false)]
#[tokio::test(start_paused = true)]
async fn controller_in_other_namespace_stops_migration(#[case] has_named: bool) {
    let world = if has_named {
        shown_to_start().await
    } else {
        let mut spec = mk_spec();
        spec.adoption.mode = AdoptionMode::Migrate;
        World::new(spec, mk_index(&[], true))
    };
    let path = put_controller_elsewhere(&world);
    tokio::time::advance(ELSEWHERE_PAUSE).await;
    for _ in 0..3 {
        world.reconcile().await.expect("reconciled");
    }
    assert!(world.api.get(DEPLOYMENT).is_none());
    assert!(!has_named || theirs(&world) == (1, Value::Null), "theirs was touched");
    let message = held_up(&world);
    assert!(message.contains("Deployment storage/csi"), "{message}");

    world.api.remove(&path);
    tokio::time::advance(ELSEWHERE_PAUSE).await;
    for _ in 0..3 {
        world.reconcile().await.expect("reconciled");
    }
    assert!(
        world.api.get(DEPLOYMENT).is_some(),
        "{:?}",
        world.condition(ConditionType::Degraded)
    );
}

#[tokio::test(start_paused = true)]
async fn unlisted_pods_of_other_namespaces_stop_migration() {
    let world = shown_to_start().await;
    world.api.hide("/api/v1/pods");
    tokio::time::advance(ELSEWHERE_PAUSE).await;
    world.reconcile().await.expect("reconciled");
    assert_eq!(theirs(&world), (1, Value::Null));
    let message = held_up(&world);
    assert!(
        message.contains("cannot list pods") && message.contains("config/rbac/adoption"),
        "{message}"
    );
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
                .filter(|list| !list.contains("labelSelector=app%3Dcsi"))
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

#[rstest]
#[case::forbidden("/apis/apps/v1/statefulsets", "the statefulsets of other namespaces")]
#[case::undecodable("", "Deployment storage/odd")]
#[tokio::test]
async fn unknown_workloads_elsewhere_are_findings(#[case] hidden: &str, #[case] expected: &str) {
    let world = beside_another(ManagementState::Managed, "good");
    world.api.put(
        "/apis/apps/v1/namespaces/storage/deployments/odd",
        json!({"metadata": {"name": "odd", "namespace": "storage"}, "spec": {"template": {"spec": {"containers": 7}}}}),
    );
    if !hidden.is_empty() {
        world.api.hide(hidden);
    }
    let apis = cluster::OptionalApis::default();
    let spec = mk_spec();
    let successor = observe::Successor {
        spec: &spec,
        namespace: "cinder-csi",
    };
    let facts = observe::adoption_check(&world.api.client, NAME, "kube-system", apis, successor, true).await;
    let gaps: Vec<&str> = facts.gaps.iter().map(|gap| gap.what.as_str()).collect();
    assert!(gaps.contains(&expected), "{gaps:?}");
}

#[tokio::test]
async fn accepted_findings_do_not_permit_outside_controller() {
    let world = beside_another(ManagementState::Managed, "good");
    let sidecar = json!({"name": "csi-attacher", "image": "registry.k8s.io/sig-storage/csi-attacher:v4.10.0",
        "args": ["--kubeconfig=/etc/shoot/kubeconfig"]});
    world.api.change(OLD, "/spec/template/spec/containers/0", sidecar);
    let driver = json!({"name": "driver", "image": "registry.k8s.io/provider-os/cinder-csi-plugin:v1.36.0"});
    let containers = world.api.get(OLD).expect("their Deployment")["spec"]["template"]["spec"]["containers"][0].clone();
    world
        .api
        .change(OLD, "/spec/template/spec/containers", json!([containers, driver]));
    for _ in 0..3 {
        world.reconcile().await.expect("reconciled");
    }
    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert!(
        verdict == "True/MigrationHeldUp" && message.contains("cannot replace this installation"),
        "{verdict}: {message}"
    );
    assert!(world.api.get(DAEMON_SET).is_none(), "our DaemonSet exists");
}
