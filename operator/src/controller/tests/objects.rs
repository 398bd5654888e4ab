// SPDX-License-Identifier: Apache-2.0
//! Creation, repair and removal of the driver's objects.

use super::*;

#[tokio::test]
async fn new_driver_is_created_and_then_at_rest() {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    for path in [OWN_SECRET, DEPLOYMENT, DAEMON_SET, CLASS, CSI_DRIVER] {
        assert!(world.api.get(path).is_some(), "{path}");
    }
    assert_eq!(world.driver().finalizers(), [FINALIZER]);
    world.reconcile().await.expect("reconciled");
    world.api.take_writes();
    for _ in 0..3 {
        world.reconcile().await.expect("reconciled");
    }
    assert_eq!(world.api.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn only_the_changed_object_is_repaired() {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    world.reconcile().await.expect("reconciled");
    world.api.take_writes();
    world.api.change(DEPLOYMENT, "/spec/replicas", json!(0));
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), [format!("PATCH {DEPLOYMENT}")]);
    assert!(
        world
            .api
            .events()
            .iter()
            .any(|event| event.contains("DriftRepaired") && event.contains("spec.replicas"))
    );
}

#[tokio::test]
async fn deleted_object_is_recreated_and_reported() {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    world.api.remove(CSI_DRIVER);
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(CSI_DRIVER).is_some());
    let events = world.api.events();
    let restored = |event: &String| event.contains("Created") && event.contains("CSIDriver cinder.csi.openstack.org");
    assert!(events.iter().any(restored), "{events:?}");
}

#[tokio::test]
async fn added_object_is_not_reported_as_drift() {
    let mut spec = mk_spec();
    spec.network_policy.mode = NetworkPolicyMode::Disabled;
    let world = World::new(spec, mk_index(&[], true));
    world.reconcile().await.expect("reconciled");
    // The status is that of an installed driver, and the spec has not changed: an API can add objects at any time.
    world.api.change(DRIVER, "/status", {
        let mut status = world.api.get(DRIVER).expect("the driver")["status"].clone();
        status["version"] = json!(crate::args::VERSION);
        status
    });
    world
        .api
        .change(DRIVER, "/spec/networkPolicy", json!({"mode": "Enabled"}));
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    let writes = world.api.take_writes();
    assert!(
        writes.iter().any(|write| write.contains("networkpolicies")),
        "{writes:?}"
    );
    let events = world.api.events();
    assert!(
        !events.iter().any(|event| event.contains("DriftRepaired")),
        "{events:?}"
    );
}

#[tokio::test]
async fn foreign_storage_class_is_reported_and_not_changed() {
    let world = World::managed();
    let foreign = json!({"metadata": {"name": "cinder"}, "provisioner": "example.org/other"});
    world.api.put(CLASS, foreign.clone());
    let action = world.reconcile().await.expect("reconciled");
    assert_eq!(
        action,
        Action::requeue(OBSTACLE_PAUSE),
        "nobody tells when the foreign class goes"
    );
    assert_eq!(world.api.get(CLASS), Some(foreign));
    assert!(
        !world
            .api
            .take_writes()
            .iter()
            .any(|write| write.contains("storageclasses"))
    );
    assert!(world.api.get(DEPLOYMENT).is_some(), "the rest is made");
    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert_eq!(verdict, "True/OwnershipConflict");
    assert!(
        message.contains("StorageClass cinder") && message.contains("another name"),
        "{message}"
    );
}

#[tokio::test]
async fn interrupted_reconcile_is_completed_by_next_one() {
    let world = World::managed();
    world.api.break_writes_to(Some(CSI_DRIVER));
    let error = world.reconcile().await.expect_err("a write fails");
    assert!(error.to_string().contains("CSIDriver"), "{error}");
    assert!(
        world.api.get(DAEMON_SET).is_none(),
        "a later stage does not go before an earlier one"
    );
    assert_eq!(
        world
            .api
            .take_writes()
            .iter()
            .filter(|write| write.contains("deployments"))
            .count(),
        0
    );
    assert_eq!(world.condition(ConditionType::Degraded).0, "True/ApplyFailed");
    world.api.break_writes_to(None);
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(DAEMON_SET).is_some() && world.api.get(CSI_DRIVER).is_some());
    assert_eq!(world.condition(ConditionType::Degraded).0, "False/AsExpected");
}

#[tokio::test]
async fn unmanaged_driver_is_only_reported() {
    let mut spec = mk_spec();
    spec.management_state = ManagementState::Unmanaged;
    let world = World::new(spec, mk_index(&[], true));
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), [format!("PATCH {DRIVER}/status")]);
    world.delete();
    let mut metadata = world.api.get(DRIVER).expect("the driver")["metadata"].clone();
    metadata["finalizers"] = json!([FINALIZER]);
    world.api.change(DRIVER, "/metadata", metadata);
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), [format!("PATCH {DRIVER}/status")]);
    assert_eq!(world.condition(ConditionType::Progressing).0, "False/DeletionPaused");
}

#[tokio::test]
async fn object_missing_in_spec_is_removed() {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    world.api.take_writes();
    let classes = json!({"items": [{"name": "other"}]});
    let mut spec = world.api.get(DRIVER).expect("the driver")["spec"].clone();
    spec["storageClasses"] = classes;
    world.api.change(DRIVER, "/spec", spec);
    world.reconcile().await.expect("reconciled");
    assert_eq!(deletes(&world.api.take_writes()), [CLASS]);
    assert!(world.api.get(SOURCE).is_some(), "what the administrator made stays");
}

#[tokio::test]
async fn deleted_driver_gets_no_objects() {
    let world = World::managed();
    let driver = world.driver();
    world.api.remove(DRIVER);
    let result = reconcile(Arc::new(GuardedObject(Ok(driver))), Arc::clone(&world.context)).await;
    assert_eq!(result.expect("reconciled"), Action::await_change());
    assert_eq!(world.api.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn copy_of_object_is_never_deleted() {
    let world = World::new(mk_spec(), mk_index(&[], false));
    world.reconcile().await.expect("reconciled");
    let mut copy = world.api.get(CLASS).expect("the class");
    copy["metadata"]["name"] = json!("copy");
    copy["metadata"]["managedFields"] = json!([{"manager": "kubectl-client-side-apply", "operation": "Update"}]);
    let path = CLASS.replace("/cinder", "/copy");
    world.api.put(&path, copy);
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(&path).is_some(), "it is not pruned");
    world.delete();
    world.reconcile().await.expect("reconciled");
    assert!(world.driver().finalizers().is_empty(), "the removal is over");
    assert!(world.api.get(CLASS).is_none() && world.api.get(&path).is_some());
}

#[tokio::test]
async fn recreated_class_retains_default_annotation() {
    const MARK: &str = "storageclass.kubernetes.io/is-default-class";
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    let mut class = world.api.get(CLASS).expect("the class");
    class["metadata"]["annotations"][MARK] = json!("true");
    class["reclaimPolicy"] = json!("Retain");
    world.api.put(CLASS, class);
    world.reconcile().await.expect("reconciled");
    let class = world.api.get(CLASS).expect("the class");
    assert_eq!(class["reclaimPolicy"], "Delete");
    assert_eq!(class["metadata"]["annotations"][MARK], "true");
}

#[tokio::test]
async fn new_node_does_not_affect_availability() {
    let mut index = mk_index(&[], true);
    let mut put = |name: &str, since: &str, drivers: Value| {
        let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/os": "linux"}, "creationTimestamp": since},
            "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}]}});
        index.put(&serde_json::from_value::<cluster::NodeObject>(node).expect("a node"));
        let registration = json!({"metadata": {"name": name}, "spec": {"drivers": drivers}});
        index.put(&serde_json::from_value::<cluster::RegistrationObject>(registration).expect("a CSINode"));
    };
    put("n1", "2026-01-01T00:00:00Z", json!([{"name": NAME}]));
    put("n2", &Sources::system().now().to_string(), json!([]));
    let world = World::new(mk_spec(), index);
    world.reconcile().await.expect("reconciled");
    for path in [DEPLOYMENT, DAEMON_SET] {
        let mut object = world.api.get(path).expect("a workload");
        object["status"] = json!({"availableReplicas": 1, "desiredNumberScheduled": 2, "numberAvailable": 1});
        world.api.put(path, object);
    }
    let mut status = world.api.get(DRIVER).expect("the driver")["status"].take();
    status["version"] = json!(crate::args::VERSION);
    world.api.change(DRIVER, "/status", status);
    let action = world.reconcile().await.expect("reconciled");
    assert_eq!(world.condition(ConditionType::Available).0, "True/AsExpected");
    assert_eq!(world.condition(ConditionType::Progressing).0, "True/RollingOut");
    assert_ne!(action, Action::await_change(), "its time ends without an event");
}

#[rstest]
#[case::of_the_operators_choice(&[], "ContainersMissing")]
#[case::of_the_spec(&["csi-attacher", "csi-provisioner"], "")]
#[tokio::test]
async fn missing_containers_make_driver_unavailable(#[case] disabled: &[&str], #[case] reason: &str) {
    let world = World::managed();
    let mut spec = world.api.get(DRIVER).expect("the driver")["spec"].clone();
    let settings = disabled.iter().map(|name| json!({"name": name, "enabled": false}));
    spec["controller"]["sidecars"] = settings.collect();
    world.api.change(DRIVER, "/spec", spec);
    world.reconcile().await.expect("reconciled");
    let mut deployment = world.api.get(DEPLOYMENT).expect("the controller");
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array_mut();
    containers
        .expect("containers")
        .retain(|container| container["name"] != "csi-attacher");
    deployment["status"] = json!({"availableReplicas": 1});
    world.api.put(DEPLOYMENT, deployment);
    world.api.change(DRIVER, "/spec/managementState", json!("Paused"));
    world.reconcile().await.expect("reconciled");
    let (verdict, message) = world.condition(ConditionType::Available);
    assert_eq!(
        verdict == "False/ContainersMissing",
        reason == "ContainersMissing",
        "{verdict}: {message}"
    );
}
