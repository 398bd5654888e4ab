// SPDX-License-Identifier: Apache-2.0
//! Maintenance of a driver while an update of the version waits.

use cinder_operator_core::{
    cluster::{COMPONENT_LABEL, VERSION_LABEL},
    rollout::STANDS_FOR,
};

use super::*;

const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/cinder-csi-provisioner";
const REPLICA_SET: &str = "/apis/apps/v1/namespaces/cinder-csi/replicasets/old";
const REVISION: &str = "/apis/apps/v1/namespaces/cinder-csi/controllerrevisions/old";

/// A driver of a different version whose update waits.
async fn held(version: &str) -> World {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    for path in [DEPLOYMENT, DAEMON_SET] {
        let label = format!("/metadata/labels/{}", VERSION_LABEL.replace('/', "~1"));
        world.api.change(path, &label, json!(version));
    }
    world.api.change(DRIVER, "/spec/update", json!({"policy": "Manual"}));
    world.reconcile().await.expect("reconciled");
    assert_ne!(
        world.driver().status.expect("a status").rollout,
        None,
        "the update waits"
    );
    world.api.take_writes();
    world
}

#[rstest]
#[case::not_approved("0.0.1")]
#[case::back("99.0.0")]
#[tokio::test]
async fn objects_without_pods_are_recreated(#[case] version: &str) {
    let world = held(version).await;
    let before = (world.api.get(DEPLOYMENT), world.api.get(DAEMON_SET));
    let paths = world.api.paths_of(NAME);
    let paths: Vec<&String> = paths
        .iter()
        .filter(|path| ![DEPLOYMENT, DAEMON_SET].contains(&path.as_str()))
        .collect();
    assert!(paths.len() > 10, "{paths:?}");
    for path in &paths {
        world.api.remove(path);
    }
    world.reconcile().await.expect("reconciled");
    for path in paths {
        assert!(world.api.get(path).is_some(), "{path}");
    }
    assert_eq!((world.api.get(DEPLOYMENT), world.api.get(DAEMON_SET)), before);
}

#[tokio::test]
async fn role_is_repaired_and_retains_foreign_rules() {
    let world = held("99.0.0").await;
    let other = json!({"apiGroups": ["example.org"], "resources": ["x"], "verbs": ["get"]});
    world.api.change(ROLE, "/rules", json!([other]));
    world.reconcile().await.expect("reconciled");
    let rules = world.api.get(ROLE).expect("the role")["rules"].clone();
    let rules = rules.as_array().expect("rules");
    assert!(rules.len() > 1 && rules.contains(&other), "{rules:?}");
    world.reconcile().await.expect("reconciled");
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    assert_eq!(
        world.api.take_writes(),
        Vec::<String>::new(),
        "at rest nothing is written"
    );
}

#[rstest]
#[case::the_controller(DEPLOYMENT)]
#[case::the_nodes(DAEMON_SET)]
#[tokio::test]
async fn deleted_workload_is_recreated_from_newest_revision(#[case] path: &str) {
    let world = held("0.0.1").await;
    let template = |component: &str| {
        json!({"metadata": {"labels": {(COMPONENT_LABEL): component}},
            "spec": {"containers": [{"name": "cinder-csi-driver", "image": "old"}]}})
    };
    let labels = |component: &str| json!({"csi.openstack.org/instance": NAME, (COMPONENT_LABEL): component});
    world.api.put(
        REPLICA_SET,
        json!({"metadata": {"name": "old", "labels": labels("controller"), "annotations": {"deployment.kubernetes.io/revision": "3"}},
            "spec": {"selector": {}, "template": template("controller")}}),
    );
    world.api.put(
        REVISION,
        json!({"metadata": {"name": "old", "labels": labels("node")}, "revision": 3,
            "data": {"spec": {"template": template("node")}}}),
    );
    world.api.remove(path);
    world.reconcile().await.expect("reconciled");
    let made = world.api.get(path).expect("it is back");
    assert_eq!(made["spec"]["template"]["spec"]["containers"][0]["image"], "old");
    assert_eq!(made["metadata"]["labels"][VERSION_LABEL], "0.0.1");
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.get(path), Some(made), "it stays so");
    assert_eq!(world.condition(ConditionType::Progressing).0, "True/WaitingForApproval");
}

#[rstest]
#[case::the_controller(DEPLOYMENT, DAEMON_SET)]
#[case::the_nodes(DAEMON_SET, DEPLOYMENT)]
#[tokio::test]
async fn workload_without_revision_is_recreated_without_update(#[case] path: &str, #[case] other: &str) {
    let world = held("99.0.0").await;
    let before = world.api.get(other);
    world.api.remove(path);
    world.reconcile().await.expect("reconciled");
    let made = world.api.get(path).expect("it is back");
    assert_eq!(made["metadata"]["annotations"][STANDS_FOR], "99.0.0");
    let events = world.api.kinds_of_events();
    assert!(events.contains(&"Warning VersionMixed".to_owned()), "{events:?}");
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.get(other), before);
    assert_eq!(world.condition(ConditionType::Degraded).0, "True/DowngradeRefused");

    let update = json!({"policy": "Manual", "approvedVersion": crate::args::VERSION, "allowDowngrade": true});
    world.api.change(DRIVER, "/spec/update", update);
    world.reconcile().await.expect("reconciled");
    let stands_for = world.api.get(path).expect("the object")["metadata"]["annotations"][STANDS_FOR].clone();
    // The nodes wait for the controller.
    assert_eq!(stands_for.is_null(), path == DEPLOYMENT, "{stands_for}");
}
