// SPDX-License-Identifier: Apache-2.0

mod adoption;
mod api;
mod canaries;
mod classes;
mod credentials;
mod durable;
mod failures;
mod guard;
mod held;
mod holds;
mod leases;
mod looks;
mod namespaces;
mod narrowing;
mod relocation;
mod removal;
mod reports;
mod restore;
mod updates;

use std::collections::{BTreeMap, BTreeSet};

use cinder_cloud::{CloudConfig, CloudError, CloudService, EndpointProblem, Failure, VolumeId};
use cinder_csi_crds::{
    CinderCSIDriverSpec, Cloud as CloudSpec, ConditionType, FINALIZER, ManagementState, NetworkPolicyMode, TopologyMode,
};
use cinder_operator_core::{
    clouds::{CloudFacts, CloudState},
    cluster::{self, GuardedObject, Index},
    decide::{Decision, Facts, Outcome, Report},
    manifests::{DriverCredentials, Place},
    releases::InstalledImages,
    restrictions::Restrictions,
};
use csi_sources::Sources;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    pauses::{OBSTACLE_PAUSE, RECHECK_MARGIN},
    *,
};
use crate::{
    apply::Writer,
    events::Events,
    metrics::Metrics,
    object_leases::ObjectLeases,
    observe::{self, Cluster},
    openstack::{Keystone, LoginCheck, LoginFacts, LoginQueries, TrialError},
};
use api::{Api, DRIVER};

const NAME: &str = "cinder.csi.openstack.org";
const SOURCE: &str = "/api/v1/namespaces/cinder-csi/secrets/openstack-credentials";
const OWN_SECRET: &str = "/api/v1/namespaces/cinder-csi/secrets/cinder-csi-cloud-config";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/cinder-csi/deployments/cinder-csi-controller";
const DAEMON_SET: &str = "/apis/apps/v1/namespaces/cinder-csi/daemonsets/cinder-csi-node";
const LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/cinder-csi/leases/cinder-csi-operator.cinder.csi.openstack.org";
const CLASS: &str = "/apis/storage.k8s.io/v1/storageclasses/cinder";
const CSI_DRIVER: &str = "/apis/storage.k8s.io/v1/csidrivers/cinder.csi.openstack.org";

/// Accepts every password except `wrong`, `forbidden`, `unreachable` and `broken`, and never responds to `unheard`.
/// `elsewhere` leads to a different project without the driver's volumes, `western` to a third project with them, and
/// `faraway` to a different region without them. With `misled` Cinder is missing, and with `undecided` the catalogue
/// has several regions. `spaced` has the zone `zone one`.
#[derive(Debug, Default)]
struct Door {
    logins: Arc<Mutex<usize>>,
}

impl Keystone for Door {
    fn list_existing(
        &self,
        config: CloudConfig,
        volumes: Arc<BTreeSet<String>>,
    ) -> BoxFuture<'_, Result<Vec<VolumeId>, CloudError>> {
        let conf = config.to_cloud_conf(None);
        let is_elsewhere = conf.contains("elsewhere") || conf.contains("faraway");
        let existing = volumes.iter().filter(|_| !is_elsewhere).map(VolumeId::new);
        Box::pin(std::future::ready(Ok(existing.collect())))
    }

    fn check_login(&self, config: CloudConfig, queries: LoginQueries) -> BoxFuture<'_, Result<LoginFacts, TrialError>> {
        *self.logins.lock() += 1;
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
        if is("misled") {
            let missing = CloudError::NoEndpoint {
                service: "block-storage",
                region: Some("one".to_owned()),
                interface: "public",
                known: String::new(),
                problem: EndpointProblem::Place,
            };
            let missing = TrialError::Service(CloudService::BlockStorage, missing);
            return Box::pin(std::future::ready(Err(missing)));
        }
        let answer = if is("undecided") {
            Err(CloudError::RegionAmbiguous {
                interface: "public",
                regions: "one, two".to_owned(),
            })
        } else if is("wrong") {
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
            let projects = [("elsewhere", "another"), ("western", "w")];
            let project = projects.iter().find(|(password, _)| is(password));
            Ok(LoginFacts {
                place: Place {
                    project: project.map_or("p", |(_, project)| project).to_owned(),
                    region: Some(if is("faraway") { "two" } else { "one" }.to_owned()),
                },
                knows_volumes: (!queries.volumes.is_empty()).then(|| !is("elsewhere") && !is("faraway")),
                state: CloudState {
                    facts: CloudFacts {
                        compute_zones: is("spaced").then(|| "zone one".to_owned()).into_iter().collect(),
                        volume_zones: Vec::new(),
                    },
                    ..CloudState::default()
                },
            })
        };
        Box::pin(std::future::ready(answer.map_err(TrialError::Login)))
    }
}

/// A cluster with one node, where the operator has read one Secret with valid credentials.
struct World {
    api: Api,
    context: Arc<Context>,
}

fn mk_index(volumes: &[&str], registered: bool) -> Index {
    fn put<K: cluster::Indexed + serde::de::DeserializeOwned>(index: &mut Index, object: Value) {
        index.put(&serde_json::from_value::<K>(object).expect("an object"));
    }
    let mut index = Index::default();
    let ready = json!([{"type": "Ready", "status": "True"}]);
    put::<cluster::NodeObject>(
        &mut index,
        json!({"metadata": {"name": "n1"}, "spec": {}, "status": {"conditions": ready}}),
    );
    let drivers = if registered { json!([{"name": NAME}]) } else { json!([]) };
    put::<cluster::RegistrationObject>(
        &mut index,
        json!({"metadata": {"name": "n1"}, "spec": {"drivers": drivers}}),
    );
    for name in volumes {
        put::<cluster::VolumeObject>(
            &mut index,
            json!({"metadata": {"name": name}, "spec": {"csi": {"driver": NAME, "volumeHandle": format!("id-of-{name}")}}}),
        );
    }
    index
}

impl World {
    fn new(spec: CinderCSIDriverSpec, index: Index) -> Self {
        Self::on(spec, Cluster::fixed(index))
    }

    fn on(spec: CinderCSIDriverSpec, cluster: Cluster) -> Self {
        let api = Api::start();
        let mut driver = CinderCSIDriver::new(NAME, spec);
        driver.metadata.uid = Some("driver-uid".to_owned());
        driver.metadata.generation = Some(1);
        api.put(DRIVER, serde_json::to_value(&driver).expect("JSON"));
        let world = Self {
            context: Arc::new(Self::mk_context(&api, cluster)),
            api,
        };
        world.set_password("good");
        world
    }

    /// A new process of the operator.
    fn mk_context(api: &Api, cluster: Cluster) -> Context {
        let metrics = Arc::new(Metrics::new().expect("metrics"));
        Context {
            client: api.client.clone(),
            writer: Writer::new(api.client.clone(), Arc::clone(&metrics)),
            sources: Sources::system(),
            cluster,
            events: Events::new(
                api.client.clone(),
                "operator",
                "pod",
                Arc::clone(&metrics),
                Sources::system(),
            ),
            metrics,
            login_check: LoginCheck::new(Box::new(Door::default())),
            namespace: "cinder-csi".to_owned(),
            operand_namespaces: vec!["drivers".to_owned()],
            leases: Self::mk_leases(api, "cinder-csi", "cinder-csi-operator"),
            images: InstalledImages::default(),
            restrictions: Restrictions::default(),
            drivers: kube::runtime::reflector::store().0,
            idle_interval: Duration::from_mins(5),
            reconcile_timeout: Duration::from_secs(10),
            registration_deadline: Duration::from_mins(10),
            memories: Memories::default(),
        }
    }

    /// The Leases of a new process of an installation.
    fn mk_leases(api: &Api, namespace: &str, lease: &str) -> Arc<ObjectLeases> {
        let sources = Sources::system();
        let process = format!("pod_{}", sources.uuid());
        let leases = ObjectLeases::new(api.client.clone(), (namespace, lease), &process, sources);
        Arc::new(leases)
    }

    /// Restarts the operator. Its watches return the objects of `index`.
    fn restart(&mut self, index: Index) {
        self.context = Arc::new(Self::mk_context(&self.api, Cluster::fixed(index)));
    }

    fn managed() -> Self {
        Self::new(mk_spec(), mk_index(&[], true))
    }

    fn set_password(&self, password: &str) {
        self.set_password_in(SOURCE, password);
    }

    fn set_password_in(&self, path: &str, password: &str) {
        let text = format!(
            "[Global]\nauth-url = https://keystone.example.org/v3\nusername = csi\npassword = {password}\ntenant-name = \
             p\ndomain-name = Default\nregion = one\n"
        );
        let data = k8s_openapi::ByteString(text.into_bytes());
        self.api.put(
            path,
            json!({"metadata": {"name": path.rsplit('/').next()}, "data": {"cloud.conf": data}}),
        );
    }

    /// Replaces text of the user's Secret.
    fn edit_secret(&self, from: &str, to: &str) {
        let data = self.api.get(SOURCE).expect("the Secret")["data"]["cloud.conf"].clone();
        let data: k8s_openapi::ByteString = serde_json::from_value(data).expect("bytes");
        let text = String::from_utf8(data.0).expect("text").replace(from, to);
        let data = k8s_openapi::ByteString(text.into_bytes());
        self.api.change(SOURCE, "/data", json!({"cloud.conf": data}));
    }

    fn driver(&self) -> CinderCSIDriver {
        serde_json::from_value(self.api.get(DRIVER).expect("the driver")).expect("a driver")
    }

    /// Reconciles after a change of any object except volumes.
    async fn reconcile(&self) -> Result<Action, ReconcileError> {
        self.context.request_full_reconcile(NAME);
        self.context.record_change(NAME, Instant::now());
        self.look().await
    }

    /// Reconciles without a reported change, or after a change of a volume.
    async fn look(&self) -> Result<Action, ReconcileError> {
        reconcile(Arc::new(GuardedObject(Ok(self.driver()))), Arc::clone(&self.context)).await
    }

    fn condition(&self, type_: ConditionType) -> (String, String) {
        let status = self.driver().status.expect("a status");
        let condition = status.condition(type_).expect("the condition");
        (
            format!("{}/{}", condition.status, condition.reason),
            condition.message.clone(),
        )
    }

    /// Sets an annotation with a time to a time long ago.
    fn since_long(&self, path: &str, annotation: &str) {
        let mut object = self.api.get(path).expect("the object");
        object["metadata"]["annotations"][annotation] = json!("2026-01-01T00:00:00Z");
        self.api.put(path, object);
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
    // No test cloud lists its zones.
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
