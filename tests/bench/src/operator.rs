//! The operator against an API server that holds a large cluster: how much memory that takes, and how soon a changed spec is
//! carried out. There are etcd, the API server and the simulator as the cloud, but neither kubelets nor controllers: what those
//! would have written is made beforehand. The operator is a process under exactly the role that is shipped.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::{ApiServer, wait_for, wait_for_some, workspace_root};
use jiff::Timestamp;
use serde_json::json;
use suites::api::Api;
use suites::cloud::Cloud as _;
use suites::lab::Lab;
use suites::process::Process;
use suites::simulator::Simulator;

use crate::process::{Memory, memory};

mod audit;
mod objects;
mod table;

use audit::Write;
pub(crate) use objects::Scale;
pub(crate) use table::render;

const DRIVER: &str = "cinder.csi.openstack.org";
const NAMESPACE: &str = "cinder-csi";
const ACCOUNT: &str = "cinder-csi-operator";
const SECRET: &str = "openstack-credentials";
const OBJECTS: &str = "/apis/csi.openstack.org/v1alpha1/cindercsidrivers";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/cinder-csi/deployments/cinder-csi-controller";
const DAEMON_SET: &str = "/apis/apps/v1/namespaces/cinder-csi/daemonsets/cinder-csi-node";
const REVISIONS: &str = "/apis/apps/v1/namespaces/cinder-csi/controllerrevisions";
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 18080);
/// How long anything may take that the operator has to do: far more than what is wanted of it.
const PATIENCE: Duration = Duration::from_mins(3);
const FOR_EVER: Duration = Duration::from_hours(1);

/// What came out.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    /// Memory when it had read the cluster, had made its operands and had nothing more to do.
    listed: Memory,
    /// The same after the change.
    changed: Memory,
    /// From its start to the last operand that it made.
    install: Duration,
    /// From the request that changes the spec to the API server's answer to the last write of an operand.
    reaction: Duration,
    /// Those writes, in their order.
    writes: Vec<String>,
    /// Size of the binary in bytes.
    binary: u64,
}

/// Fills a cluster, starts the operator in it, changes a spec.
pub(crate) async fn measure(lab: &Lab, scale: Scale, program: &Path) -> Result<Figures> {
    let world = World::start(lab).await?;
    objects::make(&world.api, scale).await?;
    world.ask_for_driver().await?;

    let started = Timestamp::now();
    let mut operator = world.start_operator(lab, program).await?;
    while_it_runs(&mut operator, async {
        wait_for("the first operands", PATIENCE, async || {
            world.controllers_work(scale).await
        })
        .await?;
        wait_for("the driver's readiness", PATIENCE, async || world.is_known(scale).await).await
    })
    .await?;
    let installed = while_it_runs(&mut operator, world.rest()).await?;
    let listed = memory(operator.pid()?)?;

    let asked = Timestamp::now();
    let change = json!({"spec": {"logLevel": "Debug"}});
    world.api.merge(&object(), &change).await?;
    let changed = while_it_runs(&mut operator, async {
        // Nobody rolls it out here.
        let told = async || world.condition("Progressing", "True").await;
        wait_for("the answer to the changed spec", PATIENCE, told).await?;
        world.rest().await
    })
    .await?;
    let writes = changed.get(installed.len()..).unwrap_or_default();
    ensure!(
        ["deployments", "daemonsets"]
            .iter()
            .all(|kind| writes.iter().any(|write| write.resource == *kind)),
        "the change did not reach all operands: {writes:?}"
    );
    let figures = Figures {
        listed,
        changed: memory(operator.pid()?)?,
        install: between(started, installed.last())?,
        reaction: between(asked, writes.last())?,
        writes: writes.iter().map(ToString::to_string).collect(),
        binary: fs::metadata(program).context("cannot read the operator's file")?.len(),
    };
    operator.stop().await?;
    world.simulator.stop().await?;
    Ok(figures)
}

/// Waits for something, but not when the operator has ended.
async fn while_it_runs<T>(operator: &mut Process, waiting: impl Future<Output = Result<T>>) -> Result<T> {
    let ended = wait_for_some("the operator's end", FOR_EVER, async || {
        operator.check().map(|()| None::<T>)
    });
    let waited = tokio::select! {
        waited = waiting => waited,
        ended = ended => return ended,
    };
    waited.with_context(|| operator.tail())
}

/// From then to a write; both are this machine's time.
fn between(begin: Timestamp, end: Option<&Write>) -> Result<Duration> {
    let end = end.context("the operator wrote nothing")?;
    Duration::try_from(end.at.duration_since(begin)).context("it wrote before it was asked")
}

/// The path of the object.
fn object() -> String {
    format!("{OBJECTS}/{DRIVER}")
}

/// The API server with the product's manifests, and a cloud.
#[derive(Debug)]
struct World {
    api: Api,
    http: reqwest::Client,
    server: ApiServer,
    simulator: Simulator,
    audit: PathBuf,
}

impl World {
    async fn start(lab: &Lab) -> Result<Self> {
        let policy = lab.path("audit-policy.json");
        fs::write(&policy, audit::policy().to_string()).context("cannot write the audit policy")?;
        let audit = lab.path("audit.log");
        let arguments = [
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", audit.display()),
            // Nobody makes the accounts that it would ask for.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
        ];
        let directory = lab.path("api-server");
        fs::create_dir(&directory).context("cannot make a directory")?;
        let server = ApiServer::start(&directory, &arguments).await?;
        let apply = server.kubectl().args(["apply", "--server-side", "-k"]);
        apply.arg(workspace_root().join("config/default")).output().await?;
        let http = reqwest::Client::builder()
            .timeout(Duration::from_secs(5))
            .no_proxy()
            .build()
            .context("no HTTP client")?;
        Ok(Self {
            api: Api::new(&server)?,
            http,
            server,
            simulator: Simulator::start(lab, "").await?,
            audit,
        })
    }

    async fn ask_for_driver(&self) -> Result<()> {
        let text = fs::read_to_string(self.simulator.cloud_conf()).context("cannot read cloud.conf")?;
        let secret = json!({"metadata": {"name": SECRET}, "stringData": {"cloud.conf": text}});
        let secrets = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
        self.api.create(&secrets, &secret).await?;
        let driver = json!({
            "apiVersion": "csi.openstack.org/v1alpha1", "kind": "CinderCSIDriver", "metadata": {"name": DRIVER},
            "spec": {"clouds": [{"name": "default", "credentialsSecretRef": {"name": SECRET, "key": "cloud.conf"}}]},
        });
        self.api.create(OBJECTS, &driver).await.map(drop)
    }

    async fn start_operator(&self, lab: &Lab, program: &Path) -> Result<Process> {
        let create = self.server.kubectl().args(["create", "token", ACCOUNT]);
        let token = create.args(["-n", NAMESPACE, "--duration=2h"]).output().await?;
        let kubeconfig = lab.path("operator.kubeconfig");
        self.server.write_kubeconfig(&kubeconfig, token.trim())?;
        let mut command = lab.command(program)?;
        command
            .args(["run", "--namespace", NAMESPACE, "--pod-name", "bench"])
            .args(["--insecure-metrics", "--admin-address"])
            .arg(ADDRESS.to_string())
            .env("KUBECONFIG", &kubeconfig)
            .env_remove("RUST_LOG");
        Process::spawn("the operator", command, &lab.path("operator.log"))
    }

    /// Says of Deployment and DaemonSet that all of them runs.
    async fn controllers_work(&self, scale: Scale) -> Result<()> {
        let deployment = self.api.get(DEPLOYMENT).await?;
        let daemon_set = self.api.get(DAEMON_SET).await?;
        if self.api.find(&objects::revision_path()).await?.is_none() {
            self.api.create(REVISIONS, &objects::revision(&daemon_set)).await?;
        }
        let replicas = &deployment["spec"]["replicas"];
        let status = json!({"status": {"observedGeneration": deployment["metadata"]["generation"], "replicas": replicas,
            "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas}});
        self.api.merge(&format!("{DEPLOYMENT}/status"), &status).await?;
        let nodes = scale.nodes;
        let status = json!({"status": {"observedGeneration": daemon_set["metadata"]["generation"],
            "desiredNumberScheduled": nodes, "currentNumberScheduled": nodes, "updatedNumberScheduled": nodes,
            "numberReady": nodes, "numberAvailable": nodes, "numberMisscheduled": 0}});
        self.api.merge(&format!("{DAEMON_SET}/status"), &status).await.map(drop)
    }

    /// Whether the operator has found everything, and finds it as it should be.
    async fn is_known(&self, scale: Scale) -> Result<()> {
        self.condition("Available", "True").await?;
        self.condition("Progressing", "False").await?;
        self.condition("Degraded", "False").await?;
        let status = &self.api.get(&object()).await?["status"];
        for (path, count) in [
            ("/nodes/desired", scale.nodes),
            ("/nodes/registered", scale.nodes),
            ("/volumes/persistentVolumes", scale.volumes),
        ] {
            ensure!(
                status.pointer(path).is_some_and(|value| *value == count),
                "{path} is not {count}: {status}"
            );
        }
        Ok(())
    }

    /// Whether a condition of the object has this status for the present generation.
    async fn condition(&self, kind: &str, status: &str) -> Result<()> {
        let object = self.api.get(&object()).await?;
        let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let found = conditions.find(|condition| condition["type"] == kind);
        let found = found.with_context(|| format!("there is no condition {kind}"))?;
        ensure!(
            found["status"] == status && found["observedGeneration"] == object["metadata"]["generation"],
            "{found}"
        );
        Ok(())
    }

    /// Waits until the operator looks at everything and finds nothing to write; returns all its writes of operands so far.
    async fn rest(&self) -> Result<Vec<Write>> {
        wait_for("the operator's rest", PATIENCE, async || {
            let before = audit::writes(&self.audit)?;
            // The first may be of a look that began before.
            self.look().await?;
            self.look().await?;
            let after = audit::writes(&self.audit)?;
            ensure!(before.len() == after.len(), "it still writes: {:?}", after.last());
            Ok(after)
        })
        .await
    }

    /// Has the operator look, and waits until it has.
    async fn look(&self) -> Result<()> {
        let before = self.looks().await?;
        let mark = json!({"metadata": {"annotations": {"example.org/look": Timestamp::now().to_string()}}});
        self.api.merge(&object(), &mark).await?;
        wait_for_some("another look", PATIENCE, async || {
            Ok((self.looks().await? > before).then_some(()))
        })
        .await
    }

    /// How many times it has looked.
    async fn looks(&self) -> Result<f64> {
        let answer = self.http.get(format!("http://{ADDRESS}/metrics")).send().await;
        let text = answer.context("the operator does not listen")?.text().await;
        let text = text.context("the metrics are cut")?;
        let samples = text
            .lines()
            .filter(|line| line.starts_with("cinder_csi_operator_reconcile_total{"));
        let values = samples.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        Ok(values.sum())
    }
}
