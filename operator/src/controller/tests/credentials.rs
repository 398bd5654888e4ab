// SPDX-License-Identifier: Apache-2.0
//! Credentials that change while a driver is in use.

use super::*;

/// An installed driver with a volume.
async fn mk_used() -> World {
    let world = World::new(mk_spec(), mk_index(&["pv1"], true));
    for _ in 0..2 {
        world.reconcile().await.expect("reconciled");
    }
    world.api.take_writes();
    world
}

/// An installed driver with a volume, and the number of logins.
async fn mk_counted() -> (World, Arc<Mutex<usize>>) {
    let mut world = World::managed();
    let mut context = World::mk_context(&world.api, Cluster::fixed(mk_index(&["pv1"], true)));
    let door = Door::default();
    let logins = Arc::clone(&door.logins);
    context.login_check = LoginCheck::new(Box::new(door));
    world.context = Arc::new(context);
    for _ in 0..2 {
        world.reconcile().await.expect("reconciled");
    }
    (world, logins)
}

fn annotate(world: &World, uid: &str) {
    let mut metadata = world.api.get(DRIVER).expect("the driver")["metadata"].clone();
    metadata["annotations"] = json!({crate::openstack::MOVE_PROJECT: uid});
    world.api.change(DRIVER, "/metadata", metadata);
}

fn args(world: &World) -> String {
    let deployment = world.api.get(DEPLOYMENT).expect("the controller");
    deployment["spec"]["template"]["spec"]["containers"][0]["args"].to_string()
}

/// The driver's own configuration, and the regions in the annotation of the controller's pods.
fn regions_in_use(world: &World) -> (Option<String>, serde_json::Value) {
    let secret = serde_json::from_value(world.api.get(OWN_SECRET).expect("the Secret")).expect("a Secret");
    let credentials = DriverCredentials::from_secret(&secret).expect("readable");
    let deployment = world.api.get(DEPLOYMENT).expect("the controller");
    let annotations = &deployment["spec"]["template"]["metadata"]["annotations"];
    let config = credentials.config().expect("a configuration");
    (config.region, annotations["csi.openstack.org/regions"].clone())
}

#[tokio::test]
async fn region_of_login_reaches_secret_and_pods() {
    let world = World::new(mk_spec(), mk_index(&["pv1"], true));
    world.edit_secret("region = one\n", "");
    for _ in 0..3 {
        world.reconcile().await.expect("reconciled");
        assert_eq!(regions_in_use(&world), (Some("one".to_owned()), json!("one")));
    }
    world.api.take_writes();
    world.context.forget(NAME);
    world.reconcile().await.expect("reconciled");
    let secrets = world
        .api
        .take_writes()
        .into_iter()
        .filter(|write| write.contains(OWN_SECRET));
    assert_eq!(secrets.count(), 0, "a restarted operator writes nothing again");
    // An explicit region with the same name does not change the configuration.
    world.edit_secret("[Global]\n", "[Global]\nregion = one\n");
    let before = world.api.get(OWN_SECRET);
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.get(OWN_SECRET), before);
}

#[tokio::test]
async fn controller_retains_project_until_confirmed_move() {
    let world = mk_used().await;
    assert!(args(&world).contains("--project-id=p"), "{}", args(&world));
    let before = (world.api.get(OWN_SECRET), world.api.get(DEPLOYMENT));

    world.set_password("elsewhere");
    world.reconcile().await.expect("reconciled");
    assert_eq!((world.api.get(OWN_SECRET), world.api.get(DEPLOYMENT)), before);
    assert_eq!(
        world.condition(ConditionType::CredentialsValid).0,
        "False/ProjectChanged"
    );
    assert_eq!(world.condition(ConditionType::Degraded).0, "True/ProjectChanged");

    annotate(&world, "of-another-object");
    world.reconcile().await.expect("reconciled");
    assert_eq!((world.api.get(OWN_SECRET), world.api.get(DEPLOYMENT)), before);

    annotate(&world, "driver-uid");
    world.reconcile().await.expect("reconciled");
    assert!(
        args(&world).contains("--project-id=another"),
        "the pods are replaced at once: {}",
        args(&world)
    );
    assert_eq!(world.condition(ConditionType::Degraded).0, "False/AsExpected");
}

#[tokio::test]
async fn new_operator_reads_project_from_secret() {
    let world = mk_used().await;
    world.context.forget(NAME);
    world.set_password("elsewhere");
    world.reconcile().await.expect("reconciled");
    assert_eq!(
        world.condition(ConditionType::CredentialsValid).0,
        "False/ProjectChanged"
    );
}

#[tokio::test(start_paused = true)]
async fn credentials_during_pause_are_not_reported_as_written() {
    let world = mk_used().await;
    let given = world.api.get(OWN_SECRET);
    world.api.change(DRIVER, "/spec/managementState", json!("Paused"));
    world.set_password("better");
    world.api.take_writes();
    let action = world.reconcile().await.expect("reconciled");
    assert_eq!(world.condition(ConditionType::CredentialsValid).0, "False/NotGiven");
    assert_eq!(world.api.get(OWN_SECRET), given);
    assert!(
        !world
            .api
            .kinds_of_events()
            .iter()
            .any(|event| event.contains("SecretRotated"))
    );
    assert_eq!(
        action,
        Action::requeue(Duration::from_mins(5) + RECHECK_MARGIN),
        "nothing is asked again and again"
    );
    let writes = world.api.take_writes();
    let others = writes
        .iter()
        .filter(|write| !write.contains("/status") && !write.contains("events"));
    assert_eq!(others.count(), 0, "{writes:?}");

    world.api.change(DRIVER, "/spec/managementState", json!("Managed"));
    world.reconcile().await.expect("reconciled");
    assert_ne!(world.api.get(OWN_SECRET), given);
    assert_eq!(world.condition(ConditionType::CredentialsValid).0, "True/AsExpected");
}

#[rstest]
#[case::refused("wrong")]
#[case::away("unreachable")]
#[tokio::test]
async fn claim_events_contain_no_cloud_or_secret_names(#[case] password: &str) {
    let world = World::new(mk_spec(), mk_index(&[], true));
    world.reconcile().await.expect("reconciled");
    let claim = json!({"name": "data", "namespace": "team", "uid": "u"});
    let stuck = json!({"metadata": {"name": "pv1", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"csi": {"driver": NAME, "volumeHandle": "v"}, "claimRef": claim}});
    let stuck: cluster::VolumeObject = serde_json::from_value(stuck).expect("a volume");
    world.context.cluster.change(|index| drop(index.put(&stuck)));
    world.set_password(password);
    world.context.forget(NAME);
    world.reconcile().await.expect("reconciled");
    let events = world.api.events();
    let told: Vec<&String> = events.iter().filter(|event| event.contains("VolumeStuck")).collect();
    assert!(!told.is_empty(), "{events:?}");
    for event in told {
        for word in ["keystone", "Secret", "openstack-credentials", "http"] {
            assert!(!event.contains(word), "{event}");
        }
    }
}

#[tokio::test]
async fn failed_login_of_attachment_repeats_check_once() {
    let (world, logins) = mk_counted().await;
    let count = || *logins.lock();
    let before = count();
    let attachment = json!({
        "metadata": {"name": "va", "creationTimestamp": world.context.sources.now().to_string()},
        "spec": {"attacher": NAME, "nodeName": "n1", "source": {"persistentVolumeName": "pv1"}},
        "status": {"attached": false, "attachError": {"message": "rpc error: [auth] token_create: HTTP 401"}},
    });
    let attachment: cluster::AttachmentObject = serde_json::from_value(attachment).expect("an attachment");
    world.context.cluster.change(|index| drop(index.put(&attachment)));
    for _ in 0..2 {
        world.look().await.expect("reconciled");
        assert_eq!(count(), before + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn silent_provisioning_repeats_the_check_once() {
    let (world, logins) = mk_counted().await;
    let count = || *logins.lock();
    let before = count();
    let claim = json!({
        "metadata": {
            "name": "data", "namespace": "team", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"volume.kubernetes.io/storage-provisioner": NAME},
        },
        "status": {"phase": "Pending"},
    });
    let claim: cluster::ClaimObject = serde_json::from_value(claim).expect("a claim");
    world.context.cluster.change(|index| drop(index.put(&claim)));
    let action = world.look().await.expect("reconciled");
    assert_eq!(count(), before, "the last check is recent");
    let pause = Duration::from_secs(30) + RECHECK_MARGIN;
    assert_eq!(action, Action::requeue(pause));
    tokio::time::advance(pause).await;
    for _ in 0..2 {
        world.look().await.expect("reconciled");
        assert_eq!(count(), before + 1);
        tokio::time::advance(pause).await;
    }
}

#[tokio::test]
async fn rejected_credentials_change_neither_secret_nor_controller() {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    let before = (world.api.get(OWN_SECRET), world.api.get(DEPLOYMENT));
    world.set_password("wrong");
    world.reconcile().await.expect("reconciled");
    assert_eq!((world.api.get(OWN_SECRET), world.api.get(DEPLOYMENT)), before);
    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert_eq!(verdict, "True/CredentialsRejected");
    assert!(
        message.contains("HTTP 401") && message.contains("key cloud.conf of Secret cinder-csi/openstack-credentials")
    );
    assert!(!message.contains("wrong"), "{message}");

    world.set_password("better");
    world.reconcile().await.expect("reconciled");
    assert_ne!(world.api.get(OWN_SECRET), before.0);
    assert_eq!(world.condition(ConditionType::Degraded).0, "False/AsExpected");
}

#[tokio::test(start_paused = true)]
async fn unresponsive_clouds_are_checked_in_parallel() {
    let names = ["e", "d", "c", "b", "a"];
    let mut spec = mk_spec();
    let cloud = spec.clouds[0].clone();
    let mk = |name: &&str| CloudSpec {
        name: (*name).to_owned(),
        ..cloud.clone()
    };
    spec.clouds = names.iter().map(mk).collect();
    let mut world = World::new(spec, mk_index(&[], true));
    let context = Arc::get_mut(&mut world.context).expect("nobody else has it");
    context.reconcile_timeout = Duration::from_mins(2);
    world.set_password("unheard");
    let begun = Instant::now();
    world.reconcile().await.expect("reconciled");
    assert_eq!(begun.elapsed().as_secs(), 30, "the limit of a login");
    let status = world.driver().status.expect("a status");
    let told: Vec<&str> = status.clouds.iter().map(|cloud| cloud.name.as_str()).collect();
    assert_eq!(told, names, "in the order of the spec");
}

#[tokio::test]
async fn only_controller_waits_for_valid_credentials() {
    let world = World::managed();
    world.api.remove(SOURCE);
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(DEPLOYMENT).is_none() && world.api.get(OWN_SECRET).is_none());
    assert!(world.api.get(DAEMON_SET).is_some());
    assert_eq!(world.condition(ConditionType::Degraded).0, "True/SecretMissing");
}

#[tokio::test]
async fn new_credentials_are_not_reported_as_drift() {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    world.set_password("better");
    world.reconcile().await.expect("reconciled");
    let events = world.api.events();
    assert!(
        events
            .iter()
            .any(|event| event.contains("Updated") && event.contains("cloud-config")),
        "{events:?}"
    );
    assert!(
        !events.iter().any(|event| event.contains("DriftRepaired")),
        "{events:?}"
    );
}
