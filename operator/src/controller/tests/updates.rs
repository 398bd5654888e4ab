// SPDX-License-Identifier: Apache-2.0
//! Changes of pod templates without a change of the spec.

use cinder_operator_core::{
    cluster::{OptionalApi, OptionalApis, REVISION_LABEL, VERSION_LABEL},
    plan::{APPLIED_HASH, LAST_APPLIED_SUFFIX},
    releases::{Component, TEMPLATE_INPUTS},
};

use super::*;

const IMAGE: &str = "mirror.example.org/driver:rebuilt";
const REVISION: &str = "/apis/apps/v1/namespaces/cinder-csi/controllerrevisions/new";

/// A cause for a change of pod templates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Version,
    Image,
    Kubernetes,
    Zones,
    Apis,
}

impl Cause {
    /// Applies the cause, also after a restart of the operator.
    fn apply(self, world: &mut World) {
        match self {
            Self::Version => {
                let label = format!("/metadata/labels/{}", VERSION_LABEL.replace('/', "~1"));
                for path in [DEPLOYMENT, DAEMON_SET] {
                    world.api.change(path, &label, json!("0.0.9"));
                }
            }
            Self::Image => {
                let context = Arc::get_mut(&mut world.context).expect("nobody else has it");
                context.images.insert(Component::Driver, IMAGE.to_owned());
            }
            Self::Kubernetes => world.api.put("/version", json!("34")),
            Self::Zones => {
                let topology = json!({"enabled": false, "reason": "ZonesDiffer"});
                world.api.change(DRIVER, "/status/topology", topology);
            }
            Self::Apis => hear_apis(world, true),
        }
    }

    fn changes_nodes(self) -> bool {
        !matches!(self, Self::Kubernetes | Self::Apis)
    }
}

fn hear_apis(world: &mut World, is_served: bool) {
    let apis = OptionalApis::default().with(OptionalApi::VolumeAttributesClasses, is_served);
    let context = Arc::get_mut(&mut world.context).expect("nobody else has it");
    context.cluster.hear_apis(apis);
}

/// A driver on Kubernetes 1.33 with zones, whose controller is available.
async fn mk_installed(policy: &str) -> World {
    let mut spec = mk_spec();
    spec.topology.mode = TopologyMode::Auto;
    let mut world = World::new(spec, mk_index(&[], true));
    world.api.put("/version", json!("33"));
    hear_apis(&mut world, false);
    world.set_spec("update", json!({"policy": policy}));
    let mut driver = world.api.get(DRIVER).expect("the driver");
    driver["status"] = json!({"topology": {"enabled": true, "reason": "ZonesMatch"}});
    world.api.put(DRIVER, driver);
    world.reconcile().await.expect("reconciled");
    world.start_controller();
    world.settle().await;
    world
}

/// Applies a cause repeatedly, until its observation is confirmed.
async fn bring_about(world: &mut World, cause: Cause) {
    for _ in 0..8 {
        if cause != Cause::Version {
            cause.apply(world);
        }
        tokio::time::advance(Duration::from_mins(10)).await;
        world.reconcile().await.expect("reconciled");
    }
}

/// Applies a cause repeatedly, until it waits for approval. Returns the value that approves it.
async fn wait_for_approval(world: &mut World, cause: Cause) -> String {
    bring_about(world, cause).await;
    assert_eq!(world.condition(ConditionType::Progressing).0, "True/WaitingForApproval");
    world
        .driver()
        .status
        .expect("a status")
        .target_version
        .expect("a target")
}

fn approve(world: &World, version: &str) {
    world.set_spec("update", json!({"policy": "Manual", "approvedVersion": version}));
}

impl World {
    /// The version and the pod template of a workload.
    fn pods_of(&self, path: &str) -> (Value, Value) {
        let object = self.api.get(path).unwrap_or_else(|| panic!("{path}"));
        (
            object["metadata"]["labels"][VERSION_LABEL].clone(),
            object["spec"]["template"].clone(),
        )
    }

    /// Reports a controller whose new pods are not available yet.
    fn hold_controller(&self) {
        let status = json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 0, "availableReplicas": 1});
        self.api.change(DEPLOYMENT, "/status", status);
    }

    /// Checks that the controller changes first, and that the nodes follow when all its pods are available.
    async fn follow_order(&self, before: &[(Value, Value); 2], changes_nodes: bool) {
        self.hold_controller();
        for _ in 0..2 {
            self.reconcile().await.expect("reconciled");
            assert_ne!(self.pods_of(DEPLOYMENT), before[0]);
            assert_eq!(self.pods_of(DAEMON_SET), before[1], "the nodes wait");
        }
        self.start_controller();
        self.reconcile().await.expect("reconciled");
        assert_eq!(self.pods_of(DAEMON_SET) != before[1], changes_nodes);
    }

    fn forget_record(&self) {
        self.api.remove(&format!(
            "/api/v1/namespaces/cinder-csi/configmaps/cinder-csi{LAST_APPLIED_SUFFIX}"
        ));
        for path in [DEPLOYMENT, DAEMON_SET] {
            let mut object = self.api.get(path).expect("a workload");
            let annotations = object["metadata"]["annotations"].as_object_mut().expect("annotations");
            annotations.remove(TEMPLATE_INPUTS);
            self.api.put(path, object);
        }
    }
}

#[rstest]
#[case::version(Cause::Version)]
#[case::image(Cause::Image)]
#[case::sidecars(Cause::Kubernetes)]
#[case::zones(Cause::Zones)]
#[case::apis(Cause::Apis)]
#[tokio::test(start_paused = true)]
async fn update_waits_for_approval_of_content(#[case] cause: Cause) {
    let mut world = mk_installed("Manual").await;
    if cause == Cause::Version {
        cause.apply(&mut world);
    }
    let before = [DEPLOYMENT, DAEMON_SET].map(|path| world.pods_of(path));
    let approval = wait_for_approval(&mut world, cause).await;
    assert_eq!([DEPLOYMENT, DAEMON_SET].map(|path| world.pods_of(path)), before);
    let (_, message) = world.condition(ConditionType::Progressing);
    assert!(message.contains(&format!("approvedVersion is {approval}")), "{message}");

    world.restart(mk_index(&[], true));
    cause.apply(&mut world);
    world.settle().await;
    world.reconcile().await.expect("reconciled");
    assert_eq!(
        world.api.take_writes(),
        Vec::<String>::new(),
        "a restart changes nothing"
    );
    let target = world.driver().status.expect("a status").target_version;
    assert_eq!(target.as_ref(), Some(&approval));

    approve(&world, &format!("{}+00000000", crate::args::VERSION));
    world.reconcile().await.expect("reconciled");
    assert_eq!([DEPLOYMENT, DAEMON_SET].map(|path| world.pods_of(path)), before);
    approve(&world, &approval);
    world.follow_order(&before, cause.changes_nodes()).await;
    world.settle().await;
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), Vec::<String>::new());
    assert_eq!(
        world.driver().status.expect("a status").target_version.as_deref(),
        Some(crate::args::VERSION)
    );
}

#[rstest]
#[case::version(Cause::Version)]
#[case::image(Cause::Image)]
#[case::sidecars(Cause::Kubernetes)]
#[case::zones(Cause::Zones)]
#[case::apis(Cause::Apis)]
#[tokio::test(start_paused = true)]
async fn automatic_update_keeps_order_over_restart(#[case] cause: Cause) {
    let mut world = mk_installed("Manual").await;
    if cause == Cause::Version {
        cause.apply(&mut world);
    }
    let before = [DEPLOYMENT, DAEMON_SET].map(|path| world.pods_of(path));
    wait_for_approval(&mut world, cause).await;
    world.set_spec("update", json!({"policy": "Automatic"}));
    world.hold_controller();
    world.reconcile().await.expect("reconciled");
    world.restart(mk_index(&[], true));
    if cause != Cause::Version {
        cause.apply(&mut world);
    }
    world.follow_order(&before, cause.changes_nodes()).await;
}

#[tokio::test(start_paused = true)]
async fn changing_api_servers_change_no_template() {
    let mut world = mk_installed("Automatic").await;
    let before = [DEPLOYMENT, DAEMON_SET].map(|path| world.pods_of(path));
    for restarts in 0..2 {
        for minute in 0..5 {
            let is_new = minute % 2 == 0;
            world.api.put("/version", json!(if is_new { "34" } else { "33" }));
            hear_apis(&mut world, is_new);
            tokio::time::advance(Duration::from_mins(10)).await;
            world.reconcile().await.expect("reconciled");
        }
        assert_eq!(world.api.take_writes(), Vec::<String>::new(), "{restarts}");
        world.restart(mk_index(&[], true));
    }
    assert_eq!([DEPLOYMENT, DAEMON_SET].map(|path| world.pods_of(path)), before);
    bring_about(&mut world, Cause::Kubernetes).await;
    assert_ne!(world.pods_of(DEPLOYMENT), before[0]);
}

#[tokio::test(start_paused = true)]
async fn first_answer_after_restart_changes_no_template() {
    let mut world = mk_installed("Automatic").await;
    let before = world.pods_of(DEPLOYMENT);
    world.restart(mk_index(&[], true));
    Cause::Kubernetes.apply(&mut world);
    Cause::Apis.apply(&mut world);
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.pods_of(DEPLOYMENT), before);
    // The annotations of the workloads contain the inputs as well.
    let topology = json!({"enabled": true, "reason": "ZonesMatch"});
    world.api.change(DRIVER, "/status", json!({"topology": topology}));
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.pods_of(DEPLOYMENT), before);
}

#[tokio::test]
async fn first_answers_count_at_installation() {
    let mut world = World::new(mk_spec(), mk_index(&[], true));
    Cause::Apis.apply(&mut world);
    world.reconcile().await.expect("reconciled");
    let pods = world.pods_of(DEPLOYMENT).1.to_string();
    assert!(pods.contains("VolumeAttributesClass=true"), "{pods}");
}

#[tokio::test(start_paused = true)]
async fn spec_and_credentials_never_wait() {
    let mut world = mk_installed("Manual").await;
    wait_for_approval(&mut world, Cause::Image).await;
    let secret = world.api.get(OWN_SECRET);
    world.set_spec("logLevel", json!("Debug"));
    world.set_password("western");
    world.reconcile().await.expect("reconciled");
    assert_ne!(world.api.get(OWN_SECRET), secret);
    for path in [DEPLOYMENT, DAEMON_SET] {
        let pods = world.pods_of(path).1.to_string();
        assert!(pods.contains("--v=4") && !pods.contains(IMAGE), "{pods}");
    }
    let pods = world.pods_of(DEPLOYMENT).1.to_string();
    assert!(pods.contains("--project-id=w"), "{pods}");
    assert_eq!(world.condition(ConditionType::Progressing).0, "True/WaitingForApproval");
}

#[rstest]
#[case::controller(&[DEPLOYMENT])]
#[case::nodes(&[DAEMON_SET])]
#[case::both(&[DEPLOYMENT, DAEMON_SET])]
#[tokio::test(start_paused = true)]
async fn deleted_workload_returns_without_update(#[case] deleted: &[&str]) {
    let mut world = mk_installed("Manual").await;
    wait_for_approval(&mut world, Cause::Image).await;
    let before = [DEPLOYMENT, DAEMON_SET].map(|path| world.pods_of(path));
    for path in deleted {
        world.api.remove(path);
    }
    for _ in 0..2 {
        world.reconcile().await.expect("reconciled");
        assert_eq!([DEPLOYMENT, DAEMON_SET].map(|path| world.pods_of(path)), before);
    }
    assert_eq!(world.condition(ConditionType::Progressing).0, "True/WaitingForApproval");
}

#[tokio::test(start_paused = true)]
async fn lost_record_without_change_is_written_again() {
    let world = mk_installed("Manual").await;
    let before = [DEPLOYMENT, DAEMON_SET].map(|path| world.pods_of(path));
    world.forget_record();
    world.reconcile().await.expect("reconciled");
    assert_eq!([DEPLOYMENT, DAEMON_SET].map(|path| world.pods_of(path)), before);
    let annotations = world.api.get(DEPLOYMENT).expect("it")["metadata"]["annotations"].clone();
    assert!(annotations[TEMPLATE_INPUTS].is_string(), "{annotations}");
}

#[tokio::test(start_paused = true)]
async fn change_after_lost_record_waits() {
    let mut world = mk_installed("Manual").await;
    let before = [DEPLOYMENT, DAEMON_SET].map(|path| world.pods_of(path));
    world.forget_record();
    let approval = wait_for_approval(&mut world, Cause::Image).await;
    assert_eq!([DEPLOYMENT, DAEMON_SET].map(|path| world.pods_of(path)), before);
    let (_, message) = world.condition(ConditionType::Progressing);
    assert!(message.contains("record of the present pods is lost"), "{message}");
    approve(&world, &approval);
    world.follow_order(&before, true).await;
}

#[tokio::test(start_paused = true)]
async fn approved_update_survives_failed_write() {
    let mut world = mk_installed("Manual").await;
    let before = [DEPLOYMENT, DAEMON_SET].map(|path| world.pods_of(path));
    let approval = wait_for_approval(&mut world, Cause::Image).await;
    approve(&world, &approval);
    world.api.break_writes_to(Some("/deployments"));
    world.reconcile().await.expect_err("the controller cannot be written");
    world.api.break_writes_to(None);
    world.restart(mk_index(&[], true));
    Cause::Image.apply(&mut world);
    world.hold_controller();
    world.reconcile().await.expect("reconciled");
    // The update has begun, and continues without its approval.
    world.set_spec("update", json!({"policy": "Manual"}));
    world.follow_order(&before, true).await;
}

#[tokio::test(start_paused = true)]
async fn new_duties_follow_nodes() {
    let mut world = mk_installed("Manual").await;
    let is_on = |world: &World, field: &str| world.api.get(CSI_DRIVER).expect("it")["spec"][field] == true;
    let mut object = world.api.get(CSI_DRIVER).expect("it");
    object["metadata"]["annotations"][APPLIED_HASH] = json!("of another version");
    object["spec"]["seLinuxMount"] = json!(false);
    object["spec"]["requiresRepublish"] = json!(true);
    world.api.put(CSI_DRIVER, object);
    Cause::Version.apply(&mut world);
    wait_for_approval(&mut world, Cause::Version).await;
    assert!(!is_on(&world, "seLinuxMount") && !is_on(&world, "requiresRepublish"));
    world.settle().await;
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), Vec::<String>::new());

    approve(&world, crate::args::VERSION);
    world.reconcile().await.expect("reconciled");
    world.reconcile().await.expect("reconciled");
    assert!(!is_on(&world, "seLinuxMount"), "the revision of the nodes is unknown");
    let uid = world.api.get(DAEMON_SET).expect("it")["metadata"]["uid"].clone();
    let labels = json!({"csi.openstack.org/instance": NAME, (REVISION_LABEL): "new"});
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "cinder-csi-node", "uid": uid}]);
    let metadata = json!({"name": "new", "labels": labels, "ownerReferences": owner});
    world.api.put(REVISION, json!({"metadata": metadata, "revision": 1}));
    world.reconcile().await.expect("reconciled");
    assert!(is_on(&world, "seLinuxMount"));
    world.settle().await;
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), Vec::<String>::new());
}
