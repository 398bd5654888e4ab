// SPDX-License-Identifier: Apache-2.0
//! The Lease of an object: its holder, and the end of its validity.

use super::{
    namespaces::{mk_beside, mk_resting, reconcile_in},
    *,
};

const DRIVERS_LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/drivers/leases/cinder-csi-operator.cinder.csi.openstack.org";

/// The holder of the Lease in the operator's namespace.
pub(super) fn holder(world: &World) -> String {
    let lease = world.api.get(LEASE).expect("the Lease");
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

/// Another installation of the operator in the same namespace.
fn mk_second(world: &World) -> Arc<Context> {
    let mut context = World::mk_context(&world.api, Cluster::fixed(mk_index(&[], true)));
    context.leases = World::mk_leases(&world.api, "cinder-csi", "second");
    Arc::new(context)
}

/// Whether an operator repairs the driver.
async fn repairs(world: &World, context: &Arc<Context>) -> bool {
    world.api.remove(DAEMON_SET);
    reconcile_in(world, context).await;
    world.api.get(DAEMON_SET).is_some()
}

async fn advance(seconds: u64) {
    // The time advances in steps, so that the renewals take place.
    for _ in 0..seconds {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn second_operator_in_same_namespace_suspends() {
    let world = mk_resting().await;
    let second = mk_second(&world);
    for _ in 0..10 {
        reconcile_in(&world, &second).await;
        world.reconcile().await.expect("reconciled");
        advance(30).await;
    }
    assert_eq!(world.api.take_writes(), Vec::<String>::new());
    assert_eq!(holder(&world), world.context.leases.identity());
    assert_eq!(world.condition(ConditionType::Degraded).0, "False/AsExpected");
    let events = world.api.events();
    let report = format!("{} holds Lease cinder-csi/cinder-csi-operator.{NAME}", holder(&world));
    let reports = events.iter().filter(|event| event.contains(&report));
    assert_eq!(reports.count(), 1, "{events:?}");
    assert!(
        events.iter().any(|event| event.contains("uninstall one of the two")),
        "{events:?}"
    );
    assert!(!repairs(&world, &second).await);
    assert!(repairs(&world, &world.context).await);
}

#[tokio::test(start_paused = true)]
async fn crashed_operator_is_replaced_after_its_lease() {
    let mut world = mk_resting().await;
    let second = mk_second(&world);
    world.context = Arc::clone(&second);
    let begun = Instant::now();
    while !repairs(&world, &second).await {
        advance(5).await;
        assert!(begun.elapsed() < Duration::from_secs(70), "{:?}", begun.elapsed());
    }
    assert!(begun.elapsed() > Duration::from_mins(1), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn restored_lease_is_awaited() {
    let mut world = mk_resting().await;
    let restored = json!({"metadata": {"name": "old", "namespace": "cinder-csi", "resourceVersion": "1",
            "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "old"}]},
        "spec": {"holderIdentity": "another/cluster/pod", "leaseDurationSeconds": i32::MAX, "renewTime": "2100-01-01T00:00:00.000000Z"}});
    let second = mk_second(&world);
    world.context = Arc::clone(&second);
    world.api.put(LEASE, restored);
    assert!(!repairs(&world, &second).await);
    advance(290).await;
    assert!(!repairs(&world, &second).await);
    advance(20).await;
    assert!(repairs(&world, &second).await);
    let lease = world.api.get(LEASE).expect("the Lease");
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], "driver-uid");
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 60);
}

#[tokio::test]
async fn released_lease_is_acquired_immediately() {
    let world = mk_resting().await;
    world.context.leases.release_all().await;
    assert_eq!(holder(&world), "");
    let second = mk_second(&world);
    assert!(repairs(&world, &second).await);
    assert_eq!(holder(&world), second.leases.identity());
    assert!(!repairs(&world, &world.context).await);
}

#[tokio::test]
async fn leader_acquires_leases_of_predecessors() {
    let mut world = mk_resting().await;
    let former = holder(&world);
    world.restart(mk_index(&[], true));
    assert!(repairs(&world, &world.context).await);
    assert_ne!(holder(&world), former);
}

fn take(world: &World) {
    let mut lease = world.api.get(LEASE).expect("the Lease");
    lease["metadata"]["resourceVersion"] = json!("taken");
    lease["spec"]["holderIdentity"] = json!("another");
    world.api.put(LEASE, lease);
}

fn refuse_renewals(world: &World) {
    world.api.break_writes_to(Some("/leases"));
}

#[rstest]
#[case::taken(take, 0)]
#[case::not_renewed(refuse_renewals, 20)]
#[tokio::test(start_paused = true)]
async fn lost_lease_stops_reconcile(#[case] lose: fn(&World), #[case] before: u64) {
    let mut world = mk_resting().await;
    Arc::get_mut(&mut world.context).expect("not shared").reconcile_timeout = Duration::from_mins(10);
    // The login does not end.
    world.set_password("unheard");
    world.api.remove(DAEMON_SET);
    let status = world.driver().status;
    lose(&world);
    advance(before).await;
    let begun = Instant::now();
    let lost = world.reconcile().await.expect_err("lost");
    assert!(matches!(lost, ReconcileError::LeaseLost(_)), "{lost}");
    assert!(begun.elapsed() <= Duration::from_secs(21), "{:?}", begun.elapsed());
    world.set_password("good");
    drop(world.reconcile().await);
    assert_eq!(world.api.take_writes(), Vec::<String>::new());
    assert_eq!(world.driver().status, status);
}

#[tokio::test]
async fn unreadable_lease_suspends() {
    let mut world = mk_resting().await;
    world.restart(mk_index(&[], true));
    world.api.hide("/leases");
    world.api.remove(DAEMON_SET);
    world.reconcile().await.expect_err("the holder is unknown");
    assert_eq!(world.api.take_writes(), Vec::<String>::new());
    let events = world.api.events();
    assert!(
        events.iter().any(|event| event.contains("cannot read lease")),
        "{events:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn deleted_lease_stays_with_its_holder() {
    let world = mk_resting().await;
    let second = mk_second(&world);
    for _ in 0..10 {
        world.api.remove(LEASE);
        for _ in 0..5 {
            assert!(!repairs(&world, &second).await);
            advance(5).await;
        }
        assert_eq!(holder(&world), world.context.leases.identity());
    }
    assert!(repairs(&world, &world.context).await);
}

#[tokio::test(start_paused = true)]
async fn missing_lease_is_created_after_pause() {
    let mut world = mk_resting().await;
    world.restart(mk_index(&[], true));
    world.api.remove(LEASE);
    assert!(!repairs(&world, &world.context).await);
    advance(20).await;
    assert!(repairs(&world, &world.context).await);
}

#[rstest]
#[case::of_the_whole("Delete")]
#[case::of_the_marks("Orphan")]
#[tokio::test]
async fn removal_deletes_lease_last(#[case] policy: &str) {
    let world = World::new(mk_spec(), mk_index(&[], false));
    world.reconcile().await.expect("reconciled");
    let mut spec = world.api.get(DRIVER).expect("the driver")["spec"].clone();
    if policy == "Orphan" {
        spec["deletion"] = json!({"policy": policy});
    }
    world.api.change(DRIVER, "/spec", spec);
    world.delete();
    world.api.take_all_writes();
    world.reconcile().await.expect("removed");
    assert!(world.driver().finalizers().is_empty());
    assert_eq!(world.api.get(LEASE), None);
    let writes = world.api.take_all_writes();
    let last: Vec<&str> = writes.iter().rev().take(2).map(String::as_str).collect();
    assert_eq!(
        last,
        [format!("DELETE {LEASE}"), format!("PATCH {DRIVER}")],
        "{writes:?}"
    );
}

fn mk_in_drivers() -> World {
    let mut spec = mk_spec();
    spec.operand_namespace = Some("drivers".to_owned());
    let world = World::new(spec, mk_index(&[], false));
    let secret = world.api.get(SOURCE).expect("the credentials");
    world.api.put(&SOURCE.replace("/cinder-csi/", "/drivers/"), secret);
    world
}

#[tokio::test(start_paused = true)]
async fn terminating_namespace_permits_removal_only() {
    let mut world = mk_in_drivers();
    world.reconcile().await.expect("reconciled");
    world.restart(mk_index(&[], false));
    world.api.remove(DRIVERS_LEASE);
    world.api.terminate("drivers");
    world.api.take_writes();
    for _ in 0..3 {
        world.reconcile().await.expect("suspended");
        advance(20).await;
    }
    assert_eq!(world.api.take_writes(), [format!("PATCH {DRIVER}/status")]);
    assert_eq!(
        world.condition(ConditionType::Degraded).0,
        "True/OperandNamespaceForbidden"
    );
    world.delete();
    for _ in 0..3 {
        world.reconcile().await.expect("removed");
    }
    assert!(world.driver().finalizers().is_empty());
    assert!(world.api.paths_of(NAME).is_empty());
}

#[tokio::test]
async fn operator_without_the_namespace_writes_no_status() {
    let world = mk_in_drivers();
    world.reconcile().await.expect("reconciled");
    world.reconcile().await.expect("reconciled");
    world.api.take_writes();
    let beside = mk_beside(&world);
    for _ in 0..3 {
        reconcile_in(&world, &beside).await;
        world.reconcile().await.expect("reconciled");
    }
    assert_eq!(world.api.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn unreadable_object_is_reported_by_its_holder() {
    let world = mk_resting().await;
    let second = mk_second(&world);
    world.api.change(DRIVER, "/spec/managementState", json!("Frozen"));
    let watched =
        || -> Watched { serde_json::from_value(world.api.get(DRIVER).expect("the driver")).expect("metadata") };
    reconcile(Arc::new(watched()), second).await.expect_err("unreadable");
    assert_eq!(world.api.take_writes(), Vec::<String>::new());
    let holder = Arc::clone(&world.context);
    reconcile(Arc::new(watched()), holder).await.expect_err("unreadable");
    assert_eq!(world.api.take_writes(), [format!("PATCH {DRIVER}/status")]);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn idle_operator_writes_only_its_renewals(#[values("Managed", "Paused", "DryRun", "Unmanaged")] state: &str) {
    let world = mk_resting().await;
    world.api.change(DRIVER, "/spec/managementState", json!(state));
    world.reconcile().await.expect("reconciled");
    world.reconcile().await.expect("reconciled");
    world.api.take_all_writes();
    advance(300).await;
    let writes = world.api.take_all_writes();
    assert!(
        writes.iter().all(|write| *write == format!("PUT {LEASE}")),
        "{writes:?}"
    );
    assert!((19..=21).contains(&writes.len()), "{}", writes.len());
    assert_eq!(world.api.take_reads().iter().filter(|read| *read == LEASE).count(), 1);
}
