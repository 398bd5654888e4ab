// SPDX-License-Identifier: Apache-2.0
//! Restores of a driver from a backup: all objects have new uids, other field managers and no status.

use cinder_csi_crds::OWNER_UID_ANNOTATION;

use super::*;

const RECORD: &str = "/api/v1/namespaces/cinder-csi/configmaps/cinder-csi-last-applied";
const NEW_UID: &str = "new-uid";

fn volumes() -> Index {
    let mut index = mk_index(&["pv1"], true);
    let since = "2026-01-01T00:00:00Z";
    let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]);
    let node = json!({"metadata": {"name": "n1", "labels": {"kubernetes.io/os": "linux"}, "creationTimestamp": since},
        "status": {"conditions": ready}});
    index.put(&serde_json::from_value::<cluster::NodeObject>(node).expect("a node"));
    index
}

/// Replaces all objects by the objects that a backup tool restores.
fn restore(world: &mut World) {
    for path in world.api.paths_of(NAME).iter().map(String::as_str).chain([DRIVER]) {
        let mut object = world.api.get(path).expect("the object");
        object.as_object_mut().expect("an object").remove("status");
        let metadata = object["metadata"].as_object_mut().expect("metadata");
        metadata.insert("uid".to_owned(), json!(format!("new-uid-of-{path}")));
        let managers = json!([{"manager": "velero-server", "operation": "Update", "fieldsV1": {}}]);
        metadata.insert("managedFields".to_owned(), managers);
        assert!(!metadata.contains_key("ownerReferences"), "{path} would be collected");
        world.api.put(path, object);
    }
    let mut driver = world.api.get(DRIVER).expect("the driver");
    driver["metadata"]["uid"] = json!(NEW_UID);
    driver["metadata"]["generation"] = json!(1);
    world.api.put(DRIVER, driver);
    world.restart(volumes());
    world.api.take_writes();
}

fn templates(world: &World) -> [Value; 2] {
    [DEPLOYMENT, DAEMON_SET].map(|path| world.api.get(path).expect("a workload")["spec"].take())
}

fn start_pods(world: &World) {
    for path in [DEPLOYMENT, DAEMON_SET] {
        let mut object = world.api.get(path).expect("a workload");
        object["status"] = json!({"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
            "desiredNumberScheduled": 1, "numberAvailable": 1, "observedGeneration": 1});
        world.api.put(path, object);
    }
}

#[tokio::test]
async fn restored_driver_becomes_ready() {
    let mut world = World::new(mk_spec(), volumes());
    for _ in 0..2 {
        world.reconcile().await.expect("reconciled");
    }
    let secret = world.api.get(OWN_SECRET).expect("the Secret")["data"].clone();
    let before = (templates(&world), world.api.paths_of(NAME));
    restore(&mut world);
    for _ in 0..3 {
        world.reconcile().await.expect("reconciled");
    }
    assert_eq!(deletes(&world.api.take_writes()), [""; 0]);
    assert_eq!((templates(&world), world.api.paths_of(NAME)), before);
    assert_eq!(world.api.get(OWN_SECRET).expect("the Secret")["data"], secret);
    for path in [DEPLOYMENT, DAEMON_SET, OWN_SECRET, RECORD] {
        let metadata = world.api.get(path).expect(path)["metadata"].take();
        assert_eq!(metadata["annotations"][OWNER_UID_ANNOTATION], NEW_UID, "{path}");
    }

    start_pods(&world);
    world.reconcile().await.expect("reconciled");
    let (verdict, message) = world.condition(ConditionType::Ready);
    assert_eq!(verdict, "True/AsExpected", "{message}");
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), Vec::<String>::new());
}

#[rstest]
#[case::with_csi_driver(true)]
#[case::without_csi_driver(false)]
#[tokio::test]
async fn restored_driver_rejects_other_project(#[case] has_csi_driver: bool) {
    let mut world = World::new(mk_spec(), volumes());
    for _ in 0..2 {
        world.reconcile().await.expect("reconciled");
    }
    restore(&mut world);
    if !has_csi_driver {
        world.api.remove(CSI_DRIVER);
    }
    let before = (
        templates(&world),
        world.api.get(OWN_SECRET).expect("the Secret")["data"].clone(),
    );
    world.set_password("elsewhere");
    for _ in 0..3 {
        world.reconcile().await.expect("reconciled");
    }
    assert_eq!(
        world.condition(ConditionType::CredentialsValid).0,
        "False/ProjectChanged"
    );
    let after = (
        templates(&world),
        world.api.get(OWN_SECRET).expect("the Secret")["data"].clone(),
    );
    assert_eq!(after, before);
    assert_eq!(deletes(&world.api.take_writes()), [""; 0]);
}
