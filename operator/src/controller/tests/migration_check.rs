// SPDX-License-Identifier: Apache-2.0
//! The check before the replacement of an existing driver.

use cinder_csi_crds::AdoptionMode;

use super::{
    migration::{OLD, accept_findings, beside_another, shown_to_start, theirs},
    *,
};
use crate::{
    controller::memory::ObjectMemory,
    migration::{
        Successor, adoption_check,
        pauses::{CHECK_PAUSE, ELSEWHERE_PAUSE, OPEN_CHECK_PAUSE},
    },
};

/// A driver next to a Go driver with its own configuration, whose findings are not accepted.
fn beside_a_kept_one() -> World {
    let world = beside_another(ManagementState::Managed, "good");
    accept_findings(&world, false);
    let secret = json!({"name": "conf", "secret": {"secretName": "cloud-config"}});
    let arguments = [
        "/bin/cinder-csi-plugin",
        "--endpoint=$(ENDPOINT)",
        "--cluster=$(CLUSTER)",
        "--cloud-config=/etc/config/cloud.conf",
    ];
    let variables =
        json!([{"name": "ENDPOINT", "value": "unix:///csi/csi.sock"}, {"name": "CLUSTER", "value": "prod"}]);
    let container = json!({"name": "driver", "image": "mirror/cinder-csi-plugin:v1", "args": arguments, "env": variables,
        "volumeMounts": [{"name": "conf", "mountPath": "/etc/config"}]});
    let pod = json!({"containers": [container], "volumes": [secret]});
    world.api.change(OLD, "/spec/template/spec", pod);
    let conf = "[Global]\npassword=topsecret\nca-file=/etc/topsecret\n";
    world.api.put(
        "/api/v1/namespaces/kube-system/secrets/cloud-config",
        json!({"metadata": {"name": "cloud-config"}, "data": {"cloud.conf": k8s_openapi::ByteString(conf.into())}}),
    );
    for (name, modes, volume_mode) in [
        ("shared", json!(["ReadWriteMany"]), "Filesystem"),
        ("raw", json!(["ReadWriteMany"]), "Block"),
        ("single", json!(["ReadWriteOnce"]), "Filesystem"),
    ] {
        let volume = json!({"metadata": {"name": name}, "spec": {"csi": {"driver": NAME, "volumeHandle": name}, "accessModes": modes,
            "volumeMode": volume_mode, "claimRef": {"namespace": "n", "name": name}}});
        let watched: cluster::VolumeObject = serde_json::from_value(volume.clone()).expect("a volume");
        world.context.cluster.change(|index| drop(index.put(&watched)));
        world.api.put(&format!("/api/v1/persistentvolumes/{name}"), volume);
    }
    world
}

/// The message of condition Degraded while findings stop the migration.
fn held_up(world: &World) -> String {
    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert_eq!(verdict, "True/MigrationHeldUp", "{message}");
    assert!(!message.contains("topsecret"), "{message}");
    message
}

#[tokio::test(start_paused = true)]
async fn open_findings_block_migration_until_accepted() {
    let world = beside_a_kept_one();
    world.reconcile().await.expect("reconciled");
    let message = held_up(&world);
    for subject in ["PersistentVolumes with ReadWriteMany", "--cluster", "[Global] ca-file"] {
        assert!(message.contains(subject), "no {subject} in {message}");
    }
    for path in [DEPLOYMENT, DAEMON_SET] {
        assert!(world.api.get(path).is_none(), "{path} exists");
    }
    let looks = async || {
        world.api.take_reads();
        world.reconcile().await.expect("reconciled");
        let reads = world.api.take_reads();
        reads.iter().filter(|path| path.ends_with("/persistentvolumes")).count()
    };
    assert_eq!([looks().await, looks().await], [0, 0]);
    tokio::time::advance(CHECK_PAUSE).await;
    assert_eq!([looks().await, looks().await], [1, 0]);
    let mut spec = world.api.get(DRIVER).expect("the driver")["spec"].clone();
    spec["clusterID"] = json!("prod");
    world.api.change(DRIVER, "/spec", spec);
    world.api.change(DRIVER, "/metadata/generation", json!(2));
    assert_eq!(looks().await, 1);
    assert!(!held_up(&world).contains("--cluster"));
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), Vec::<String>::new());

    accept_findings(&world, true);
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(DAEMON_SET).is_some(), "the migration did not begin");
    assert_eq!(looks().await, 0);
}

#[tokio::test(start_paused = true)]
async fn accepted_migration_waits_for_secret_access() {
    let world = beside_another(ManagementState::Managed, "good");
    let secret = json!({"name": "openstack-config-region-one", "namespace": "kube-system"});
    let volume = json!({"metadata": {"name": "regional"}, "spec": {"csi": {"driver": NAME, "volumeHandle": "6f3a1c52-8f0e-4d7a-9f2b-0c1d2e3f4a5b",
        "controllerPublishSecretRef": secret}, "accessModes": ["ReadWriteOnce"]}});
    let watched: cluster::VolumeObject = serde_json::from_value(volume.clone()).expect("a volume");
    world.context.cluster.change(|index| drop(index.put(&watched)));
    world.api.put("/api/v1/persistentvolumes/regional", volume);
    let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    for answer in [
        Value::Null,
        json!({"allowed": false}),
        json!({"allowed": false, "evaluationError": "a webhook does not answer"}),
    ] {
        world.api.put(reviews, answer.clone());
        tokio::time::advance(OPEN_CHECK_PAUSE).await;
        world.reconcile().await.expect("reconciled");
        let message = held_up(&world);
        assert!(
            message.contains("Acceptance does not include SecretAccess"),
            "{answer}: {message}"
        );
        assert!(world.api.get(DAEMON_SET).is_none(), "{answer}");
    }
    world.api.put(reviews, json!({"allowed": true}));
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(DAEMON_SET).is_none(), "the answer is remembered");
    tokio::time::advance(OPEN_CHECK_PAUSE).await;
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(DAEMON_SET).is_some(), "the migration did not begin");
}

#[tokio::test(start_paused = true)]
async fn accepted_migration_waits_for_zone_labels() {
    let world = beside_another(ManagementState::Managed, "spaced");
    let labels = json!({"topology.cinder.csi.openstack.org/zone": "zone-one"});
    world.api.put(
        "/api/v1/nodes/n1",
        json!({"metadata": {"name": "n1", "labels": labels}}),
    );
    world.reconcile().await.expect("reconciled");
    let message = held_up(&world);
    assert!(message.contains("Acceptance does not include ZoneLabel"), "{message}");
    assert!(world.api.get(DAEMON_SET).is_none());
    let patch = "- {op: add, path: /spec/template/spec/containers/0/args/-, value: --zone-labels=sanitised}";
    let mut spec = world.api.get(DRIVER).expect("the driver")["spec"].clone();
    let flag = |kind, name| json!({"target": {"kind": kind, "name": name}, "type": "json", "patch": patch});
    spec["overrides"] = json!([
        flag("DaemonSet", "cinder-csi-node"),
        flag("Deployment", "cinder-csi-controller")
    ]);
    world.api.change(DRIVER, "/spec", spec);
    world.api.change(DRIVER, "/metadata/generation", json!(2));
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(DAEMON_SET).is_some(), "the migration did not begin");
}

#[tokio::test(start_paused = true)]
async fn findings_of_deleted_driver_are_discarded() {
    let world = beside_a_kept_one();
    world.reconcile().await.expect("reconciled");
    assert!(held_up(&world).contains("--cluster"));
    // A different object of this name, also with generation 1.
    let mut successor = world.api.get(DRIVER).expect("the driver");
    successor["metadata"]["uid"] = json!("successor");
    successor["spec"]["clusterID"] = json!("prod");
    world.api.put(DRIVER, successor);
    world.reconcile().await.expect("reconciled");
    assert!(!held_up(&world).contains("--cluster"));
}

#[tokio::test(start_paused = true)]
async fn cached_results_end_with_uid() {
    let world = beside_a_kept_one();
    let context = &world.context;
    let remember = |memory: &mut ObjectMemory| {
        memory.migration.remember_settled(Some(1));
        memory.migration.remember_findings(Some(1), &[]);
    };
    let recall = |generation| {
        context.memory(NAME, |memory| {
            let is_settled = memory.migration.is_settled(generation, CHECK_PAUSE);
            (is_settled, memory.migration.findings(generation, CHECK_PAUSE).is_some())
        })
    };
    context.recognize(NAME, "first");
    context.memory(NAME, remember);
    context.recognize(NAME, "first");
    assert_eq!(recall(Some(1)), (true, true));
    assert_eq!(recall(Some(2)), (false, false));
    context.recognize(NAME, "second");
    assert_eq!(recall(Some(1)), (false, false));
}

#[rstest]
#[case::the_secret(
    "/secrets/cloud-config",
    "the file /etc/config/cloud.conf of Deployment kube-system/csi-cinder-controllerplugin, container driver"
)]
#[case::pods("/api/v1/pods", "pods with in-line volumes")]
#[tokio::test]
async fn unreadable_objects_stop_a_migration(#[case] hidden: &str, #[case] expected: &str) {
    let world = beside_a_kept_one();
    world.api.hide(hidden);
    world.reconcile().await.expect("reconciled");
    let message = held_up(&world);
    assert!(message.contains(expected), "{message}");
}

/// A pod of a Go controller in namespace `storage`.
fn put_controller_elsewhere(world: &World) -> String {
    let path = "/api/v1/namespaces/storage/pods/csi-5f-x".to_owned();
    let container = json!({"name": "driver", "image": "registry.k8s.io/provider-os/cinder-csi-plugin:v1.36.0"});
    let owner =
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "csi-5f", "uid": "r", "controller": true});
    world.api.put(
        &path,
        json!({"metadata": {"name": "csi-5f-x", "namespace": "storage", "uid": "u", "labels": {"pod-template-hash": "5f"},
            "ownerReferences": [owner]}, "spec": {"nodeName": "n1", "containers": [container]}}),
    );
    path
}

#[rstest]
#[case::beside_the_named_one(true)]
#[case::without_any_there(false)]
#[tokio::test(start_paused = true)]
async fn controller_in_other_namespace_stops_migration(#[case] has_named: bool) {
    let world = if has_named {
        shown_to_start().await
    } else {
        let mut spec = mk_spec();
        spec.adoption.mode = AdoptionMode::Migrate;
        World::new(spec, mk_index(&[], true))
    };
    let path = put_controller_elsewhere(&world);
    tokio::time::advance(ELSEWHERE_PAUSE).await;
    for _ in 0..3 {
        world.reconcile().await.expect("reconciled");
    }
    assert!(world.api.get(DEPLOYMENT).is_none());
    assert!(!has_named || theirs(&world) == (1, Value::Null), "theirs was touched");
    let message = held_up(&world);
    assert!(message.contains("Deployment storage/csi"), "{message}");

    world.api.remove(&path);
    tokio::time::advance(ELSEWHERE_PAUSE).await;
    for _ in 0..3 {
        world.reconcile().await.expect("reconciled");
    }
    assert!(
        world.api.get(DEPLOYMENT).is_some(),
        "{:?}",
        world.condition(ConditionType::Degraded)
    );
}

#[tokio::test(start_paused = true)]
async fn unlisted_pods_of_other_namespaces_stop_migration() {
    let world = shown_to_start().await;
    world.api.hide("/api/v1/pods");
    tokio::time::advance(ELSEWHERE_PAUSE).await;
    world.reconcile().await.expect("reconciled");
    assert_eq!(theirs(&world), (1, Value::Null));
    let message = held_up(&world);
    assert!(
        message.contains("cannot list pods") && message.contains("config/rbac/adoption"),
        "{message}"
    );
}

#[rstest]
#[case::forbidden("/apis/apps/v1/statefulsets", "the statefulsets of other namespaces")]
#[case::undecodable("", "Deployment storage/odd")]
#[tokio::test]
async fn unknown_workloads_elsewhere_are_findings(#[case] hidden: &str, #[case] expected: &str) {
    let world = beside_another(ManagementState::Managed, "good");
    world.api.put(
        "/apis/apps/v1/namespaces/storage/deployments/odd",
        json!({"metadata": {"name": "odd", "namespace": "storage"}, "spec": {"template": {"spec": {"containers": 7}}}}),
    );
    if !hidden.is_empty() {
        world.api.hide(hidden);
    }
    let apis = cluster::OptionalApis::default();
    let spec = mk_spec();
    let successor = Successor {
        spec: &spec,
        namespace: "cinder-csi",
    };
    let facts = adoption_check(&world.api.client, NAME, "kube-system", apis, successor, true).await;
    let gaps: Vec<&str> = facts.gaps.iter().map(|gap| gap.what.as_str()).collect();
    assert!(gaps.contains(&expected), "{gaps:?}");
}

#[tokio::test]
async fn accepted_findings_do_not_permit_outside_controller() {
    let world = beside_another(ManagementState::Managed, "good");
    let sidecar = json!({"name": "csi-attacher", "image": "registry.k8s.io/sig-storage/csi-attacher:v4.10.0",
        "args": ["--kubeconfig=/etc/shoot/kubeconfig"]});
    world.api.change(OLD, "/spec/template/spec/containers/0", sidecar);
    let driver = json!({"name": "driver", "image": "registry.k8s.io/provider-os/cinder-csi-plugin:v1.36.0"});
    let containers = world.api.get(OLD).expect("their Deployment")["spec"]["template"]["spec"]["containers"][0].clone();
    world
        .api
        .change(OLD, "/spec/template/spec/containers", json!([containers, driver]));
    for _ in 0..3 {
        world.reconcile().await.expect("reconciled");
    }
    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert!(
        verdict == "True/MigrationHeldUp" && message.contains("cannot replace this installation"),
        "{verdict}: {message}"
    );
    assert!(world.api.get(DAEMON_SET).is_none(), "our DaemonSet exists");
}
