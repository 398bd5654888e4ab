// SPDX-License-Identifier: Apache-2.0
//! Drivers that run in another namespace than the operator.

use super::*;

const ELSEWHERE: &str = "/api/v1/namespaces/drivers/secrets/openstack-credentials";

/// The status without the conditions about what nobody sees.
fn rest(world: &World) -> Value {
    let mut status = world.api.get(DRIVER).expect("the driver")["status"].clone();
    status["state"].take();
    let conditions = status["conditions"].as_array_mut().expect("conditions");
    conditions
        .retain(|one| !["Available", "Progressing", "Degraded"].contains(&one["type"].as_str().unwrap_or_default()));
    status
}

/// A driver that is to run in this namespace; its credentials are in `drivers`.
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
async fn a_driver_runs_where_its_spec_says_with_the_credentials_from_there() {
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
async fn in_a_namespace_that_the_operator_was_not_told_of_nothing_is_done_and_the_status_says_what_to_do() {
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
async fn where_the_role_is_missing_the_status_has_the_missing_right_and_a_deletion_waits_for_it() {
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
async fn a_driver_whose_namespace_is_no_longer_served_is_not_called_gone() {
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
async fn a_right_that_is_missing_in_the_whole_cluster_is_not_taken_for_one_of_the_namespace() {
    let world = mk("drivers");
    world.reconcile().await.expect("reconciled");
    world.api.hide("/persistentvolumes");
    world.delete();
    let error = world.reconcile().await.expect_err("nobody knows what needs the driver");
    assert!(error.to_string().contains("persistentvolumes"), "{error}");
}
