// SPDX-License-Identifier: Apache-2.0
//! Drivers in a different namespace than the operator.

use super::*;

const ELSEWHERE: &str = "/api/v1/namespaces/drivers/secrets/openstack-credentials";

/// The status without the conditions that are unknown when the operator cannot observe the driver.
fn rest(world: &World) -> Value {
    let mut status = world.api.get(DRIVER).expect("the driver")["status"].clone();
    status["state"].take();
    let conditions = status["conditions"].as_array_mut().expect("conditions");
    let kept = ["Upgradeable", "CredentialsValid", "DeletionBlocked"];
    conditions.retain(|one| kept.contains(&one["type"].as_str().unwrap_or_default()));
    status
}

/// A driver in this namespace. Its credentials are in `drivers`.
fn mk(namespace: &str) -> World {
    let mut spec = mk_spec();
    spec.operand_namespace = Some(namespace.to_owned());
    let world = World::new(spec, mk_index(&[], true));
    let secret = world.api.get(SOURCE).expect("the credentials");
    world.api.remove(SOURCE);
    world.api.put(ELSEWHERE, secret);
    world
}

#[tokio::test]
async fn driver_runs_in_namespace_of_its_spec() {
    let world = mk("drivers");
    world.reconcile().await.expect("reconciled");
    for path in [OWN_SECRET, DEPLOYMENT, DAEMON_SET] {
        assert!(world.api.get(path).is_none(), "{path}");
        let elsewhere = path.replace("/cinder-csi/", "/drivers/");
        assert!(world.api.get(&elsewhere).is_some(), "{elsewhere}");
    }
    assert!(world.api.get(CSI_DRIVER).is_some());
    world.reconcile().await.expect("reconciled");
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), Vec::<String>::new());

    world.delete();
    world.reconcile().await.expect("on its way");
    let writes = world.api.take_writes();
    assert!(
        deletes(&writes)
            .iter()
            .any(|path| path.contains("/namespaces/drivers/deployments/")),
        "{writes:?}"
    );
}

#[tokio::test]
async fn unserved_namespace_is_reported() {
    let world = mk("nowhere");
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), [format!("PATCH {DRIVER}/status")]);
    assert_eq!(world.condition(ConditionType::Available).0, "Unknown/NotReconciled");
    let (degraded, message) = world.condition(ConditionType::Degraded);
    assert_eq!(degraded, "True/OperandNamespaceNotServed");
    assert!(
        message.contains("nowhere") && message.contains("--operand-namespaces"),
        "{message}"
    );
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn missing_role_is_reported_and_blocks_deletion() {
    let world = mk("drivers");
    world.reconcile().await.expect("reconciled");
    let before = rest(&world);
    assert_eq!(before["controller"]["desired"], 1, "{before}");
    assert_eq!(before["clouds"][0]["authenticated"], true, "{before}");
    world.api.hide("/namespaces/drivers/");
    world.delete();
    world.api.take_writes();
    world.reconcile().await.expect("told");
    assert_eq!(world.api.take_writes(), [format!("PATCH {DRIVER}/status")]);
    let (degraded, message) = world.condition(ConditionType::Degraded);
    assert_eq!(degraded, "True/OperandNamespaceForbidden");
    assert!(
        message.contains("Forbidden by the test") && message.contains("operand-namespace"),
        "{message}"
    );
    assert_eq!(world.driver().finalizers(), [FINALIZER], "its objects are still there");
    assert_eq!(rest(&world), before, "nobody has looked");
    world.reconcile().await.expect("told before");
    assert_eq!(world.api.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn driver_in_unserved_namespace_retains_its_status() {
    let mut world = mk("drivers");
    world.reconcile().await.expect("reconciled");
    let before = rest(&world);
    let context = Arc::get_mut(&mut world.context).expect("nobody else has it");
    context.operand_namespaces.clear();
    world.reconcile().await.expect("told");
    assert_eq!(world.condition(ConditionType::Available).0, "Unknown/NotReconciled");
    assert_eq!(world.condition(ConditionType::Progressing).0, "False/Blocked");
    assert_eq!(
        world.condition(ConditionType::Degraded).0,
        "True/OperandNamespaceNotServed"
    );
    assert_eq!(rest(&world), before, "nobody has looked");
    let events = world.api.events();
    assert!(!events.iter().any(|event| event.contains("Unknown")), "{events:?}");

    let context = Arc::get_mut(&mut world.context).expect("nobody else has it");
    context.operand_namespaces.push("drivers".to_owned());
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.condition(ConditionType::Degraded).0, "False/AsExpected");
    assert_ne!(world.condition(ConditionType::Available).0, "Unknown/NotReconciled");
}

#[tokio::test]
async fn missing_cluster_right_is_not_attributed_to_namespace() {
    let world = mk("drivers");
    world.reconcile().await.expect("reconciled");
    world.api.hide("/persistentvolumes");
    world.delete();
    let error = world.reconcile().await.expect_err("nobody knows what needs the driver");
    assert!(error.to_string().contains("persistentvolumes"), "{error}");
}

#[tokio::test]
async fn missing_role_is_reported_before_first_record() {
    let world = mk("drivers");
    world.api.hide("/namespaces/drivers/");
    world.reconcile().await.expect("reported");
    assert_eq!(world.api.take_writes(), [format!("PATCH {DRIVER}/status")]);
    assert_eq!(
        world.condition(ConditionType::Degraded).0,
        "True/OperandNamespaceForbidden"
    );
}

/// An operator in a different namespace of the same cluster.
pub(super) fn mk_beside(world: &World) -> Arc<Context> {
    let mut context = World::mk_context(&world.api, Cluster::fixed(mk_index(&[], true)));
    context.namespace = "elsewhere".to_owned();
    context.operand_namespaces.clear();
    context.leases = World::mk_leases(&world.api, "elsewhere", "cinder-csi-operator");
    Arc::new(context)
}

pub(super) async fn reconcile_in(world: &World, context: &Arc<Context>) -> Action {
    context.request_full_reconcile(NAME);
    let driver = GuardedObject(Ok(world.driver()));
    reconcile(Arc::new(driver), Arc::clone(context))
        .await
        .expect("reconciled")
}

/// An installed driver at rest.
pub(super) async fn mk_resting() -> World {
    let world = World::managed();
    for _ in 0..2 {
        world.reconcile().await.expect("reconciled");
    }
    world.api.take_writes();
    world
}

fn forget_records(world: &World) {
    let mut driver = world.api.get(DRIVER).expect("the driver");
    driver.as_object_mut().expect("an object").remove("status");
    world.api.put(DRIVER, driver);
    let mut object = world.api.get(CSI_DRIVER).expect("the CSIDriver");
    let annotations = object["metadata"]["annotations"].as_object_mut().expect("annotations");
    annotations.remove("csi.openstack.org/operand-namespace");
    world.api.put(CSI_DRIVER, object);
}

fn forget_status(world: &World) {
    let mut driver = world.api.get(DRIVER).expect("the driver");
    driver.as_object_mut().expect("an object").remove("status");
    world.api.put(DRIVER, driver);
}

fn forget_nothing(_: &World) {}

#[rstest]
#[tokio::test]
async fn operator_elsewhere_changes_nothing(
    #[values(true, false)] has_secret: bool,
    #[values(forget_nothing, forget_status, forget_records)] forget: fn(&World),
    #[values("Managed", "Paused", "Removed")] state: &str,
) {
    let world = mk_resting().await;
    if has_secret {
        let secret = world.api.get(SOURCE).expect("the credentials");
        world.api.put(&SOURCE.replace("cinder-csi/", "elsewhere/"), secret);
    }
    forget(&world);
    world.api.change(DRIVER, "/spec/managementState", json!(state));
    // The objects belong to an operator without a Lease of the object.
    world.api.remove(LEASE);
    let beside = mk_beside(&world);
    for _ in 0..2 {
        reconcile_in(&world, &beside).await;
    }
    assert_eq!(world.api.take_all_writes(), [format!("PATCH {DRIVER}/status")]);
    let (degraded, message) = world.condition(ConditionType::Degraded);
    assert_eq!(degraded, "True/OperandsElsewhere");
    assert!(
        message.contains("namespace cinder-csi") && message.contains("namespace elsewhere"),
        "{message}"
    );
    assert_eq!(world.condition(ConditionType::Available).0, "Unknown/NotReconciled");
}

#[tokio::test]
async fn operator_elsewhere_retains_finalizer_of_deleted_object() {
    let world = mk_resting().await;
    let beside = mk_beside(&world);
    world.api.remove(LEASE);
    world.delete();
    for _ in 0..2 {
        reconcile_in(&world, &beside).await;
    }
    assert_eq!(world.api.take_writes(), [format!("PATCH {DRIVER}/status")]);
    assert_eq!(world.driver().finalizers(), [FINALIZER]);
    for path in [OWN_SECRET, DEPLOYMENT, DAEMON_SET, CSI_DRIVER] {
        assert!(world.api.get(path).is_some(), "{path}");
    }
}

#[tokio::test]
async fn two_operators_do_not_overrule_each_other() {
    let world = mk_resting().await;
    let beside = mk_beside(&world);
    reconcile_in(&world, &beside).await;
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.condition(ConditionType::Degraded).0, "False/AsExpected");
    world.api.take_writes();
    for _ in 0..3 {
        reconcile_in(&world, &beside).await;
        world.reconcile().await.expect("reconciled");
    }
    assert_eq!(world.api.take_writes(), Vec::<String>::new());
    let events = world.api.events();
    assert!(
        events
            .iter()
            .any(|event| event.contains("runs in namespace cinder-csi")),
        "{events:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn status_is_written_after_last_renewal() {
    let world = mk_resting().await;
    world.context.leases.forget(NAME);
    let beside = mk_beside(&world);
    let renew = |at: &str| {
        let spec = json!({"holderIdentity": "pod", "leaseDurationSeconds": 60, "renewTime": at});
        world.api.put(
            LEASE,
            json!({"metadata": {"name": "cinder-csi-operator.cinder.csi.openstack.org"}, "spec": spec}),
        );
    };
    for second in 10..30 {
        renew(&format!("2026-01-01T00:00:{second}.000000Z"));
        reconcile_in(&world, &beside).await;
        tokio::time::advance(Duration::from_secs(30)).await;
    }
    assert_eq!(
        world.api.take_writes(),
        Vec::<String>::new(),
        "an operator renews its Lease"
    );
    tokio::time::advance(Duration::from_mins(1)).await;
    reconcile_in(&world, &beside).await;
    assert_eq!(world.condition(ConditionType::Degraded).0, "True/OperandsElsewhere");
}

#[tokio::test]
async fn status_is_written_once_without_lease_rights() {
    let world = mk_resting().await;
    world.api.hide("/leases");
    let beside = mk_beside(&world);
    reconcile_in(&world, &beside).await;
    assert_eq!(world.api.take_writes(), [format!("PATCH {DRIVER}/status")]);
    assert_eq!(world.condition(ConditionType::Degraded).0, "True/OperandsElsewhere");
}

#[tokio::test]
async fn operator_elsewhere_serves_the_recorded_namespace() {
    let world = mk_resting().await;
    let mut beside = mk_beside(&world);
    reconcile_in(&world, &beside).await;
    world.context.leases.release_all().await;
    Arc::get_mut(&mut beside).expect("not shared").operand_namespaces = vec!["cinder-csi".to_owned()];
    let mut spec = world.api.get(DRIVER).expect("the driver")["spec"].clone();
    spec["operandNamespace"] = json!("cinder-csi");
    world.api.change(DRIVER, "/spec", spec);
    world.api.remove(DAEMON_SET);
    reconcile_in(&world, &beside).await;
    assert_eq!(world.condition(ConditionType::Degraded).0, "False/AsExpected");
    assert!(world.api.get(DAEMON_SET).is_some());
    assert!(!world.api.paths().iter().any(|path| path.contains("/elsewhere/")));
    assert_eq!(super::leases::holder(&world), beside.leases.identity());
}

#[tokio::test]
async fn objects_without_any_namespace_suspend() {
    let world = mk_resting().await;
    forget_records(&world);
    for path in world.api.paths_of(NAME) {
        if path != CSI_DRIVER {
            world.api.remove(&path);
        }
    }
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), [format!("PATCH {DRIVER}/status")]);
    let (degraded, message) = world.condition(ConditionType::Degraded);
    assert_eq!(degraded, "True/OperandsElsewhere");
    assert!(message.contains("csi.openstack.org/operand-namespace"), "{message}");
}

#[tokio::test]
async fn bindings_decide_between_contradictory_records() {
    let world = mk_resting().await;
    world.api.change(DRIVER, "/status/operandNamespace", json!("elsewhere"));
    let beside = mk_beside(&world);
    reconcile_in(&world, &beside).await;
    assert_eq!(world.condition(ConditionType::Degraded).0, "True/OperandsElsewhere");
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.condition(ConditionType::Degraded).0, "False/AsExpected");
    assert_eq!(
        world.driver().status.expect("a status").operand_namespace.as_deref(),
        Some("cinder-csi")
    );
}

#[tokio::test(start_paused = true)]
async fn corrected_record_adds_subjects_to_bindings() {
    const BINDING: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/cinder-csi-attacher";
    let world = mk_resting().await;
    let secret = world.api.get(SOURCE).expect("the credentials");
    world.api.put(&SOURCE.replace("cinder-csi/", "elsewhere/"), secret);
    world.api.change(DRIVER, "/status/operandNamespace", json!("elsewhere"));
    let annotation = "/metadata/annotations/csi.openstack.org~1operand-namespace";
    world.api.change(CSI_DRIVER, annotation, json!("elsewhere"));
    let beside = mk_beside(&world);
    reconcile_in(&world, &beside).await;
    tokio::time::advance(Duration::from_secs(20)).await;
    reconcile_in(&world, &beside).await;
    assert!(
        world
            .api
            .get(&DEPLOYMENT.replace("/cinder-csi/", "/elsewhere/"))
            .is_some()
    );
    let binding = world.api.get(BINDING).expect("the binding");
    let subjects = binding["subjects"].as_array().expect("subjects").iter();
    let namespaces: Vec<&str> = subjects.filter_map(|subject| subject["namespace"].as_str()).collect();
    assert_eq!(namespaces, ["cinder-csi", "elsewhere"]);
}

#[tokio::test]
async fn first_operator_to_record_its_namespace_wins() {
    let world = World::managed();
    let stale = world.driver();
    world.api.change(DRIVER, "/metadata/generation", json!(1));
    let mut driver = world.api.get(DRIVER).expect("the driver");
    driver["status"] = json!({"operandNamespace": "cinder-csi"});
    world.api.put(DRIVER, driver);
    let beside = mk_beside(&world);
    let result = reconcile(Arc::new(GuardedObject(Ok(stale))), beside).await;
    result.expect("reconciled");
    assert!(world.api.paths_of(NAME).is_empty());
    assert_eq!(world.condition(ConditionType::Degraded).0, "True/OperandsElsewhere");
}

#[tokio::test]
async fn removal_deletes_records() {
    let world = World::new(mk_spec(), mk_index(&[], false));
    world.reconcile().await.expect("reconciled");
    world.api.change(DRIVER, "/spec/managementState", json!("Removed"));
    world.reconcile().await.expect("removed");
    let status = world.driver().status.expect("a status");
    assert_eq!((status.operand_namespace, status.places), (None, Vec::new()));
    let beside = mk_beside(&world);
    world.api.change(DRIVER, "/spec/managementState", json!("Managed"));
    reconcile_in(&world, &beside).await;
    assert!(
        world
            .api
            .get(&DAEMON_SET.replace("/cinder-csi/", "/elsewhere/"))
            .is_some()
    );
}
