//! The snapshot-controller that an earlier version of the operator ran: whatever becomes of the driver, it stays.

use cinder_csi_crds::INSTANCE_LABEL;

use super::*;
use crate::operands::COMPONENT_LABEL;

const OWN_DEPLOYMENT: &str = "/apis/apps/v1/namespaces/cinder-csi/deployments/cinder-csi-snapshot-controller";
const OWN_ACCOUNT: &str = "/api/v1/namespaces/cinder-csi/serviceaccounts/cinder-csi-snapshot-controller";
const OWN_ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/cinder-csi-snapshot-controller";
const RELEASED: &str = "Normal SnapshotControllerReleased";

impl World {
    /// Puts it there with the marks of the operator, after a reconcile.
    pub(super) fn put_snapshot_controller(&self) {
        for (model, path) in [
            (DEPLOYMENT, OWN_DEPLOYMENT),
            (
                "/api/v1/namespaces/cinder-csi/serviceaccounts/cinder-csi-controller",
                OWN_ACCOUNT,
            ),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/cinder-csi-provisioner",
                OWN_ROLE,
            ),
        ] {
            let mut object = self.api.get(model).expect("what the operator made");
            object["metadata"]["name"] = json!("cinder-csi-snapshot-controller");
            object["metadata"]["uid"] = json!(path);
            object["metadata"]["labels"][COMPONENT_LABEL] = json!("snapshot-controller");
            self.api.put(path, object);
        }
    }

    fn has_mark(&self, path: &str) -> bool {
        let object = self.api.get(path).unwrap_or_else(|| panic!("{path} is gone"));
        object["metadata"]["labels"][INSTANCE_LABEL].is_string()
    }

    fn releases(&self) -> usize {
        let events = self.api.kinds_of_events();
        events.iter().filter(|event| *event == RELEASED).count()
    }
}

/// A driver that the operator has made, beside the snapshot-controller.
async fn mk_world() -> World {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    world.reconcile().await.expect("reconciled");
    world.put_snapshot_controller();
    world.api.take_writes();
    world
}

#[tokio::test]
async fn the_operator_releases_it_once_and_then_writes_nothing() {
    let world = mk_world().await;
    let spec = world.api.get(OWN_DEPLOYMENT).expect("the Deployment")["spec"].clone();
    world.reconcile().await.expect("reconciled");
    assert_eq!(
        world.api.take_writes(),
        [OWN_ROLE, OWN_ACCOUNT, OWN_DEPLOYMENT].map(|path| format!("PATCH {path}"))
    );
    for path in [OWN_DEPLOYMENT, OWN_ACCOUNT, OWN_ROLE] {
        assert!(!world.has_mark(path), "{path}");
    }
    assert_eq!(world.api.get(OWN_DEPLOYMENT).expect("the Deployment")["spec"], spec);
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), Vec::<String>::new());
    assert_eq!(world.releases(), 1);
}

#[tokio::test]
async fn a_release_that_is_cut_short_begins_again() {
    let world = mk_world().await;
    world.api.break_writes_to(Some(OWN_DEPLOYMENT));
    world.reconcile().await.expect("reconciled");
    assert!(world.has_mark(OWN_DEPLOYMENT) && !world.has_mark(OWN_ROLE));
    assert_eq!(world.releases(), 0);
    world.api.break_writes_to(None);
    world.reconcile().await.expect("reconciled");
    assert!(!world.has_mark(OWN_DEPLOYMENT));
    assert_eq!(world.releases(), 1);
}

#[tokio::test]
async fn a_role_that_the_operator_may_not_write_keeps_its_marks_and_stays() {
    let world = mk_world().await;
    world.api.break_writes_to(Some(OWN_ROLE));
    world.reconcile().await.expect("reconciled");
    assert!(world.has_mark(OWN_ROLE) && !world.has_mark(OWN_DEPLOYMENT));
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), Vec::<String>::new());
    assert!(world.has_mark(OWN_ROLE));
    assert_eq!(world.releases(), 1);
}

#[tokio::test]
async fn where_nothing_may_be_changed_it_keeps_its_marks() {
    let world = mk_world().await;
    world
        .api
        .change(DRIVER, "/spec/managementState", json!(ManagementState::Paused));
    world.reconcile().await.expect("reconciled");
    assert!(world.has_mark(OWN_DEPLOYMENT) && world.has_mark(OWN_ROLE));
    assert_eq!(world.releases(), 0);
}

#[tokio::test]
async fn a_removal_of_the_driver_leaves_it_running() {
    let world = World::new(mk_spec(), mk_index(&[], false));
    world.reconcile().await.expect("reconciled");
    world.put_snapshot_controller();
    world
        .api
        .change(DRIVER, "/spec/managementState", json!(ManagementState::Removed));
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.condition(ConditionType::Available).0, "False/Removed");
    assert!(world.api.get(DEPLOYMENT).is_none() && world.api.get(CSI_DRIVER).is_none());
    for path in [OWN_DEPLOYMENT, OWN_ACCOUNT, OWN_ROLE] {
        assert!(!world.has_mark(path), "{path}");
    }
}

#[rstest]
#[case::none(None, "False/ControllerMissing", 30)]
#[case::one_without_a_pod(Some(0), "False/ControllerDown", 30)]
#[case::one_that_works(Some(1), "True/AsExpected", 300)]
#[tokio::test]
async fn whether_one_works_is_looked_at_again_while_none_does(
    #[case] available: Option<i32>,
    #[case] verdict: &str,
    #[case] seconds: u64,
) {
    let apis = [OptionalApi::Snapshots].into_iter().collect();
    let world = World::on(mk_spec(), Cluster::fixed(mk_index(&[], true)).serving(apis));
    world.api.put("/apis/snapshot.storage.k8s.io/v1", json!({}));
    let deployment = |available| {
        json!({"metadata": {"name": "snapshot-controller", "namespace": "kube-system"},
            "status": {"availableReplicas": available}})
    };
    let deployments: Vec<Value> = available.map(deployment).into_iter().collect();
    for (path, items) in [
        ("/apis/apps/v1/deployments", json!(deployments)),
        ("/apis/coordination.k8s.io/v1/leases", json!([])),
    ] {
        let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items});
        world.api.put(path, list);
    }
    let action = world.reconcile().await.expect("reconciled");
    assert_eq!(world.condition(ConditionType::SnapshotsReady).0, verdict);
    assert_eq!(action, Action::requeue(Duration::from_secs(seconds) + A_MOMENT));
}
