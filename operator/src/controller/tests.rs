mod api;
mod classes;
mod diff;
mod failures;
mod namespaces;
pub(crate) mod reached;

use std::sync::Mutex;

use cinder_cloud::{CloudConfig, CloudError, Failure};
use cinder_csi_crds::{CinderCSIDriverSpec, Cloud as CloudSpec, ConditionType, TopologyMode};
use futures::future::BoxFuture;
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::{
    clouds::Clouds,
    credentials::{Checker, Keystone},
    events::Events,
    images::InstalledImages,
    metrics::Metrics,
    observe::{Cluster, Index},
    reload::{self, Http, Reloads},
};
use api::{Api, DRIVER};

const NAME: &str = "cinder.csi.openstack.org";
const SOURCE: &str = "/api/v1/namespaces/cinder-csi/secrets/openstack-credentials";
const OWN_SECRET: &str = "/api/v1/namespaces/cinder-csi/secrets/cinder-csi-cloud-config";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/cinder-csi/deployments/cinder-csi-controller";
const DAEMON_SET: &str = "/apis/apps/v1/namespaces/cinder-csi/daemonsets/cinder-csi-node";
const CLASS: &str = "/apis/storage.k8s.io/v1/storageclasses/cinder";
const CSI_DRIVER: &str = "/apis/storage.k8s.io/v1/csidrivers/cinder.csi.openstack.org";

/// Accepts every password but `wrong`, `forbidden`, `unreachable` and `broken`, and says nothing to `unheard`.
#[derive(Debug, Default)]
struct Door {
    logins: Arc<Mutex<usize>>,
}

impl Keystone for Door {
    fn login(&self, config: CloudConfig) -> BoxFuture<'_, Result<(), CloudError>> {
        *self.logins.lock().expect("no poison") += 1;
        let conf = config.to_cloud_conf(None);
        let failure = |status| Failure {
            operation: "token_create",
            object: String::new(),
            status,
            fault: "The request you have made requires authentication.".to_owned(),
            request_id: None,
            elapsed: Duration::ZERO,
        };
        let is = |password: &str| conf.contains(password);
        if is("unheard") {
            return Box::pin(std::future::pending());
        }
        let answer = if is("wrong") {
            Err(CloudError::Auth(failure(Some(401))))
        } else if is("forbidden") {
            Err(CloudError::Forbidden(failure(Some(403))))
        } else if is("unreachable") {
            Err(CloudError::Unreachable {
                failure: failure(None),
                sent: false,
            })
        } else if is("broken") {
            Err(CloudError::Server(failure(Some(500))))
        } else {
            Ok(())
        };
        Box::pin(std::future::ready(answer))
    }
}

/// A cluster with one node, where the operator has seen one Secret with good credentials.
struct World {
    api: Api,
    context: Arc<Context>,
}

fn mk_index(volumes: &[&str], registered: bool) -> Index {
    fn put<K: observe::Fact + serde::de::DeserializeOwned>(index: &mut Index, object: Value) {
        index.put(&serde_json::from_value::<K>(object).expect("an object"));
    }
    let mut index = Index::default();
    let ready = json!([{"type": "Ready", "status": "True"}]);
    put::<observe::NodeObject>(
        &mut index,
        json!({"metadata": {"name": "n1"}, "spec": {}, "status": {"conditions": ready}}),
    );
    let drivers = if registered { json!([{"name": NAME}]) } else { json!([]) };
    put::<observe::RegistrationObject>(
        &mut index,
        json!({"metadata": {"name": "n1"}, "spec": {"drivers": drivers}}),
    );
    for name in volumes {
        put::<observe::VolumeObject>(
            &mut index,
            json!({"metadata": {"name": name}, "spec": {"csi": {"driver": NAME}}}),
        );
    }
    index
}

impl World {
    fn new(spec: CinderCSIDriverSpec, index: Index) -> Self {
        let api = Api::start();
        let mut driver = CinderCSIDriver::new(NAME, spec);
        driver.metadata.uid = Some("driver-uid".to_owned());
        driver.metadata.generation = Some(1);
        api.put(DRIVER, serde_json::to_value(&driver).expect("JSON"));
        let metrics = Arc::new(Metrics::new().expect("metrics"));
        let context = Context::new(
            api.client.clone(),
            Parts {
                cluster: Cluster::fixed(index),
                events: Events::new(api.client.clone(), "operator", "pod", Arc::clone(&metrics)),
                clouds: Clouds::blind(Arc::clone(&metrics)),
                reloads: Reloads::new(Box::new(Http), reload::LIMIT),
                metrics,
                checker: Checker::new(Box::new(Door::default())),
                namespace: "cinder-csi".to_owned(),
                operand_namespaces: vec!["drivers".to_owned()],
                images: InstalledImages::default(),
                drivers: kube::runtime::reflector::store().0,
                idle_interval: Duration::from_mins(5),
                reconcile_timeout: Duration::from_secs(10),
                registration_deadline: Duration::from_mins(10),
            },
        );
        let world = Self {
            api,
            context: Arc::new(context),
        };
        world.set_password("good");
        world
    }

    fn managed() -> Self {
        Self::new(mk_spec(), mk_index(&[], true))
    }

    fn set_password(&self, password: &str) {
        let text = format!(
            "[Global]\nauth-url = https://keystone.example.org/v3\nusername = csi\npassword = {password}\ntenant-name = \
             p\ndomain-name = Default\nregion = one\n"
        );
        let data = k8s_openapi::ByteString(text.into_bytes());
        self.api.put(
            SOURCE,
            json!({"metadata": {"name": "openstack-credentials"}, "data": {"cloud.conf": data}}),
        );
    }

    fn driver(&self) -> CinderCSIDriver {
        serde_json::from_value(self.api.get(DRIVER).expect("the driver")).expect("a driver")
    }

    async fn reconcile(&self) -> Result<Action, ReconcileError> {
        reconcile(Arc::new(DeserializeGuard(Ok(self.driver()))), Arc::clone(&self.context)).await
    }

    fn condition(&self, type_: ConditionType) -> (String, String) {
        let status = self.driver().status.expect("a status");
        let condition = status::find(&status, type_).expect("the condition");
        (
            format!("{}/{}", condition.status, condition.reason),
            condition.message.clone(),
        )
    }

    fn delete(&self) {
        self.api.change(DRIVER, "/metadata", {
            let mut metadata = self.api.get(DRIVER).expect("the driver")["metadata"].clone();
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            metadata
        });
    }
}

fn mk_spec() -> CinderCSIDriverSpec {
    let mut cloud = CloudSpec::from_secret("openstack-credentials");
    cloud.credentials_secret_ref.key = "cloud.conf".to_owned();
    let mut spec = CinderCSIDriverSpec::new(vec![cloud]);
    // Nobody here tells which zones there are.
    spec.topology.mode = TopologyMode::Enabled;
    spec
}

fn deletes(writes: &[String]) -> Vec<&str> {
    writes
        .iter()
        .filter_map(|write| write.strip_prefix("DELETE "))
        .collect()
}

#[tokio::test]
async fn what_was_let_go_of_is_taken_up_where_the_spec_says_so() {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    for path in [DEPLOYMENT, DAEMON_SET] {
        world.api.change(path, "/metadata/labels", json!({}));
        world.api.change(path, "/metadata/annotations", json!({}));
    }
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.condition(ConditionType::Degraded).0, "True/ForeignObject");

    world.api.change(DRIVER, "/spec/adoption", json!({"mode": "Adopt"}));
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.condition(ConditionType::Degraded).0, "False/AsExpected");
    for path in [DEPLOYMENT, DAEMON_SET] {
        let labels = world.api.get(path).expect("the object")["metadata"]["labels"].clone();
        assert_eq!(labels[cinder_csi_crds::INSTANCE_LABEL], NAME, "{path}");
    }
}

/// A driver that is to take the place of a Go driver whose controller nothing scales down.
fn beside_another(state: ManagementState, password: &str) -> World {
    let mut spec = mk_spec();
    spec.management_state = state;
    spec.adoption.mode = cinder_csi_crds::AdoptionMode::Migrate;
    let world = World::new(spec, mk_index(&[], true));
    world.set_password(password);
    let container = json!({"name": "driver", "image": "registry.k8s.io/provider-os/cinder-csi-plugin:v1.36.0"});
    world.api.put(
        "/apis/apps/v1/namespaces/kube-system/deployments/csi-cinder-controllerplugin",
        json!({"metadata": {"name": "csi-cinder-controllerplugin", "namespace": "kube-system", "uid": "old"},
            "spec": {"replicas": 1, "selector": {}, "template": {"spec": {"containers": [container]}}}}),
    );
    world
}

#[rstest]
#[case::it_goes_on(ManagementState::Managed, "good", Duration::ZERO, adoption::TAKEOVER_PAUSE)]
#[case::it_has_stalled(ManagementState::Managed, "good", adoption::TAKEOVER_STALLS_AFTER, OBSTACLE_PAUSE)]
#[case::nothing_may_be_changed(ManagementState::DryRun, "good", Duration::ZERO, OBSTACLE_PAUSE)]
#[case::credentials_do_not_work(ManagementState::Managed, "wrong", Duration::ZERO, OBSTACLE_PAUSE)]
#[tokio::test(start_paused = true)]
async fn a_take_over_is_looked_at_every_second_only_while_it_goes_on(
    #[case] state: ManagementState,
    #[case] password: &str,
    #[case] later: Duration,
    #[case] pause: Duration,
) {
    let world = beside_another(state, password);
    world.reconcile().await.expect("reconciled");
    tokio::time::advance(later).await;
    let action = world.reconcile().await.expect("reconciled");
    assert_eq!(action, Action::requeue(pause + Duration::from_millis(100)));
}

/// The objects of an operator of another version that nothing marks as the operator's, and an object that is to take them up.
async fn let_go_of(version: &str, update: Value) -> World {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    let labels = json!({"app.kubernetes.io/version": version});
    for path in [DEPLOYMENT, DAEMON_SET] {
        world.api.change(path, "/metadata/labels", labels.clone());
        world.api.change(path, "/metadata/annotations", json!({}));
    }
    world.api.change(DRIVER, "/spec/adoption", json!({"mode": "Adopt"}));
    world.api.change(DRIVER, "/spec/update", update);
    world.api.take_writes();
    world
}

#[rstest]
#[case::not_approved("0.0.1", json!({"policy": "Manual"}), ConditionType::Progressing, "True/WaitingForApproval")]
#[case::back("99.0.0", json!({}), ConditionType::Degraded, "True/DowngradeRefused")]
#[tokio::test]
async fn what_is_taken_up_waits_for_its_update_like_all_else(
    #[case] version: &str,
    #[case] update: Value,
    #[case] condition: ConditionType,
    #[case] expected: &str,
) {
    let world = let_go_of(version, update).await;
    let before = (world.api.get(DEPLOYMENT), world.api.get(DAEMON_SET));
    world.reconcile().await.expect("reconciled");
    assert_eq!((world.api.get(DEPLOYMENT), world.api.get(DAEMON_SET)), before);
    assert_eq!(world.condition(condition).0, expected);
}

#[tokio::test]
async fn the_nodes_that_are_taken_up_follow_the_controller() {
    let world = let_go_of("0.0.1", json!({})).await;
    world.reconcile().await.expect("reconciled");
    let writes = world.api.take_writes();
    let is_written = |path| writes.contains(&format!("PATCH {path}"));
    assert!(is_written(DEPLOYMENT) && !is_written(DAEMON_SET), "{writes:?}");
}

#[tokio::test]
async fn a_new_driver_gets_all_its_objects_and_then_nothing_more_is_written() {
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
async fn a_changed_object_is_put_right_and_nothing_else_is_written() {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    world.reconcile().await.expect("reconciled");
    world.api.take_writes();
    world.api.change(DEPLOYMENT, "/spec/replicas", json!(0));
    world.reconcile().await.expect("reconciled");
    assert_eq!(
        world.api.take_writes(),
        [format!("PATCH {DEPLOYMENT}"), format!("PATCH {DRIVER}/status")]
    );
    assert!(
        world
            .api
            .events()
            .iter()
            .any(|event| event.contains("DriftRepaired") && event.contains("spec.replicas"))
    );
    assert_eq!(world.condition(ConditionType::DriftDetected).0, "True/FieldConflict");
}

#[tokio::test]
async fn a_storage_class_of_somebody_else_is_not_touched_and_the_status_tells_what_to_do() {
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
    assert_eq!(verdict, "True/ForeignObject");
    assert!(
        message.contains("StorageClass cinder") && message.contains("another name"),
        "{message}"
    );
}

#[tokio::test]
async fn refused_credentials_leave_secret_and_controller_as_they_are() {
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
async fn clouds_that_do_not_answer_take_the_time_of_one() {
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
async fn without_good_credentials_the_controller_waits_and_everything_else_is_made() {
    let world = World::managed();
    world.api.remove(SOURCE);
    world.reconcile().await.expect("reconciled");
    assert!(world.api.get(DEPLOYMENT).is_none() && world.api.get(OWN_SECRET).is_none());
    assert!(world.api.get(DAEMON_SET).is_some());
    assert_eq!(world.condition(ConditionType::Degraded).0, "True/SecretMissing");
}

#[tokio::test]
async fn a_reconcile_that_was_cut_short_is_finished_by_the_next() {
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
async fn a_deletion_waits_for_a_volume_and_names_it() {
    let world = World::managed();
    world.api.put(
        "/api/v1/persistentvolumes/pv-with-data",
        json!({"metadata": {"name": "pv-with-data"}, "spec": {"csi": {"driver": NAME}}}),
    );
    world.reconcile().await.expect("reconciled");
    world.delete();
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    world.reconcile().await.expect("reconciled");
    assert_eq!(deletes(&world.api.take_writes()), Vec::<&str>::new());
    let (verdict, message) = world.condition(ConditionType::Progressing);
    assert_eq!(verdict, "True/DeletionBlocked");
    assert!(message.contains("pv-with-data"), "{message}");
    assert_eq!(world.driver().finalizers(), [FINALIZER]);
    let events = world.api.events();
    assert_eq!(
        events.iter().filter(|event| event.contains("DeletionBlocked")).count(),
        1,
        "{events:?}"
    );
}

#[rstest]
#[case::a_snapshot(
    "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents/s1",
    json!({"metadata": {"name": "s1"}, "spec": {"driver": NAME}})
)]
#[case::a_group_snapshot(
    "/apis/groupsnapshot.storage.k8s.io/v1/volumegroupsnapshotcontents/g1",
    json!({"metadata": {"name": "g1"}, "spec": {"driver": NAME}})
)]
#[case::a_volume_that_is_being_made(
    "/api/v1/persistentvolumeclaims/c1",
    json!({"metadata": {"name": "c1", "namespace": "ns", "annotations": {"volume.kubernetes.io/storage-provisioner": NAME}},
        "status": {"phase": "Pending"}})
)]
#[case::a_volume_of_the_plugin_that_was_before(
    "/api/v1/persistentvolumes/old",
    json!({"metadata": {"name": "old"}, "spec": {"cinder": {"volumeID": "v"}}})
)]
#[tokio::test]
async fn a_deletion_asks_the_api_server_for_all_that_needs_the_driver(#[case] path: &str, #[case] object: Value) {
    // Discovery has told of no optional API.
    let world = World::new(mk_spec(), mk_index(&[], false));
    world.reconcile().await.expect("reconciled");
    let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
    world.api.put(path, object);
    world.delete();
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    assert_eq!(deletes(&world.api.take_writes()), Vec::<&str>::new());
    let (verdict, message) = world.condition(ConditionType::DeletionBlocked);
    assert!(
        verdict.starts_with("True/") && message.contains(&name),
        "{verdict} {message}"
    );
    world.api.remove(path);
    world.reconcile().await.expect("reconciled");
    assert!(world.driver().finalizers().is_empty(), "nothing is in the way any more");
}

#[tokio::test]
async fn without_volumes_a_deletion_takes_everything_away_in_order_and_then_lets_the_object_go() {
    let world = World::new(mk_spec(), mk_index(&[], false));
    world.reconcile().await.expect("reconciled");
    world.delete();
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    let writes = world.api.take_writes();
    let at = |path: &str| {
        deletes(&writes)
            .iter()
            .position(|deleted| *deleted == path)
            .expect(path)
    };
    assert!(at(CLASS) < at(DEPLOYMENT) && at(DEPLOYMENT) < at(DAEMON_SET) && at(DAEMON_SET) < at(OWN_SECRET));
    assert_eq!(deletes(&writes).last(), Some(&CSI_DRIVER));
    assert_eq!(
        writes.last(),
        Some(&format!("PATCH {DRIVER}")),
        "the finalizer goes last"
    );
    assert!(world.driver().finalizers().is_empty());
    assert!(world.api.get(SOURCE).is_some(), "what the administrator made stays");
}

#[rstest]
#[case::out_of_a_backup("Refuse", |object: &mut Value| {
    object["metadata"]["creationTimestamp"] = json!("2026-01-02T00:00:00Z");
    object["metadata"]["managedFields"][0]["time"] = json!("2026-01-01T00:00:00Z");
})]
#[case::let_go_of_and_not_taken_up_yet("Adopt", |object: &mut Value| object["metadata"]["labels"] = json!({}))]
#[tokio::test]
async fn a_removal_finds_by_its_name_what_lists_do_not_bring(#[case] mode: &str, #[case] change: fn(&mut Value)) {
    let world = World::new(mk_spec(), mk_index(&[], false));
    world.reconcile().await.expect("reconciled");
    world.api.change(DRIVER, "/spec/adoption", json!({"mode": mode}));
    let paths = [DEPLOYMENT, DAEMON_SET, OWN_SECRET];
    for path in paths {
        let mut object = world.api.get(path).expect("the object");
        change(&mut object);
        world.api.put(path, object);
    }
    world.delete();
    world.reconcile().await.expect("reconciled");
    assert_eq!(paths.map(|path| world.api.get(path)), [None, None, None]);
    assert!(world.driver().finalizers().is_empty());
}

#[tokio::test]
async fn a_removal_that_the_api_server_refuses_says_so_in_the_status() {
    let world = World::new(mk_spec(), mk_index(&[], false));
    world.reconcile().await.expect("reconciled");
    world.delete();
    world.api.break_writes_to(Some(DEPLOYMENT));
    world.reconcile().await.expect_err("the Deployment cannot be deleted");
    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert_eq!(verdict, "True/ApplyFailed");
    assert!(
        message.contains("Deployment cinder-csi/cinder-csi-controller") && message.contains("by the test"),
        "{message}"
    );
    world.api.break_writes_to(None);
    world.reconcile().await.expect("reconciled");
    assert!(world.driver().finalizers().is_empty(), "the removal goes on");
}

#[tokio::test]
async fn the_registration_ends_before_the_node_pods_do() {
    let world = World::managed();
    world.reconcile().await.expect("reconciled");
    world.delete();
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    let writes = world.api.take_writes();
    assert!(
        writes.contains(&format!("PATCH {DAEMON_SET}")) && !deletes(&writes).contains(&DAEMON_SET),
        "{writes:?}"
    );
    let arguments = world.api.get(DAEMON_SET).expect("the DaemonSet")["spec"]["template"].to_string();
    assert!(
        arguments.contains("--unregister") && !arguments.contains("--register"),
        "{arguments}"
    );
    let (verdict, message) = world.condition(ConditionType::Progressing);
    assert!(
        verdict == "True/Removing" && message.contains("n1"),
        "{verdict}: {message}"
    );
    world.reconcile().await.expect("reconciled");
    assert_eq!(
        deletes(&world.api.take_writes()),
        Vec::<&str>::new(),
        "it waits for the kubelet"
    );
}

#[tokio::test]
async fn removed_takes_the_driver_away_keeps_the_object_and_then_writes_nothing() {
    let mut spec = mk_spec();
    spec.management_state = ManagementState::Removed;
    let world = World::new(spec, mk_index(&[], false));
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.condition(ConditionType::Available).0, "False/Removed");
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn what_is_let_go_of_is_not_called_removed_and_is_to_be_adopted() {
    let mut spec = mk_spec();
    spec.deletion.policy = cinder_csi_crds::DeletionPolicy::Orphan;
    let world = World::new(spec, mk_index(&[], false));
    world.reconcile().await.expect("reconciled");
    world
        .api
        .change(DRIVER, "/spec/managementState", json!(ManagementState::Removed));
    world.reconcile().await.expect("let go");
    assert!(world.api.get(DAEMON_SET).is_some() && world.api.get(CSI_DRIVER).is_some());
    assert_eq!(world.condition(ConditionType::Available).0, "Unknown/Released");
    world.api.take_writes();
    world.reconcile().await.expect("reconciled");
    assert_eq!(world.api.take_writes(), Vec::<String>::new());

    world
        .api
        .change(DRIVER, "/spec/managementState", json!(ManagementState::Managed));
    world.reconcile().await.expect("told");
    let (verdict, message) = world.condition(ConditionType::Degraded);
    assert_eq!(verdict, "True/ForeignObject");
    assert!(
        message.contains("Set spec.adoption.mode to Adopt") && !message.contains("Migrate"),
        "{message}"
    );

    world.delete();
    world.reconcile().await.expect("let go");
    assert!(world.driver().finalizers().is_empty());
    let events = world.api.events();
    assert!(
        events.iter().any(|event| event.contains("goes on running"))
            && !events.iter().any(|event| event.contains("nothing of it is left")),
        "{events:?}"
    );
}

#[tokio::test]
async fn unmanaged_reports_and_changes_nothing() {
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
    assert_eq!(world.condition(ConditionType::Progressing).0, "False/DeletionHeld");
}

#[tokio::test]
async fn an_object_that_is_no_longer_wanted_is_removed() {
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
async fn for_an_object_that_went_before_its_first_reconcile_nothing_is_made() {
    let world = World::managed();
    let driver = world.driver();
    world.api.remove(DRIVER);
    let result = reconcile(Arc::new(DeserializeGuard(Ok(driver))), Arc::clone(&world.context)).await;
    assert_eq!(result.expect("reconciled"), Action::await_change());
    assert_eq!(world.api.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn a_copy_that_somebody_made_of_an_object_is_his_and_stays() {
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
async fn new_credentials_are_an_update_and_no_drift() {
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

#[tokio::test]
async fn a_class_that_is_made_anew_keeps_the_mark_of_the_administrator() {
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
