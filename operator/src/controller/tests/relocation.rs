// SPDX-License-Identifier: Apache-2.0
//! The move of a driver to the namespace of a different operator.

use super::{
    namespaces::{mk_beside, mk_resting, reconcile_in},
    *,
};

const BINDING: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/cinder-csi-attacher";

fn at_new(path: &str) -> String {
    path.replace("/cinder-csi/", "/elsewhere/")
}

fn confirm(world: &World) {
    let metadata = world.api.get(DRIVER).expect("the driver")["metadata"].clone();
    let mut metadata = metadata;
    metadata["annotations"]["csi.openstack.org/move-namespace"] = json!("driver-uid");
    world.api.change(DRIVER, "/metadata", metadata);
}

/// The operator in the new namespace, which serves the former one.
fn mk_mover(world: &World) -> Arc<Context> {
    let mut mover = mk_beside(world);
    let context = Arc::get_mut(&mut mover).expect("not shared");
    context.operand_namespaces = vec!["cinder-csi".to_owned()];
    mover
}

/// A driver at rest whose operator was uninstalled, with credentials in the new namespace.
async fn mk_left() -> World {
    let world = mk_resting().await;
    world.context.leases.release_all().await;
    let secret = world.api.get(SOURCE).expect("the credentials");
    world.api.put(&at_new(SOURCE), secret);
    let sidecar = "/apis/coordination.k8s.io/v1/namespaces/cinder-csi/leases/cinder-csi-openstack-org";
    world
        .api
        .put(sidecar, json!({"metadata": {"name": "cinder-csi-openstack-org"}}));
    world
}

fn subjects(world: &World) -> Vec<String> {
    let binding = world.api.get(BINDING).expect("the binding");
    let subjects = binding["subjects"].as_array().into_iter().flatten();
    let namespaces = subjects.filter_map(|subject| subject["namespace"].as_str());
    namespaces.map(str::to_owned).collect()
}

/// Whether the driver is in the new namespace, and the former one contains none of its objects.
fn is_complete(world: &World) -> bool {
    let former: Vec<String> = world
        .api
        .paths()
        .into_iter()
        .filter(|path| path.contains("/cinder-csi/"))
        .collect();
    let records = world.driver().status.and_then(|status| status.operand_namespace);
    let annotation = world.api.get(CSI_DRIVER).expect("the CSIDriver")["metadata"]["annotations"]
        ["csi.openstack.org/operand-namespace"]
        .clone();
    former == [SOURCE]
        && records.as_deref() == Some("elsewhere")
        && annotation == "elsewhere"
        && [DEPLOYMENT, DAEMON_SET, OWN_SECRET, LEASE]
            .iter()
            .all(|path| world.api.get(&at_new(path)).is_some())
        && !world
            .driver()
            .annotations()
            .contains_key("csi.openstack.org/move-namespace")
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn confirmed_move_deletes_former_objects(#[values(false, true)] restarts: bool) {
    let world = mk_left().await;
    confirm(&world);
    let mut mover = mk_mover(&world);
    for _ in 0..20 {
        if world.api.get(DEPLOYMENT).is_some() {
            assert!(subjects(&world).contains(&"cinder-csi".to_owned()));
            assert_eq!(world.api.get(&at_new(DEPLOYMENT)), None);
        }
        reconcile_in(&world, &mover).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        if restarts {
            mover = mk_mover(&world);
        }
    }
    assert!(is_complete(&world), "{:?}", world.api.paths());
    let mut deployment = world.api.get(&at_new(DEPLOYMENT)).expect("the controller");
    deployment["status"] =
        json!({"observedGeneration": 1, "availableReplicas": 1, "updatedReplicas": 1, "replicas": 1});
    world.api.put(&at_new(DEPLOYMENT), deployment);
    reconcile_in(&world, &mover).await;
    assert_eq!(subjects(&world), ["elsewhere"]);
    assert_ne!(world.condition(ConditionType::Degraded).0, "True/OperandsElsewhere");
}

#[tokio::test(start_paused = true)]
async fn move_survives_crash_at_every_write() {
    for writes in 0..100 {
        let world = mk_left().await;
        confirm(&world);
        world.api.cut_writes_to("/", writes);
        let mover = mk_mover(&world);
        for _ in 0..3 {
            let driver = GuardedObject(Ok(world.driver()));
            drop(reconcile(Arc::new(driver), Arc::clone(&mover)).await);
        }
        let is_done = !world
            .driver()
            .annotations()
            .contains_key("csi.openstack.org/move-namespace");
        drop(mover);
        world.api.cut_writes_to("/", usize::MAX);
        let mover = mk_mover(&world);
        for _ in 0..20 {
            let driver = GuardedObject(Ok(world.driver()));
            drop(reconcile(Arc::new(driver), Arc::clone(&mover)).await);
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        assert!(is_complete(&world), "after {writes} writes: {:?}", world.api.paths());
        if is_done {
            return;
        }
    }
    panic!("the move needs more writes");
}

fn keep_holder(_: &World) {}

fn remove_secret(world: &World) {
    world.api.remove(&at_new(SOURCE));
}

#[rstest]
#[case::other_uid(true, "another", keep_holder, "Install the operator in namespace cinder-csi")]
#[case::credentials_are_missing(true, "driver-uid", remove_secret, "has not begun")]
#[case::holder_still_acts(false, "driver-uid", keep_holder, "Install the operator in namespace cinder-csi")]
#[tokio::test]
async fn move_waits_for_its_conditions(
    #[case] is_left: bool,
    #[case] uid: &str,
    #[case] prepare: fn(&World),
    #[case] report: &str,
) {
    let world = if is_left { mk_left().await } else { mk_resting().await };
    let secret = world.api.get(SOURCE).expect("the credentials");
    world.api.put(&at_new(SOURCE), secret);
    confirm(&world);
    world.api.change(
        DRIVER,
        "/metadata/annotations/csi.openstack.org~1move-namespace",
        json!(uid),
    );
    prepare(&world);
    world.api.take_writes();
    let mover = mk_mover(&world);
    for _ in 0..3 {
        reconcile_in(&world, &mover).await;
    }
    let mut writes = world.api.take_writes();
    writes.retain(|write| *write != format!("PATCH {DRIVER}/status"));
    assert_eq!(writes, Vec::<String>::new());
    assert_eq!(world.api.get(&at_new(LEASE)), None);
    let reports = [world.condition(ConditionType::Degraded).1, world.api.events().join(" ")];
    assert!(reports.iter().any(|one| one.contains(report)), "{reports:?}");
}
