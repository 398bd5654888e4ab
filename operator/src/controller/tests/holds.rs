// SPDX-License-Identifier: Apache-2.0
//! Objects that retain their last applied content, while all other objects are maintained.

use cinder_csi_crds::{INSTANCE_LABEL, OverrideType};
use cinder_operator_core::{cluster::OptionalApis, plan::LAST_APPLIED_SUFFIX};

use super::*;

const BINDING: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/cinder-csi-resizer";
const POLICY: &str = "/apis/networking.k8s.io/v1/namespaces/cinder-csi/networkpolicies/cinder-csi-controller";

fn record_path() -> String {
    format!("/api/v1/namespaces/cinder-csi/configmaps/cinder-csi{LAST_APPLIED_SUFFIX}")
}

fn mk_override(kind: &str, name: &str, how: OverrideType, patch: &str) -> Value {
    json!({"target": {"kind": kind, "name": name}, "type": how, "patch": patch})
}

fn nodes_override(patch: &str) -> Value {
    mk_override("DaemonSet", "cinder-csi-node", OverrideType::Merge, patch)
}

const ALIASES: &str = "spec: {template: {spec: {hostAliases: [{ip: 192.0.2.10, hostnames: [keystone.example.org]}]}}}";

impl World {
    pub(super) fn set_spec(&self, field: &str, value: Value) {
        let mut spec = self.api.get(DRIVER).expect("the driver")["spec"].clone();
        spec[field] = value;
        self.api.change(DRIVER, "/spec", spec);
    }

    fn spec_of(&self, path: &str) -> Value {
        self.api.get(path).unwrap_or_else(|| panic!("{path}"))["spec"].clone()
    }

    /// Reports a controller with an available pod.
    pub(super) fn start_controller(&self) {
        let status = json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1});
        self.api.change(DEPLOYMENT, "/status", status);
    }

    pub(super) async fn settle(&self) {
        for _ in 0..2 {
            self.reconcile().await.expect("reconciled");
        }
        self.api.take_writes();
    }

    fn has_event(&self, reason: &str) -> bool {
        self.api.kinds_of_events().iter().any(|event| event.ends_with(reason))
    }
}

/// A driver with an override that applies to the DaemonSet.
async fn mk_overridden() -> World {
    let world = World::managed();
    world.set_spec("overrides", json!([nodes_override(ALIASES)]));
    world.settle().await;
    assert!(world.spec_of(DAEMON_SET)["template"]["spec"]["hostAliases"].is_array());
    world
}

#[rstest]
#[case::no_yaml(json!([nodes_override("spec: {template: {spec: {hostAliases: [{ip: 192.0.2.10}}}}")]))]
#[case::failed_test(json!([nodes_override(ALIASES), mk_override("DaemonSet", "cinder-csi-node", OverrideType::Json,
    r#"[{"op": "test", "path": "/spec/template/spec/hostNetwork", "value": false}]"#)]))]
#[case::missing_path(json!([mk_override("DaemonSet", "cinder-csi-node", OverrideType::Json,
    r#"[{"op": "remove", "path": "/spec/nothing"}]"#)]))]
#[case::misspelt_target(json!([mk_override("DaemonSet", "cinder-csi-nod", OverrideType::Merge, ALIASES)]))]
#[tokio::test(start_paused = true)]
async fn failed_override_freezes_its_object(#[case] overrides: Value) {
    let world = mk_overridden().await;
    let before = world.spec_of(DAEMON_SET);
    world.set_spec("overrides", overrides);
    world.set_spec("controller", json!({"replicas": 3}));
    let action = world.reconcile().await.expect("reconciled");
    assert_eq!(world.spec_of(DAEMON_SET), before);
    assert_eq!(world.spec_of(DEPLOYMENT)["replicas"], 3, "other objects are changed");
    assert_eq!(world.condition(ConditionType::Degraded).0, "True/OverrideFailed");
    assert_eq!(action, Action::requeue(Duration::from_mins(5) + RECHECK_MARGIN));

    // A held object is recreated and repaired, also by a new process.
    world.context.forget(NAME);
    world.api.remove(DAEMON_SET);
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.spec_of(DAEMON_SET), before);
    world
        .api
        .change(DAEMON_SET, "/spec/template/spec/hostAliases/0/ip", json!("192.0.2.99"));
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.spec_of(DAEMON_SET), before);
    world.settle().await;
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), Vec::<String>::new());

    world.set_spec("overrides", json!([]));
    world.reconcile().await.expect("reconciled");
    assert!(world.spec_of(DAEMON_SET)["template"]["spec"]["hostAliases"].is_null());
    assert_eq!(world.condition(ConditionType::Degraded).0, "False/AsExpected");
}

#[tokio::test]
async fn object_is_not_created_without_its_override() {
    let world = World::managed();
    world.set_spec("overrides", json!([nodes_override("a: b: c")]));
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(DAEMON_SET).is_none());
    assert!(world.api.get(DEPLOYMENT).is_some());
    world.start_controller();
    world.reconcile().await.expect("reconciled");
    let (verdict, message) = world.condition(ConditionType::Available);
    assert_eq!(verdict, "False/DaemonSetMissing");
    assert!(message.contains("spec.overrides[0]"), "{message}");
}

#[tokio::test]
async fn image_forbidden_later_freezes_workloads() {
    let mut world = World::managed();
    let patch = r#"[{"op": "add", "path": "/spec/template/spec/containers/-", "value": {"name": "proxy", "image": "proxy.example.org/x"}}]"#;
    let name = "cinder-csi-controller";
    world.set_spec(
        "overrides",
        json!([mk_override("Deployment", name, OverrideType::Json, patch)]),
    );
    world.settle().await;
    let before = (world.spec_of(DEPLOYMENT), world.spec_of(DAEMON_SET));
    assert!(before.0.to_string().contains("proxy.example.org"));

    let allow = |world: &mut World, registries: &[&str]| {
        let context = Arc::get_mut(&mut world.context).expect("nobody else has it");
        context.restrictions.registries = registries.iter().map(|&one| one.to_owned()).collect();
    };
    allow(&mut world, &["ghcr.io", "registry.k8s.io"]);
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.spec_of(DEPLOYMENT), before.0, "the override's image is forbidden");
    assert_eq!(world.condition(ConditionType::Degraded).0, "True/OverrideFailed");

    allow(&mut world, &["mirror.example.org"]);
    for path in [DEPLOYMENT, DAEMON_SET, BINDING] {
        world.api.remove(path);
    }
    world.reconcile().await.expect("reconciled");
    assert_eq!((world.spec_of(DEPLOYMENT), world.spec_of(DAEMON_SET)), before);
    assert!(world.api.get(BINDING).is_some());
    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert_eq!(verdict, "True/ImageForbidden");
    assert!(message.contains("mirror.example.org"), "{message}");
}

fn class_with_label(label: &str) -> Value {
    json!({"items": [{"name": "cinder", "labels": {label: "shop"}}]})
}

#[rstest]
#[case::class_label("storageClasses", class_with_label("app.kubernetes.io/team"), "InvalidSpec")]
#[case::segment("topology", json!({"mode": "Enabled", "additional": {"no key": "x"}}), "InvalidSpec")]
#[case::port("node", json!({"httpPort": 65_535, "registration": "Sidecar"}), "InvalidSpec")]
#[tokio::test(start_paused = true)]
async fn maintenance_continues_under_unresolvable_spec(
    #[case] field: &str,
    #[case] value: Value,
    #[case] reason: &str,
) {
    let world = World::managed();
    world.settle().await;
    let before = (world.spec_of(DAEMON_SET), world.api.get(CLASS));
    let secret = world.api.get(OWN_SECRET);
    world.set_spec(field, value);
    world.set_password("better");
    for path in [BINDING, DAEMON_SET] {
        world.api.remove(path);
    }
    let action = world.reconcile().await.expect("reconciled");

    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert_eq!(verdict, format!("True/{reason}"), "{message}");
    assert!(world.api.get(BINDING).is_some());
    assert_eq!((world.spec_of(DAEMON_SET), world.api.get(CLASS)), before);
    assert_ne!(world.api.get(OWN_SECRET), secret, "the rotated credentials are written");
    assert!(world.has_event("SecretRotated"));
    assert_eq!(world.condition(ConditionType::CredentialsValid).0, "True/AsExpected");
    assert_ne!(world.condition(ConditionType::Available).0, "False/DaemonSetMissing");
    assert_eq!(action, Action::requeue(Duration::from_mins(5) + RECHECK_MARGIN));
    world.settle().await;
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn invalid_class_waits_while_another_is_added() {
    let world = World::managed();
    world.settle().await;
    let class = world.api.get(CLASS);
    let items = json!({"items": [
        {"name": "cinder", "labels": {"app.kubernetes.io/team": "shop"}, "volumeType": "other"}, {"name": "fast"}]});
    world.set_spec("storageClasses", items);
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.get(CLASS), class);
    assert!(world.api.get("/apis/storage.k8s.io/v1/storageclasses/fast").is_some());
    world.api.remove(CLASS);
    world.reconcile().await.expect("reconciled");
    assert!(
        world
            .api
            .get(CLASS)
            .is_some_and(|class| class["parameters"]["type"].is_null())
    );
}

#[tokio::test]
async fn long_socket_path_freezes_node_plugin() {
    let world = World::managed();
    world.settle().await;
    world.api.remove(BINDING);
    world.api.remove(DAEMON_SET);
    world.set_password("better");
    let secret = world.api.get(OWN_SECRET);
    world.set_spec("node", json!({"kubeletDir": format!("/{}", "x".repeat(90))}));
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(BINDING).is_some() && world.api.get(DAEMON_SET).is_some());
    assert!(!world.spec_of(DAEMON_SET).to_string().contains("xxxx"));
    assert_ne!(world.api.get(OWN_SECRET), secret);
}

#[tokio::test]
async fn missing_daemon_set_is_reported() {
    let world = World::managed();
    world.settle().await;
    world.start_controller();
    world.api.remove(DAEMON_SET);
    world.api.break_writes_to(Some("/daemonsets"));
    world.reconcile().await.expect_err("it cannot be written");
    let (verdict, message) = world.condition(ConditionType::Available);
    assert_eq!(verdict, "False/DaemonSetMissing");
    assert!(!message.contains("no node matches"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn unlabelled_csi_driver_allows_rotation_and_repair() {
    let world = World::managed();
    world.settle().await;
    let secret = world.api.get(OWN_SECRET);
    world.api.change(CSI_DRIVER, "/metadata/labels", json!({}));
    world.api.change(CSI_DRIVER, "/metadata/annotations", json!({}));
    world.set_password("better");
    world.api.remove(BINDING);
    world.api.remove(DAEMON_SET);
    world.api.change(DEPLOYMENT, "/spec/replicas", json!(0));
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.condition(ConditionType::Degraded).0, "True/OwnershipConflict");
    assert_ne!(world.api.get(OWN_SECRET), secret);
    assert_eq!(world.spec_of(DEPLOYMENT)["replicas"], 1);
    assert!(world.api.get(BINDING).is_some() && world.api.get(DAEMON_SET).is_some());
    // The pause between checks grows.
    let mut pauses = Vec::new();
    for _ in 0..8 {
        pauses.push(world.reconcile().await.expect("reconciled"));
    }
    assert_eq!(pauses.last(), Some(&Action::requeue(Duration::from_mins(5))));
}

#[tokio::test]
async fn foreign_csi_driver_prevents_new_objects() {
    let world = World::managed();
    let foreign = json!({"metadata": {"name": NAME, "labels": {}}, "spec": {}});
    world.api.put(CSI_DRIVER, foreign.clone());
    world.reconcile().await.expect("reconciled");
    for path in [OWN_SECRET, DEPLOYMENT, DAEMON_SET, BINDING] {
        assert!(world.api.get(path).is_none(), "{path}");
    }
    assert_eq!(world.api.get(CSI_DRIVER), Some(foreign));
}

#[tokio::test]
async fn status_reports_only_written_credentials() {
    let world = World::managed();
    world.settle().await;
    let before = world.api.get(OWN_SECRET);
    world.set_password("better");
    world.api.break_writes_to(Some("/secrets/"));
    world.reconcile().await.expect_err("the Secret cannot be written");
    assert_eq!(world.api.get(OWN_SECRET), before);
    assert!(!world.has_event("SecretRotated"));
    let (verdict, message) = world.condition(ConditionType::CredentialsValid);
    assert_eq!(verdict, "False/NotGiven");
    assert!(message.contains("condition Degraded"), "{message}");

    world.api.break_writes_to(None);
    world.reconcile().await.expect("reconciled");
    assert_ne!(world.api.get(OWN_SECRET), before);
    assert!(world.has_event("SecretRotated"));
    assert_eq!(world.condition(ConditionType::CredentialsValid).0, "True/AsExpected");
}

#[tokio::test]
async fn unlisted_claims_do_not_stop_writes() {
    let world = World::managed();
    world.settle().await;
    let secret = world.api.get(OWN_SECRET);
    world.set_password("better");
    world.set_spec("storageClasses", json!({"items": []}));
    world.api.hide("/persistentvolumeclaims");
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(CLASS).is_none(), "the class is pruned");
    assert_ne!(world.api.get(OWN_SECRET), secret);
}

#[tokio::test]
async fn unlisted_optional_kind_does_not_stop_writes() {
    const SNAPSHOT_CLASSES: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses";
    let apis = OptionalApis {
        snapshots: true,
        ..OptionalApis::default()
    };
    let world = World::on(mk_spec(), Cluster::fixed(mk_index(&[], true)).with_apis(apis));
    world.api.put("/apis/snapshot.storage.k8s.io/v1", json!({}));
    world.settle().await;
    let classes = || {
        let mut paths = world.api.paths_of(NAME);
        paths.retain(|path| path.starts_with(SNAPSHOT_CLASSES));
        paths
    };
    let before = classes();
    assert!(!before.is_empty());
    world.api.hide("/volumesnapshotclasses");
    world.api.remove(BINDING);
    world.set_spec("snapshots", json!({"classes": []}));
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(BINDING).is_some());
    assert_eq!(classes(), before, "an unknown kind is not pruned");
    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert_eq!(verdict, "True/ReconcileFailed");
    assert!(message.contains("cannot list volumesnapshotclasses"), "{message}");
}

#[tokio::test]
async fn removed_api_does_not_stop_writes() {
    let apis = OptionalApis {
        snapshots: true,
        ..OptionalApis::default()
    };
    let mut world = World::on(mk_spec(), Cluster::fixed(mk_index(&[], true)).with_apis(apis));
    world.api.put("/apis/snapshot.storage.k8s.io/v1", json!({}));
    world.settle().await;
    let record = world.api.get(&record_path()).expect("the record");
    assert!(record.to_string().contains("VolumeSnapshotClass"), "{record}");
    world.api.hide("/volumesnapshotclasses");
    world.restart(mk_index(&[], true));
    world.api.remove(BINDING);
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(BINDING).is_some());
    assert_eq!(world.condition(ConditionType::Degraded).0, "False/AsExpected");
}

#[tokio::test]
async fn edited_record_is_repaired() {
    let world = World::managed();
    world.settle().await;
    let mut record = world.api.get(&record_path()).expect("the record");
    record["metadata"]["labels"][INSTANCE_LABEL] = json!("another");
    world.api.put(&record_path(), record);
    world.reconcile().await.expect("reconciled");
    let record = world.api.get(&record_path()).expect("the record");
    assert_eq!(record["metadata"]["labels"][INSTANCE_LABEL], NAME);
}

#[tokio::test]
async fn deleted_record_is_written_again() {
    let world = World::managed();
    world.settle().await;
    let record = world.api.get(&record_path()).expect("the record");
    assert_eq!(record["metadata"]["labels"][INSTANCE_LABEL], NAME);
    assert!(!record["data"].to_string().contains("password"));
    world.api.remove(&record_path());
    world.reconcile().await.expect("reconciled");
    assert_eq!(
        world.api.get(&record_path()).expect("the record")["data"],
        record["data"]
    );
}

#[tokio::test]
async fn held_object_without_record_stays_untouched() {
    let world = mk_overridden().await;
    let before = world.api.get(DAEMON_SET);
    world.api.remove(&record_path());
    world.set_spec("overrides", json!([nodes_override("a: b: c")]));
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.get(DAEMON_SET), before);
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.get(DAEMON_SET), before);
}

#[tokio::test]
async fn held_policy_follows_its_controller() {
    let world = World::managed();
    world.settle().await;
    let before = (world.spec_of(DEPLOYMENT), world.api.get(POLICY));
    world.set_spec("controller", json!({"httpPort": 65_535, "hostNetwork": true}));
    world.reconcile().await.expect("reconciled");
    assert_eq!((world.spec_of(DEPLOYMENT), world.api.get(POLICY)), before);
    assert_eq!(world.condition(ConditionType::Degraded).0, "True/InvalidSpec");
}
