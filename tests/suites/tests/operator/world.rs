// SPDX-License-Identifier: Apache-2.0
//! Shared environment of the scenarios: the API server with the product's manifests, a cloud, two simulated nodes, and
//! operators.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::{ApiServer, wait_for, workspace_root};
use serde_json::{Value, json};
use suites::cloud::Cloud as _;
use suites::lab::Lab;
use suites::process::Process;
use suites::programs;
use suites::simulator::Simulator;

use crate::api::{Api, Object, PATIENCE};

/// Name of the driver under test.
pub(crate) const DRIVER: &str = "cinder.csi.openstack.org";
/// Namespace of the operator and its operands.
pub(crate) const NAMESPACE: &str = "cinder-csi";
/// API path of the object under test.
pub(crate) const OBJECT: &str = "/apis/csi.openstack.org/v1beta1/cindercsidrivers/cinder.csi.openstack.org";
pub(crate) const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/cinder-csi/deployments/cinder-csi-controller";
pub(crate) const DAEMON_SET: &str = "/apis/apps/v1/namespaces/cinder-csi/daemonsets/cinder-csi-node";
pub(crate) const CLASS: &str = "/apis/storage.k8s.io/v1/storageclasses/cinder";
/// API path of the Lease of the object under test.
const OBJECT_LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/cinder-csi/leases/cinder-csi-operator.cinder.csi.openstack.org";
pub(crate) const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/cinder-csi/leases/cinder-csi-operator";
pub(crate) const PODS: &str = "/api/v1/namespaces/cinder-csi/pods";
const REVISIONS: &str = "/apis/apps/v1/namespaces/cinder-csi/controllerrevisions";
pub(crate) const REVISION_LABEL: &str = "controller-revision-hash";
/// Counter of the operator's reconciles.
pub(crate) const RECONCILES: &str = "cinder_csi_operator_reconcile_total";
pub(crate) const NODES: [&str; 2] = ["node1", "node2"];
const ACCOUNT: &str = "system:serviceaccount:cinder-csi:cinder-csi-operator";
const SECRET: &str = "openstack-credentials";

/// Limit until another operator's Lease expires.
const UNTIL_LEADER: Duration = Duration::from_secs(90);

/// The environment of the scenarios.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) api: Api,
    pub(crate) lab: Rc<Lab>,
    server: ApiServer,
    simulator: Simulator,
    audit: PathBuf,
    ports: AtomicU16,
}

/// A running operator.
#[derive(Debug)]
pub(crate) struct Operator {
    pub(crate) name: String,
    pub(crate) process: Process,
    address: SocketAddr,
    metrics_address: SocketAddr,
    http: reqwest::Client,
}

impl World {
    /// Starts the API server, applies `config/default`, and creates nodes and the Secret with the credentials.
    pub(crate) async fn start(lab: &Rc<Lab>) -> Result<Self> {
        let policy = lab.path("audit-policy.json");
        let rules = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata", "users": [ACCOUNT]}, {"level": "None"}],
        });
        fs::write(&policy, rules.to_string()).context("cannot write the audit policy")?;
        let audit = lab.path("audit.log");
        let arguments = [
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", audit.display()),
            // Minimum duration of watches (the maximum is twice as long), so that some end during the tests.
            "--min-request-timeout=10".to_owned(),
        ];
        let directory = lab.path("api-server");
        fs::create_dir(&directory).context("cannot make a directory")?;
        let server = ApiServer::start(&directory, &arguments).await?;
        let world = Self {
            api: Api::new(&server)?,
            lab: lab.clone(),
            server,
            simulator: Simulator::start(lab, "").await?,
            audit,
            ports: AtomicU16::new(18080),
        };
        // The Deployment starts no pod here; each scenario starts its own operators.
        world.kustomize(&workspace_root().join("config/default")).await?;
        world.credentials(NAMESPACE, "cloud.conf").await?;
        for node in NODES {
            world.add_node(node).await?;
        }
        Ok(world)
    }

    /// Applies a kustomization.
    pub(crate) async fn kustomize(&self, directory: &Path) -> Result<()> {
        let apply = self
            .server
            .kubectl()
            .args(["apply", "--server-side", "-k"])
            .arg(directory);
        apply.output().await.map(drop).context("cannot apply the kustomization")
    }

    /// Creates the Secret with the credentials in a namespace.
    pub(crate) async fn credentials(&self, namespace: &str, key: &str) -> Result<()> {
        let text = fs::read_to_string(self.simulator.cloud_conf()).context("cannot read cloud.conf")?;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": namespace},
            "stringData": {key: text},
        });
        self.server.apply(&secret.to_string()).await
    }

    /// Adds a Ready node without the driver.
    pub(crate) async fn add_node(&self, name: &str) -> Result<()> {
        let labels = json!({"kubernetes.io/os": "linux", "kubernetes.io/hostname": name});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
        self.api.create_object(&node).await?;
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": "",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        self.api.merge(&format!("/api/v1/nodes/{name}/status"), &ready).await?;
        // New nodes have a not-ready taint until the node lifecycle controller removes it.
        let untainted = json!({"spec": {"taints": null}});
        self.api.merge(&format!("/api/v1/nodes/{name}"), &untainted).await?;
        let registration = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name},
            "spec": {"drivers": []}});
        self.api.create_object(&registration).await.map(drop)
    }

    /// Sets whether the CSINode lists the driver.
    pub(crate) async fn register(&self, node: &str, is_registered: bool) -> Result<()> {
        let path = format!("/apis/storage.k8s.io/v1/csinodes/{node}");
        let entry = json!({"name": DRIVER, "nodeID": format!("id-of-{node}"), "topologyKeys": []});
        let drivers = if is_registered { vec![entry] } else { Vec::new() };
        let change = json!({"spec": {"drivers": drivers}});
        self.api.merge(&path, &change).await.map(drop)
    }

    /// Creates the object with these fields of the spec in addition to the clouds.
    pub(crate) async fn ask_for_driver(&self, spec: Value) -> Result<()> {
        let mut object = json!({
            "apiVersion": "csi.openstack.org/v1beta1", "kind": "CinderCSIDriver", "metadata": {"name": DRIVER},
            "spec": {"clouds": [{"name": "default", "credentialsSecretRef": {"name": SECRET, "key": "cloud.conf"}}]},
        });
        for (field, value) in spec.as_object().into_iter().flatten() {
            object["spec"][field] = value.clone();
        }
        self.api.create_object(&object).await.map(drop)
    }

    /// Starts an operator with the shipped role and additional arguments of `run`, and waits until it is ready.
    pub(crate) async fn start_operator(&self, name: &str, arguments: &[&str]) -> Result<Operator> {
        let mut operator = self.spawn_operator(name, arguments).await?;
        wait_for(&format!("operator {name}"), PATIENCE, async || {
            operator.process.check()?;
            let (is_ready, text) = operator.readiness().await?;
            ensure!(is_ready, "{text}");
            Ok(())
        })
        .await?;
        Ok(operator)
    }

    /// Starts an operator without waiting.
    pub(crate) async fn spawn_operator(&self, name: &str, arguments: &[&str]) -> Result<Operator> {
        let create = self.server.kubectl().args(["create", "token", "cinder-csi-operator"]);
        let token = create.args(["-n", NAMESPACE, "--duration=2h"]).output().await?;
        let kubeconfig = self.lab.path(&format!("{name}.kubeconfig"));
        self.server.write_kubeconfig(&kubeconfig, token.trim())?;
        let port = self.ports.fetch_add(2, Ordering::Relaxed);
        let mut command = self.lab.command(programs::operator()?)?;
        command
            .args(["run", "--namespace", NAMESPACE, "--pod-name", name])
            .args(["--log-format=text", "--insecure-metrics"])
            .arg(format!("--admin-address=127.0.0.1:{port}"))
            .arg(format!("--metrics-address=127.0.0.1:{}", port + 1))
            .args(arguments)
            .env("KUBECONFIG", &kubeconfig)
            .env_remove("RUST_LOG");
        let process = Process::spawn(name, command, &self.lab.path(&format!("{name}.log")))?;
        let http = reqwest::Client::builder()
            .timeout(Duration::from_secs(5))
            .no_proxy()
            .build()
            .context("no HTTP client")?;
        Ok(Operator {
            name: name.to_owned(),
            process,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            metrics_address: SocketAddr::from((Ipv4Addr::LOCALHOST, port + 1)),
            http,
        })
    }

    /// Simulates one round of controllers and kubelets in which all pods work.
    pub(crate) async fn everything_runs(&self) -> Result<()> {
        self.others_work(&[]).await
    }

    /// Simulates one round of controllers and kubelets. Deleted pods end. Nodes without a pod get one of the current
    /// template, which becomes Ready and registers the driver, except on `broken` nodes.
    pub(crate) async fn others_work(&self, broken: &[&str]) -> Result<()> {
        self.controller_runs().await?;
        let daemon_set = self.api.get(DAEMON_SET).await?;
        let revision = self.revision(&daemon_set).await?;
        for node in NODES {
            self.node_works(node, &revision, broken.contains(&node)).await?;
        }
        let count = NODES.len();
        let status = json!({"status": {"observedGeneration": daemon_set["metadata"]["generation"],
            "desiredNumberScheduled": count, "currentNumberScheduled": count, "updatedNumberScheduled": count,
            "numberReady": count, "numberAvailable": count, "numberMisscheduled": 0}});
        self.api.merge(&format!("{DAEMON_SET}/status"), &status).await.map(drop)
    }

    /// Simulates only the Deployment's controller: all pods are available.
    pub(crate) async fn controller_runs(&self) -> Result<()> {
        let deployment = self.api.get(DEPLOYMENT).await?;
        let replicas = &deployment["spec"]["replicas"];
        let status = json!({"status": {"observedGeneration": deployment["metadata"]["generation"], "replicas": replicas,
            "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas}});
        self.api.merge(&format!("{DEPLOYMENT}/status"), &status).await.map(drop)
    }

    /// Simulates only the DaemonSet's controller: it observes the template.
    pub(crate) async fn controllers_see(&self) -> Result<()> {
        let daemon_set = self.api.get(DAEMON_SET).await?;
        self.revision(&daemon_set).await?;
        let seen = json!({"status": {"observedGeneration": daemon_set["metadata"]["generation"],
            "desiredNumberScheduled": NODES.len(), "currentNumberScheduled": NODES.len(), "numberMisscheduled": 0,
            "numberReady": NODES.len()}});
        self.api.merge(&format!("{DAEMON_SET}/status"), &seen).await.map(drop)
    }

    /// Creates the ControllerRevision of the current template, or gives it the highest number; returns the hash.
    pub(crate) async fn revision(&self, daemon_set: &Value) -> Result<String> {
        let mut hasher = std::hash::DefaultHasher::new();
        std::hash::Hash::hash(&daemon_set["spec"]["template"].to_string(), &mut hasher);
        let hash = format!("{:x}", std::hash::Hasher::finish(&hasher));
        let list = self.api.get(REVISIONS).await?;
        let all = list["items"].as_array().cloned().unwrap_or_default();
        let number = |revision: &Value| revision["revision"].as_i64().unwrap_or_default();
        let highest = all.iter().map(number).max().unwrap_or_default();
        let known = all
            .iter()
            .find(|revision| revision["metadata"]["labels"][REVISION_LABEL] == *hash);
        match known {
            Some(known) if number(known) == highest => {}
            Some(_) => {
                let path = format!("{REVISIONS}/cinder-csi-node-{hash}");
                self.api.merge(&path, &json!({"revision": highest + 1})).await?;
            }
            None => {
                let revision = json!({
                    "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": highest + 1, "data": {},
                    "metadata": {
                        "name": format!("cinder-csi-node-{hash}"),
                        "labels": {"csi.openstack.org/instance": DRIVER, (REVISION_LABEL): hash},
                        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "cinder-csi-node",
                            "uid": daemon_set["metadata"]["uid"], "controller": true}],
                    },
                });
                self.api.create(REVISIONS, &revision).await?;
            }
        }
        Ok(hash)
    }

    async fn node_works(&self, node: &str, revision: &str, is_broken: bool) -> Result<()> {
        let path = format!("{PODS}/node-pod-{node}");
        if let Some(pod) = self.api.find(&path).await? {
            if pod["metadata"]["deletionTimestamp"].is_null() {
                return Ok(());
            }
            self.api.delete(&path).await?;
        }
        self.create_node_pod(node, revision).await?;
        let now = now("+%FT%TZ")?;
        let ready = if is_broken { "False" } else { "True" };
        let mut status = json!({"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": now}]});
        if is_broken {
            let waiting = json!({"waiting": {"reason": "ImagePullBackOff", "message": "there is no such image"}});
            status["containerStatuses"] = json!([{"name": "cinder-csi-driver", "image": "driver", "imageID": "",
                "ready": false, "restartCount": 0, "state": waiting}]);
        }
        let status = json!({"status": status});
        self.api.merge(&format!("{path}/status"), &status).await?;
        if !is_broken {
            self.register(node, true).await?;
        }
        Ok(())
    }

    /// Creates the driver's pod of a node, as the DaemonSet's controller does.
    pub(crate) async fn create_node_pod(&self, node: &str, revision: &str) -> Result<()> {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("node-pod-{node}"), "labels": {
                "csi.openstack.org/instance": DRIVER, "app.kubernetes.io/component": "node", (REVISION_LABEL): revision}},
            "spec": {"nodeName": node, "serviceAccountName": "cinder-csi-node", "automountServiceAccountToken": false,
                "containers": [{"name": "cinder-csi-driver", "image": "driver"}]},
        });
        self.api.create(PODS, &pod).await.map(drop)
    }

    /// Returns the revision of each node's pod, and whether it is being deleted.
    pub(crate) async fn node_pods(&self) -> Result<Vec<(String, bool)>> {
        let mut pods = Vec::new();
        for node in NODES {
            if let Some(pod) = self.api.find(&format!("{PODS}/node-pod-{node}")).await? {
                let revision = pod["metadata"]["labels"][REVISION_LABEL].as_str().unwrap_or_default();
                pods.push((revision.to_owned(), !pod["metadata"]["deletionTimestamp"].is_null()));
            }
        }
        Ok(pods)
    }

    /// Merges a change into the spec of the object.
    pub(crate) async fn patch_spec(&self, spec: &Value) -> Result<()> {
        self.api.merge(OBJECT, &json!({ "spec": spec })).await.map(drop)
    }

    /// Waits until a condition has this status and reason, and returns its message. Simulates the other components
    /// meanwhile.
    pub(crate) async fn wait_for_reason(&self, kind: &str, status: &str, reason: &str) -> Result<String> {
        self.wait_for_reason_with(&[], kind, status, reason).await
    }

    /// Like [`World::wait_for_reason`], with nodes on which pods do not work.
    pub(crate) async fn wait_for_reason_with(
        &self,
        broken: &[&str],
        kind: &str,
        status: &str,
        reason: &str,
    ) -> Result<String> {
        wait_for(&format!("{kind}={status} ({reason})"), PATIENCE, async || {
            self.others_work(broken).await?;
            self.reason(kind, status, reason).await
        })
        .await
    }

    /// Waits until a rollout is complete. Simulates the other components meanwhile.
    pub(crate) async fn settled(&self) -> Result<()> {
        self.wait_for_reason("Progressing", "False", "AsExpected")
            .await
            .map(drop)
    }

    /// Starts an operator, creates a driver, and waits until its installation is complete.
    pub(crate) async fn installed(&self, name: &str, arguments: &[&str], spec: Value) -> Result<Operator> {
        let operator = self.start_operator(name, arguments).await?;
        self.ask_for_driver(spec).await?;
        self.nothing_is_left_to_do().await?;
        Ok(operator)
    }

    /// Waits until the operator has created all operands. Simulates the other components meanwhile.
    pub(crate) async fn nothing_is_left_to_do(&self) -> Result<()> {
        wait_for("the operands", PATIENCE, async || {
            self.everything_runs().await?;
            self.condition("Available", "True").await?;
            self.condition("Progressing", "False").await?;
            self.condition("Degraded", "False").await.map(drop)
        })
        .await
    }

    /// Returns reason and message of a condition, if it has this status for the current generation.
    pub(crate) async fn condition(&self, kind: &str, status: &str) -> Result<(String, String)> {
        let object = self.api.get(OBJECT).await?;
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let entry = conditions.iter().find(|condition| condition["type"] == kind);
        let entry = entry.with_context(|| format!("there is no condition {kind}"))?;
        ensure!(
            entry["status"] == status && entry["observedGeneration"] == object["metadata"]["generation"],
            "{entry}"
        );
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        Ok((text("reason"), text("message")))
    }

    /// Returns the message of a condition, if it has this status and reason for the current generation.
    pub(crate) async fn reason(&self, kind: &str, status: &str, reason: &str) -> Result<String> {
        let (now, message) = self.condition(kind, status).await?;
        ensure!(now == reason, "{now}: {message}");
        Ok(message)
    }

    /// Returns the driver's operands, without events, pods and other objects of controllers.
    pub(crate) async fn operands(&self) -> Result<Vec<Object>> {
        let label = format!("csi.openstack.org/instance={DRIVER}");
        let mut objects = self.api.labelled(&label).await?;
        objects.retain(|object| owned(&object.value).is_some());
        ensure!(!objects.is_empty(), "the operator made nothing");
        Ok(objects)
    }

    /// Returns the operator's writes so far as `VERB path`, from the audit log.
    pub(crate) fn writes(&self) -> Result<Vec<String>> {
        let text = fs::read_to_string(&self.audit).context("cannot read the audit log")?;
        let mut writes = Vec::new();
        // The last line may be incomplete.
        for entry in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let verb = entry["verb"].as_str().unwrap_or_default();
            if !["get", "list", "watch"].contains(&verb) && entry["stage"] == "ResponseComplete" {
                let path = entry["requestURI"].as_str().unwrap_or_default();
                let path = path.split('?').next().unwrap_or_default();
                writes.push(format!("{verb} {path}"));
            }
        }
        Ok(writes)
    }

    /// Deletes the object and its operands, for the next scenario.
    pub(crate) async fn clear(&self) -> Result<()> {
        if self.api.find(OBJECT).await?.is_some() {
            self.api.delete(OBJECT).await?;
            if self.api.find(OBJECT).await?.is_some() {
                self.api.release(OBJECT).await?;
            }
        }
        let label = format!("csi.openstack.org/instance={DRIVER}");
        for object in self.api.labelled(&label).await? {
            self.api.delete(&object.path).await?;
        }
        for node in NODES {
            self.register(node, false).await?;
            self.api.delete(&format!("{PODS}/node-pod-{node}")).await?;
        }
        let revisions = self.api.get(REVISIONS).await?;
        for revision in revisions["items"].as_array().into_iter().flatten() {
            let name = revision["metadata"]["name"].as_str().unwrap_or_default();
            self.api.delete(&format!("{REVISIONS}/{name}")).await?;
        }
        // Otherwise, the next operator would wait until the Lease expires.
        self.api.delete(LEASE).await
    }

    /// Describes the state, for the report of a failure.
    pub(crate) async fn describe(&self) -> String {
        let status = match self.api.find(OBJECT).await {
            Ok(Some(object)) => object["status"].to_string(),
            Ok(None) => "there is no object".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        format!("    {status}\n    logs: {}", self.lab.path("").display())
    }
}

/// Whether a write renews a Lease of the operator.
pub(crate) fn is_renewal(write: &str) -> bool {
    let renewals = [LEASE, OBJECT_LEASE].map(|lease| format!("update {lease}"));
    renewals.iter().any(|renewal| write == renewal)
}

/// Returns the current time in a format of `date`.
pub(crate) fn now(format: &str) -> Result<String> {
    let mut date = std::process::Command::new("date");
    let output = date.args(["-u", format]).output().context("cannot run date")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the fields of an object that the operator owns, from its managed fields.
pub(crate) fn owned(object: &Value) -> Option<&Value> {
    let managers = object["metadata"]["managedFields"].as_array()?;
    let entry = managers
        .iter()
        .find(|entry| entry["manager"] == "cinder-csi-operator" && entry["operation"] == "Apply")?;
    Some(&entry["fieldsV1"])
}

impl Operator {
    /// Returns whether it is ready, and the response.
    pub(crate) async fn readiness(&self) -> Result<(bool, String)> {
        let url = format!("http://{}/readyz", self.address);
        let answer = self.http.get(&url).send().await.context("it does not listen")?;
        Ok((answer.status().is_success(), answer.text().await?))
    }

    /// Returns the sum of all samples of a metric.
    pub(crate) async fn metric(&self, name: &str) -> Result<f64> {
        let url = format!("http://{}/metrics", self.metrics_address);
        let answer = self.http.get(&url).send().await.context("it does not listen")?;
        let text = answer.text().await.context("the metrics are cut")?;
        let mut sum = None;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((sample, value)) = line.rsplit_once(' ') else {
                continue;
            };
            if sample.split('{').next() == Some(name) {
                *sum.get_or_insert(0.0) += value.parse::<f64>().context("a value that is no number")?;
            }
        }
        sum.with_context(|| format!("there is no {name}"))
    }

    /// Whether it is the leader.
    pub(crate) async fn leads(&self) -> Result<bool> {
        Ok(self.metric("cinder_csi_operator_leader").await? > 0.0)
    }

    /// Waits until it is the leader. Another operator's Lease may have to expire.
    pub(crate) async fn wait_until_leader(&self) -> Result<()> {
        wait_for(&format!("{} to lead", self.name), UNTIL_LEADER, async || {
            ensure!(self.leads().await?, "it stands by");
            Ok(())
        })
        .await
    }

    /// Waits for this number of further successful reconciles.
    pub(crate) async fn reconciles(&self, more: f64) -> Result<()> {
        let goal = self.metric(RECONCILES).await.unwrap_or_default() + more;
        wait_for("reconciles", PATIENCE, async || {
            let now = self.metric(RECONCILES).await?;
            ensure!(now >= goal, "{now} of {goal}");
            Ok(())
        })
        .await
    }

    /// Stops it with SIGTERM.
    pub(crate) async fn stop(self) -> Result<()> {
        self.process.stop().await.map(drop)
    }
}
