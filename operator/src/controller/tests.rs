// SPDX-License-Identifier: Apache-2.0

mod adoption;
mod api;
mod canaries;
mod classes;
mod credentials;
mod door;
mod durable;
mod failures;
mod guard;
mod held;
mod holds;
mod leases;
mod looks;
mod migration;
mod migration_check;
mod namespaces;
mod narrowing;
mod objects;
mod relocation;
mod removal;
mod reports;
mod restore;
mod updates;

use std::collections::{BTreeMap, BTreeSet};

use cinder_csi_crds::{
    CinderCSIDriverSpec, Cloud as CloudSpec, ConditionType, FINALIZER, ManagementState, NetworkPolicyMode, TopologyMode,
};
use cinder_operator_core::{
    cluster::{self, GuardedObject, Index},
    decide::{Decision, Facts, Outcome, Report},
    manifests::DriverCredentials,
    releases::InstalledImages,
    restrictions::Restrictions,
};
use csi_sources::Sources;
use parking_lot::Mutex;
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    pauses::{OBSTACLE_PAUSE, RECHECK_MARGIN},
    *,
};
use crate::{
    apply::Writer, events::Events, metrics::Metrics, object_leases::ObjectLeases, observe::Cluster,
    openstack::LoginCheck,
};
use api::{Api, DRIVER};
use door::Door;

const NAME: &str = "cinder.csi.openstack.org";
const SOURCE: &str = "/api/v1/namespaces/cinder-csi/secrets/openstack-credentials";
const OWN_SECRET: &str = "/api/v1/namespaces/cinder-csi/secrets/cinder-csi-cloud-config";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/cinder-csi/deployments/cinder-csi-controller";
const DAEMON_SET: &str = "/apis/apps/v1/namespaces/cinder-csi/daemonsets/cinder-csi-node";
const LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/cinder-csi/leases/cinder-csi-operator.cinder.csi.openstack.org";
const CLASS: &str = "/apis/storage.k8s.io/v1/storageclasses/cinder";
const CSI_DRIVER: &str = "/apis/storage.k8s.io/v1/csidrivers/cinder.csi.openstack.org";

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
