// SPDX-License-Identifier: Apache-2.0
//! Credentials of a different project or region, while the records of the driver's own project are damaged or lost.

use cinder_operator_core::{manifests::OPERAND_NAMESPACE_ANNOTATION, record::PLACES_ANNOTATION};

use super::*;
use crate::openstack::MOVE_PROJECT;

const SECOND: &str = "/api/v1/namespaces/cinder-csi/secrets/second-credentials";
const SNAPSHOT: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents/s1";
const SNAPSHOT_GROUP: &str = "/apis/snapshot.storage.k8s.io";

/// The volumes of a driver in use.
fn volumes() -> Index {
    mk_index(&["pv1"], true)
}

async fn settle(world: &World) {
    for _ in 0..2 {
        world.reconcile().await.expect("reconciled");
    }
    world.api.take_writes();
}

async fn mk_installed(spec: CinderCSIDriverSpec, index: Index) -> World {
    let world = World::new(spec, index);
    world.set_password_in(SECOND, "western");
    settle(&world).await;
    world
}

fn mk_two_clouds() -> CinderCSIDriverSpec {
    let mut spec = mk_spec();
    spec.clouds[0].name = "east".to_owned();
    let mut west = spec.clouds[0].clone();
    west.name = "west".to_owned();
    west.credentials_secret_ref.name = "second-credentials".to_owned();
    spec.clouds.push(west);
    spec
}

fn args(world: &World) -> String {
    let deployment = world.api.get(DEPLOYMENT).expect("the controller");
    deployment["spec"]["template"]["spec"]["containers"][0]["args"].to_string()
}

fn reason(world: &World) -> String {
    world.condition(ConditionType::CredentialsValid).0
}

fn change_metadata(world: &World, path: &str, change: fn(&mut Value)) {
    let mut object = world.api.get(path).expect("the object");
    change(&mut object["metadata"]);
    world.api.put(path, object);
}

fn lose_secret(world: &World) {
    world.api.remove(OWN_SECRET);
}

fn lose_label(world: &World) {
    change_metadata(world, OWN_SECRET, |metadata| metadata["labels"] = json!({}));
}

fn lose_marks(world: &World) {
    change_metadata(world, OWN_SECRET, |metadata| {
        metadata["labels"] = json!({});
        metadata["annotations"] = json!({});
    });
}

fn lose_status(world: &World) {
    let mut driver = world.api.get(DRIVER).expect("the driver");
    driver.as_object_mut().expect("an object").remove("status");
    world.api.put(DRIVER, driver);
}

fn lose_annotation(world: &World) {
    change_metadata(world, CSI_DRIVER, |metadata| {
        let annotations = metadata["annotations"].as_object_mut().expect("annotations");
        annotations.remove(PLACES_ANNOTATION);
    });
}

fn lose_all(world: &World) {
    lose_secret(world);
    lose_status(world);
    lose_annotation(world);
}

fn annotate(world: &World) {
    let mut metadata = world.api.get(DRIVER).expect("the driver")["metadata"].clone();
    metadata["annotations"] = json!({MOVE_PROJECT: "driver-uid"});
    world.api.change(DRIVER, "/metadata", metadata);
}

#[rstest]
#[tokio::test]
async fn damaged_records_do_not_admit_other_project(
    #[values(mk_spec(), mk_two_clouds())] spec: CinderCSIDriverSpec,
    #[values("elsewhere", "faraway")] password: &str,
    #[values(lose_secret, lose_label, lose_marks, lose_status, lose_annotation, lose_all)] damage: fn(&World),
    #[values(false, true)] restarts: bool,
) {
    let mut world = mk_installed(spec, volumes()).await;
    let before = args(&world);
    world.set_password(password);
    world.reconcile().await.expect("reconciled");
    assert_eq!(reason(&world), "False/ProjectChanged");
    damage(&world);
    if restarts {
        world.restart(volumes());
    }
    for _ in 0..3 {
        world.reconcile().await.expect("reconciled");
    }
    assert_eq!(args(&world), before);
    assert_eq!(reason(&world), "False/ProjectChanged");

    world.set_password("better");
    world.reconcile().await.expect("reconciled");
    assert_eq!(args(&world), before);
    assert_eq!(reason(&world), "True/AsExpected");
}

#[rstest]
#[tokio::test]
async fn lost_record_is_restored_during_refusal(
    #[values(lose_status, lose_annotation)] damage: fn(&World),
    #[values(true, false)] loses_secret: bool,
) {
    let world = mk_installed(mk_spec(), volumes()).await;
    world.set_password("elsewhere");
    if loses_secret {
        lose_secret(&world);
    }
    damage(&world);
    world.reconcile().await.expect("reconciled");
    assert_eq!(reason(&world), "False/ProjectChanged");
    let annotations = world.api.get(CSI_DRIVER).expect("the CSIDriver")["metadata"]["annotations"].clone();
    let text = annotations[PLACES_ANNOTATION].as_str().expect("the annotation");
    assert!(text.contains(r#""project":"p""#), "{text}");
    assert_eq!(world.driver().status.expect("a status").places[0].project_id, "p");
}

#[tokio::test]
async fn unlabelled_secret_stays_in_use_during_rejection() {
    let world = mk_installed(mk_spec(), volumes()).await;
    let given = world.api.get(OWN_SECRET).expect("the Secret")["data"].clone();
    lose_label(&world);
    world.set_password("elsewhere");
    world.api.change(DEPLOYMENT, "/spec/replicas", json!(0));
    world.reconcile().await.expect("reconciled");
    assert_eq!(reason(&world), "False/ProjectChanged");
    let deployment = world.api.get(DEPLOYMENT).expect("the controller");
    assert_ne!(deployment["spec"]["replicas"], 0, "the controller is repaired");
    let secret = world.api.get(OWN_SECRET).expect("the Secret");
    assert_eq!(secret["metadata"]["labels"]["csi.openstack.org/instance"], NAME);
    assert_eq!(secret["data"], given);
}

#[rstest]
#[tokio::test]
async fn swapped_clouds_are_rejected(#[values(true, false)] loses_secret: bool) {
    let world = mk_installed(mk_two_clouds(), volumes()).await;
    let before = args(&world);
    assert!(before.contains("east=p") && before.contains("west=w"), "{before}");
    world.set_password("western");
    world.set_password_in(SECOND, "good");
    if loses_secret {
        lose_secret(&world);
    }
    world.reconcile().await.expect("reconciled");
    assert_eq!(reason(&world), "False/ProjectChanged");
    assert_eq!(args(&world), before);

    world.set_password("good");
    world.set_password_in(SECOND, "western");
    world.reconcile().await.expect("reconciled");
    assert_eq!(reason(&world), "True/AsExpected");
    assert_eq!(args(&world), before);
}

#[rstest]
#[case::snapshot(SNAPSHOT, json!({"metadata": {"name": "s1"}, "spec": {"driver": NAME}}))]
#[case::group_snapshot(
    "/apis/groupsnapshot.storage.k8s.io/v1/volumegroupsnapshotcontents/g1",
    json!({"metadata": {"name": "g1"}, "spec": {"driver": NAME}})
)]
#[case::claim_being_provisioned(
    "/api/v1/persistentvolumeclaims/c1",
    json!({"metadata": {"name": "c1", "namespace": "ns", "annotations": {"volume.kubernetes.io/storage-provisioner": NAME}},
        "status": {"phase": "Pending"}})
)]
#[case::attachment(
    "/apis/storage.k8s.io/v1/volumeattachments/a1",
    json!({"metadata": {"name": "a1"}, "spec": {"attacher": NAME, "nodeName": "n1", "source": {"persistentVolumeName": "pv1"}}})
)]
#[case::volume_that_no_watch_has(
    "/api/v1/persistentvolumes/late",
    json!({"metadata": {"name": "late"}, "spec": {"csi": {"driver": NAME, "volumeHandle": "v"}}})
)]
#[tokio::test]
async fn each_kind_alone_counts_as_use(
    #[case] path: &str,
    #[case] object: Value,
    #[values(keep_all, lose_secret, lose_label, lose_all)] damage: fn(&World),
    #[values(false, true)] restarts: bool,
) {
    let mut world = mk_installed(mk_spec(), mk_index(&[], true)).await;
    let before = args(&world);
    let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
    world.api.put(path, object);
    world.set_password("elsewhere");
    // The result of the rejected check is cached when the damage occurs.
    world.reconcile().await.expect("reconciled");
    damage(&world);
    if restarts {
        world.restart(mk_index(&[], true));
    }
    world.reconcile().await.expect("reconciled");
    assert_eq!(args(&world), before);
    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert_eq!(verdict, "True/ProjectChanged");
    assert!(message.contains(&name), "{message}");

    world.api.remove(path);
    world.reconcile().await.expect("reconciled");
    assert!(
        args(&world).contains("--project-id=another"),
        "nothing needs the first project"
    );
}

#[rstest]
#[case::snapshots_are_forbidden("volumesnapshotcontents", "cannot list volumesnapshotcontents")]
#[case::claims_are_forbidden("persistentvolumeclaims", "cannot list persistentvolumeclaims")]
#[tokio::test]
async fn failed_list_refuses_other_project(#[case] hidden: &str, #[case] cause: &str) {
    let world = mk_installed(mk_spec(), mk_index(&[], true)).await;
    let before = args(&world);
    world.api.hide(hidden);
    world.set_password("elsewhere");
    lose_secret(&world);
    world.reconcile().await.expect("reconciled");
    assert_eq!(args(&world), before);
    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert_eq!(verdict, "True/ProjectChanged");
    assert!(message.contains(cause) && message.contains("roles"), "{message}");
}

#[tokio::test]
async fn missing_definition_of_snapshots_refuses_other_project() {
    let world = mk_installed(mk_spec(), mk_index(&[], true)).await;
    let before = args(&world);
    let versions = json!([{"groupVersion": "snapshot.storage.k8s.io/v1", "version": "v1"}]);
    let group =
        json!({"kind": "APIGroup", "apiVersion": "v1", "name": "snapshot.storage.k8s.io", "versions": versions});
    world.api.put(SNAPSHOT_GROUP, group);
    world.set_password("elsewhere");
    world.reconcile().await.expect("reconciled");
    assert_eq!(args(&world), before);
    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert_eq!(verdict, "True/ProjectChanged");
    assert!(message.contains("CustomResourceDefinition"), "{message}");
}

#[tokio::test]
async fn group_snapshot_of_earlier_version_counts() {
    let world = mk_installed(mk_spec(), mk_index(&[], true)).await;
    let group = "/apis/groupsnapshot.storage.k8s.io";
    let versions = json!([{"groupVersion": "groupsnapshot.storage.k8s.io/v1beta1", "version": "v1beta1"}]);
    world.api.put(
        group,
        json!({"kind": "APIGroup", "apiVersion": "v1", "name": "groupsnapshot.storage.k8s.io", "versions": versions}),
    );
    world.api.put(
        &format!("{group}/v1beta1/volumegroupsnapshotcontents/g1"),
        json!({"metadata": {"name": "g1"}, "spec": {"driver": NAME}}),
    );
    world.set_password("elsewhere");
    world.reconcile().await.expect("reconciled");
    assert_eq!(reason(&world), "False/ProjectChanged");
}

#[tokio::test]
async fn unknown_place_is_confirmed_by_volumes_alone() {
    let mut world = mk_installed(mk_spec(), volumes()).await;
    let before = args(&world);
    lose_all(&world);
    world.restart(volumes());
    world.reconcile().await.expect("reconciled");
    assert_eq!(
        (reason(&world).as_str(), args(&world)),
        ("True/AsExpected", before.clone())
    );
    assert_eq!(world.driver().status.expect("a status").places[0].project_id, "p");

    // A lookup cannot confirm a snapshot.
    world.api.put("/apis/snapshot.storage.k8s.io/v1", json!({}));
    world
        .api
        .put(SNAPSHOT, json!({"metadata": {"name": "s1"}, "spec": {"driver": NAME}}));
    lose_all(&world);
    world.restart(mk_index(&[], true));
    world.reconcile().await.expect("reconciled");
    assert_eq!(
        (reason(&world).as_str(), args(&world)),
        ("False/ProjectChanged", before)
    );
    let (_, message) = world.condition(ConditionType::Degraded);
    assert!(message.contains("s1") && message.contains(MOVE_PROJECT), "{message}");
}

#[tokio::test]
async fn contradictory_records_reject_every_change() {
    let world = mk_installed(mk_spec(), mk_index(&[], true)).await;
    world
        .api
        .put(SNAPSHOT, json!({"metadata": {"name": "s1"}, "spec": {"driver": NAME}}));
    world.api.change(DRIVER, "/status/places/0/projectID", json!("q"));
    for password in ["elsewhere", "better"] {
        world.set_password(password);
        world.reconcile().await.expect("reconciled");
        let (verdict, message) = world.condition(ConditionType::Degraded);
        assert_eq!(verdict, "True/ProjectChanged", "{password}");
        assert!(message.contains("disagree"), "{message}");
        assert_eq!(world.driver().status.expect("a status").places[0].project_id, "q");
    }
}

#[tokio::test]
async fn place_is_recorded_outside_the_secret() {
    let world = mk_installed(mk_two_clouds(), volumes()).await;
    let status = world.driver().status.expect("a status");
    let places: Vec<_> = status
        .places
        .iter()
        .map(|place| (&*place.cloud, &*place.project_id))
        .collect();
    assert_eq!(places, [("east", "p"), ("west", "w")]);
    assert_eq!(status.operand_namespace.as_deref(), Some("cinder-csi"));
    let annotations = world.api.get(CSI_DRIVER).expect("the CSIDriver")["metadata"]["annotations"].clone();
    assert_eq!(annotations[OPERAND_NAMESPACE_ANNOTATION], "cinder-csi");
    let text = annotations[PLACES_ANNOTATION].as_str().expect("the places");
    let places: Value = serde_json::from_str(text).expect("JSON");
    assert_eq!(places["west"], json!({"project": "w", "region": "one"}));

    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn project_is_recorded_after_secret() {
    let world = World::managed();
    world.api.break_writes_to(Some(OWN_SECRET));
    world.reconcile().await.expect_err("the Secret cannot be written");
    assert_eq!(world.driver().status.expect("a status").places, []);
    world.api.break_writes_to(None);
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.driver().status.expect("a status").places.len(), 1);
}

#[tokio::test]
async fn move_ends_with_its_annotation() {
    let world = mk_installed(mk_spec(), volumes()).await;
    annotate(&world);
    world.reconcile().await.expect("reconciled");
    assert_eq!(
        world.condition(ConditionType::CredentialsValid).0,
        "True/ProjectGuardOff"
    );
    assert!(
        world
            .driver()
            .metadata
            .annotations
            .unwrap_or_default()
            .contains_key(MOVE_PROJECT)
    );

    world.set_password("elsewhere");
    world.reconcile().await.expect("reconciled");
    assert!(args(&world).contains("--project-id=another"));
    assert_eq!(
        world
            .driver()
            .metadata
            .annotations
            .unwrap_or_default()
            .get(MOVE_PROJECT),
        None
    );
    assert_eq!(world.driver().status.expect("a status").places[0].project_id, "another");

    world.set_password("faraway");
    world.reconcile().await.expect("reconciled");
    assert_eq!(reason(&world), "False/ProjectChanged");
    assert_eq!(
        world.condition(ConditionType::CredentialsValid).0,
        "False/ProjectChanged"
    );
}

fn keep_all(_: &World) {}

/// A driver that an administrator moved by mistake to a project without its volumes.
async fn mk_moved(spec: CinderCSIDriverSpec) -> (World, String) {
    let world = mk_installed(spec, volumes()).await;
    let before = args(&world);
    annotate(&world);
    world.set_password("elsewhere");
    settle(&world).await;
    assert!(args(&world).contains("another") && !world.driver().annotations().contains_key(MOVE_PROJECT));
    (world, before)
}

#[rstest]
#[tokio::test]
async fn valid_credentials_return_after_move(
    #[values(mk_spec(), mk_two_clouds())] spec: CinderCSIDriverSpec,
    #[values(keep_all, lose_label, lose_status, lose_annotation)] damage: fn(&World),
    #[values(false, true)] restarts: bool,
) {
    let (mut world, before) = mk_moved(spec).await;
    damage(&world);
    if restarts {
        world.restart(volumes());
    }
    world.set_password("good");
    settle(&world).await;
    assert_eq!(reason(&world), "True/AsExpected");
    assert_eq!(args(&world), before);
    assert_eq!(world.driver().status.expect("a status").places[0].project_id, "p");
}

#[rstest]
#[case::one_cloud(mk_spec(), "True/AsExpected")]
#[case::two_clouds(mk_two_clouds(), "False/ProjectChanged")]
#[tokio::test]
async fn return_without_secret_needs_every_volume(
    #[case] spec: CinderCSIDriverSpec,
    #[case] expected: &str,
    #[values(false, true)] restarts: bool,
) {
    let (mut world, _) = mk_moved(spec).await;
    lose_secret(&world);
    if restarts {
        world.restart(volumes());
    }
    world.set_password("good");
    world.reconcile().await.expect("reconciled");
    assert_eq!(reason(&world), expected);
}

#[tokio::test]
async fn return_is_rejected_with_snapshots() {
    let (world, before) = mk_moved(mk_spec()).await;
    world
        .api
        .put(SNAPSHOT, json!({"metadata": {"name": "s1"}, "spec": {"driver": NAME}}));
    world.set_password("good");
    world.reconcile().await.expect("reconciled");
    assert_eq!(reason(&world), "False/ProjectChanged");
    assert_ne!(args(&world), before);
}

#[tokio::test]
async fn annotation_is_removed_after_restart() {
    let mut world = mk_installed(mk_spec(), volumes()).await;
    annotate(&world);
    world.set_password("elsewhere");
    // The status is written, and the annotation remains.
    world.api.break_writes_to(Some(&format!("{DRIVER} ")));
    world.reconcile().await.expect_err("the annotation cannot be removed");
    assert_eq!(world.condition(ConditionType::CredentialsValid).0, "True/ProjectMoved");
    world.api.break_writes_to(None);
    world.restart(volumes());
    world.reconcile().await.expect("reconciled");
    assert_eq!(
        world
            .driver()
            .metadata
            .annotations
            .unwrap_or_default()
            .get(MOVE_PROJECT),
        None
    );
}

#[tokio::test]
async fn driver_waits_for_credentials_of_all_clouds() {
    let world = mk_installed(mk_two_clouds(), volumes()).await;
    let before = world.api.get(DEPLOYMENT);
    lose_secret(&world);
    world.api.remove(SECOND);
    world.reconcile().await.expect("reconciled");
    assert_eq!((world.api.get(OWN_SECRET), world.api.get(DEPLOYMENT)), (None, before));
    assert_eq!(world.condition(ConditionType::Degraded).0, "True/SecretMissing");

    world.set_password_in(SECOND, "western");
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(OWN_SECRET).is_some());
}

#[rstest]
#[case::snapshot(SNAPSHOT, json!({"metadata": {"name": "s1"}, "spec": {"driver": NAME}}))]
#[case::group_snapshot(
    "/apis/groupsnapshot.storage.k8s.io/v1/volumegroupsnapshotcontents/s1",
    json!({"metadata": {"name": "s1"}, "spec": {"driver": NAME}})
)]
#[case::claim_being_provisioned(
    "/api/v1/persistentvolumeclaims/s1",
    json!({"metadata": {"name": "s1", "namespace": "ns", "annotations": {"volume.kubernetes.io/storage-provisioner": NAME}},
        "status": {"phase": "Pending"}})
)]
#[tokio::test]
async fn removed_cloud_stays_while_in_use(
    #[case] path: &str,
    #[case] object: Value,
    #[values(true, false)] loses_secret: bool,
    #[values(true, false)] restarts: bool,
) {
    let mut world = mk_installed(mk_two_clouds(), mk_index(&[], true)).await;
    let before = args(&world);
    world.api.put(path, object);
    let mut spec = world.api.get(DRIVER).expect("the driver")["spec"].clone();
    spec["clouds"].as_array_mut().expect("clouds").pop();
    world.api.change(DRIVER, "/spec", spec);
    if loses_secret {
        lose_secret(&world);
    }
    if restarts {
        world.restart(mk_index(&[], true));
    }
    world.reconcile().await.expect("reconciled");
    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert_eq!(verdict, "True/CloudInUse");
    assert!(message.contains("west") && message.contains("s1"), "{message}");
    assert_eq!(args(&world), before);

    world.api.remove(path);
    world.reconcile().await.expect("reconciled");
    assert!(!args(&world).contains("=w"), "{}", args(&world));
    assert_eq!(world.driver().status.expect("a status").places.len(), 1);
}

#[tokio::test]
async fn first_credentials_are_accepted_with_waiting_claim() {
    let world = World::managed();
    world.api.put(
        "/api/v1/persistentvolumeclaims/c1",
        json!({"metadata": {"name": "c1", "namespace": "ns", "annotations": {"volume.kubernetes.io/storage-provisioner": NAME}},
            "status": {"phase": "Pending"}}),
    );
    world.api.remove(SOURCE);
    world.reconcile().await.expect("reconciled");
    world.set_password("elsewhere");
    world.reconcile().await.expect("reconciled");
    assert!(args(&world).contains("--project-id=another"));
}

#[tokio::test]
async fn second_cloud_is_added_while_first_is_used() {
    let mut spec = mk_spec();
    spec.clouds[0].name = "east".to_owned();
    let world = mk_installed(spec, volumes()).await;
    let spec = serde_json::to_value(mk_two_clouds()).expect("JSON");
    world.api.change(DRIVER, "/spec", spec);
    world.reconcile().await.expect("reconciled");
    assert!(args(&world).contains("west=w"), "{}", args(&world));
    assert_eq!(world.condition(ConditionType::Degraded).0, "False/AsExpected");
}

#[tokio::test]
async fn renamed_cloud_keeps_its_record() {
    let world = mk_installed(mk_spec(), volumes()).await;
    world.api.change(DRIVER, "/spec/clouds/0/name", json!("renamed"));
    lose_secret(&world);
    world.set_password("elsewhere");
    world.reconcile().await.expect("reconciled");
    assert_eq!(reason(&world), "False/ProjectChanged");
    world.set_password("good");
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.driver().status.expect("a status").places[0].cloud, "renamed");
}
