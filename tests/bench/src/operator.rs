// SPDX-License-Identifier: Apache-2.0
//! Measures the operator against the API server of a large cluster: its memory, and the delay until it applies a
//! changed spec. etcd, the API server and the simulator run; kubelets and controllers do not, so the benchmark creates
//! their objects beforehand. The operator is a process with exactly the shipped ClusterRole.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::{ApiServer, wait_for, wait_for_some, workspace_root};
use jiff::Timestamp;
use rustix::process::Pid;
use serde_json::json;
use suites::api::Api;
use suites::cloud::Cloud as _;
use suites::lab::Lab;
use suites::process::Process;
use suites::simulator::Simulator;
use tokio::time::Instant;

use crate::process::{Memory, memory, processor_time};

mod audit;
mod load;
mod objects;
mod queue;
mod table;

use audit::{Count, Write};
pub(crate) use objects::Scale;
use queue::Queue;
pub(crate) use table::render;

const DRIVER: &str = "cinder.csi.openstack.org";
const NAMESPACE: &str = "cinder-csi";
const ACCOUNT: &str = "cinder-csi-operator";
const SECRET: &str = "openstack-credentials";
const OBJECTS: &str = "/apis/csi.openstack.org/v1beta1/cindercsidrivers";
/// Annotation that permits a project change. Its value is the uid of the object.
const MOVE_PROJECT: &str = "csi.openstack.org/move-project";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/cinder-csi/deployments/cinder-csi-controller";
const DAEMON_SET: &str = "/apis/apps/v1/namespaces/cinder-csi/daemonsets/cinder-csi-node";
const REVISIONS: &str = "/apis/apps/v1/namespaces/cinder-csi/controllerrevisions";
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 18080);
/// Limit of every wait for the operator, far above all goals.
const PATIENCE: Duration = Duration::from_mins(3);
const FOR_EVER: Duration = Duration::from_hours(1);

/// Observation time of the operator, both idle and under load.
const WATCHED: Duration = Duration::from_mins(1);
/// Time for which the API server does not answer.
const AWAY: Duration = Duration::from_secs(12);
/// Pause between two changes of the spec.
const BETWEEN_CHANGES: Duration = Duration::from_millis(500);

/// Figures of the operator.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    /// Memory after the initial lists, when all operands exist and the operator is idle.
    listed: Memory,
    /// Memory at the end of the run.
    ended: Memory,
    /// Time from its start to the creation of the last operand.
    install: Duration,
    /// Usage while nothing changes.
    rest: Usage,
    /// Usage under load.
    loaded: Usage,
    /// Changes of the spec under load.
    changes: Vec<Change>,
    /// Recovery after an outage of the API server.
    away: OutageRecovery,
    /// Writes of operands after the last change, in order.
    writes: Vec<String>,
    /// Size of the binary in bytes.
    binary: u64,
}

/// Resource usage of the operator over a period.
#[derive(Debug, Clone, Default)]
struct Usage {
    lasts: Duration,
    processor: Duration,
    asked: Count,
    queue: Queue,
}

/// A change of the spec: delays from the response of the API server to the first and the last write of an operand.
#[derive(Debug, Clone, Copy)]
struct Change {
    first: Duration,
    last: Duration,
}

/// Recovery after the API server answers again.
#[derive(Debug, Clone, Copy)]
struct OutageRecovery {
    /// Time until a reconcile succeeds.
    look: Duration,
    /// Whether the operator still has its Lease.
    leads: bool,
}

/// Fills a cluster, starts the operator, loads the cluster, changes the spec `changes` times, and stops the API server
/// for a while.
pub(crate) async fn measure(lab: &Lab, scale: Scale, changes: u32, program: &Path) -> Result<Figures> {
    let world = World::start(lab).await?;
    objects::make(&world.api, scale).await?;
    world.ask_for_driver().await?;

    let started = Timestamp::now();
    let mut operator = world.start_operator(lab, program).await?;
    let pid = operator.pid()?;
    let (installed, listed, rest) = while_it_runs(&mut operator, async {
        let made = async || world.controllers_work(scale).await;
        wait_for("the first operands", PATIENCE, made).await?;
        wait_for("the driver's readiness", PATIENCE, async || world.is_known(scale).await).await?;
        let installed = world.rest().await?;
        Ok((installed, memory(pid)?, world.usage(pid).await?))
    })
    .await?;

    let loaded = async {
        let busy = async {
            let loaded = world.usage(pid).await?;
            let mut observed = Vec::new();
            for number in 0..changes {
                observed.push(world.change(scale, number).await?);
            }
            Ok((loaded, observed, world.away().await?))
        };
        tokio::select! {
            ended = load::load(&world.api, scale) => match ended? {},
            done = busy => done,
        }
    };
    let (loaded, told, away) = while_it_runs(&mut operator, loaded).await?;
    let (changes, writes): (Vec<Change>, Vec<Vec<Write>>) = told.into_iter().unzip();
    let figures = Figures {
        listed,
        ended: memory(pid)?,
        install: between(started, installed.last())?,
        rest,
        loaded,
        changes,
        away,
        writes: writes.last().into_iter().flatten().map(ToString::to_string).collect(),
        binary: fs::metadata(program).context("cannot read the operator's file")?.len(),
    };
    operator.stop().await?;
    world.simulator.stop().await?;
    Ok(figures)
}

/// Waits for a condition. Fails if the operator exits first.
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

/// Returns the time from `begin` to a write. Both timestamps come from the clock of this machine.
fn between(begin: Timestamp, end: Option<&Write>) -> Result<Duration> {
    let end = end.context("the operator wrote nothing")?;
    Duration::try_from(end.at.duration_since(begin)).context("it wrote before it was asked")
}

/// Returns the API path of the CinderCSIDriver object.
fn object() -> String {
    format!("{OBJECTS}/{DRIVER}")
}

/// An API server with the product's manifests, and a cloud.
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
            // No controller creates the service accounts that the admission plugin requires.
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
            "apiVersion": "csi.openstack.org/v1beta1", "kind": "CinderCSIDriver", "metadata": {"name": DRIVER},
            "spec": {"clouds": [{"name": "default", "credentialsSecretRef": {"name": SECRET, "key": "cloud.conf"}}]},
        });
        let made = self.api.create(OBJECTS, &driver).await?;
        // The simulator does not have the cluster's volumes, so its credentials belong to another project. The
        // annotation permits that.
        let meant = json!({"metadata": {"annotations": {MOVE_PROJECT: made["metadata"]["uid"]}}});
        self.api.merge(&object(), &meant).await.map(drop)
    }

    async fn start_operator(&self, lab: &Lab, program: &Path) -> Result<Process> {
        let create = self.server.kubectl().args(["create", "token", ACCOUNT]);
        let token = create.args(["-n", NAMESPACE, "--duration=2h"]).output().await?;
        let kubeconfig = lab.path("operator.kubeconfig");
        self.server.write_kubeconfig(&kubeconfig, token.trim())?;
        let mut command = lab.command(program)?;
        command
            .args(["run", "--namespace", NAMESPACE, "--pod-name", "bench"])
            .args(["--insecure-metrics", "--admin-address=127.0.0.1:0"])
            .arg(format!("--metrics-address={ADDRESS}"))
            .env("KUBECONFIG", &kubeconfig)
            .env_remove("RUST_LOG");
        Process::spawn("the operator", command, &lab.path("operator.log"))
    }

    /// Reports the Deployment and the DaemonSet as fully available in their status.
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

    /// Checks that the operator has read the whole cluster and reports the driver as available.
    async fn is_known(&self, scale: Scale) -> Result<()> {
        self.condition("Available", "True").await?;
        self.condition("Progressing", "False").await?;
        self.condition("Degraded", "False").await?;
        let status = &self.api.get(&object()).await?["status"];
        for (path, count) in [("/nodes/desired", scale.nodes), ("/nodes/registered", scale.nodes)] {
            ensure!(
                status.pointer(path).is_some_and(|value| *value == count),
                "{path} is not {count}: {status}"
            );
        }
        let known = self
            .metric("cinder_csi_operator_volumes{driver=\"cinder.csi.openstack.org\",kind=\"PersistentVolume\"}")
            .await?;
        ensure!(
            (known - f64::from(scale.volumes)).abs() < 0.5,
            "{known} of {} volumes are known",
            scale.volumes
        );
        Ok(())
    }

    /// Measures the usage of the operator over the observation time.
    async fn usage(&self, pid: Pid) -> Result<Usage> {
        let (begun, before) = (audit::count(&self.audit)?, processor_time(pid)?.own);
        let queue = Queue::read(&self.metrics().await?);
        let since = Instant::now();
        tokio::time::sleep(WATCHED).await;
        let counts = audit::count(&self.audit)?;
        Ok(Usage {
            lasts: since.elapsed(),
            processor: processor_time(pid)?.own.saturating_sub(before),
            asked: Count {
                requests: counts.requests - begun.requests,
                statuses: counts.statuses - begun.statuses,
            },
            queue: Queue::read(&self.metrics().await?).since(&queue),
        })
    }

    /// Changes a field of the spec that affects controller and nodes, and waits for the writes of both.
    async fn change(&self, scale: Scale, number: u32) -> Result<(Change, Vec<Write>)> {
        tokio::time::sleep(BETWEEN_CHANGES).await;
        let level = if number.is_multiple_of(2) { "Debug" } else { "Normal" };
        let (known, asked) = (
            fs::metadata(&self.audit).context("no audit log")?.len(),
            Timestamp::now(),
        );
        self.api.merge(&object(), &json!({"spec": {"logLevel": level}})).await?;
        let writes = wait_for("the answer to the changed spec", PATIENCE, async || {
            let writes = audit::writes_after(&self.audit, known)?;
            let reached = |kind: &str| writes.iter().any(|write| write.resource == kind);
            ensure!(
                reached("deployments") && reached("daemonsets"),
                "so far it wrote {writes:?}"
            );
            Ok(writes)
        })
        .await?;
        let change = Change {
            first: between(asked, writes.first())?,
            last: between(asked, writes.last())?,
        };
        self.controllers_work(scale).await?;
        Ok((change, writes))
    }

    /// Stops the API server for [`AWAY`], and measures the recovery.
    async fn away(&self) -> Result<OutageRecovery> {
        let lease = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{ACCOUNT}");
        let transitions =
            async || Ok::<_, anyhow::Error>(self.api.get(&lease).await?["spec"]["leaseTransitions"].clone());
        let before = transitions().await?;
        self.server.freeze(AWAY).await?;
        let back = Instant::now();
        // The first reconcile to finish may have started before the outage.
        for _ in 0..2 {
            self.trigger_reconcile().await?;
        }
        Ok(OutageRecovery {
            look: back.elapsed(),
            leads: transitions().await? == before,
        })
    }

    /// Checks that a condition of the object has this status for the current generation.
    async fn condition(&self, kind: &str, status: &str) -> Result<()> {
        let object = self.api.get(&object()).await?;
        let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let entry = conditions.find(|condition| condition["type"] == kind);
        let entry = entry.with_context(|| format!("there is no condition {kind}"))?;
        ensure!(
            entry["status"] == status && entry["observedGeneration"] == object["metadata"]["generation"],
            "{entry}"
        );
        Ok(())
    }

    /// Waits until a full reconcile writes nothing; returns all writes of operands so far.
    async fn rest(&self) -> Result<Vec<Write>> {
        wait_for("the operator's rest", PATIENCE, async || {
            let before = audit::writes(&self.audit)?;
            // The first reconcile to finish may have started before the wait.
            self.trigger_reconcile().await?;
            self.trigger_reconcile().await?;
            let after = audit::writes(&self.audit)?;
            ensure!(before.len() == after.len(), "it still writes: {:?}", after.last());
            Ok(after)
        })
        .await
    }

    /// Triggers a reconcile and waits for its end.
    async fn trigger_reconcile(&self) -> Result<()> {
        let before = self.reconcile_count().await?;
        let mark = json!({"metadata": {"annotations": {"example.org/look": Timestamp::now().to_string()}}});
        self.api.merge(&object(), &mark).await?;
        wait_for_some("another look", PATIENCE, async || {
            Ok((self.reconcile_count().await? > before).then_some(()))
        })
        .await
    }

    /// Returns the number of reconciles so far.
    async fn reconcile_count(&self) -> Result<f64> {
        self.metric("cinder_csi_operator_reconcile_total{").await
    }

    /// Returns the sum of the operator's samples with this prefix.
    async fn metric(&self, begin: &str) -> Result<f64> {
        let text = self.metrics().await?;
        let samples = text.lines().filter(|line| line.starts_with(begin));
        let values = samples.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        Ok(values.sum())
    }
    /// Fetches the operator's metrics as text.
    async fn metrics(&self) -> Result<String> {
        let answer = self.http.get(format!("http://{ADDRESS}/metrics")).send().await;
        let text = answer.context("the operator does not listen")?.text().await;
        text.context("the metrics are cut")
    }
}
