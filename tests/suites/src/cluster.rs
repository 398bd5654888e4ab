// SPDX-License-Identifier: Apache-2.0
//! A cluster with the product, helpers for it, and scenarios that do not depend on the kind of cloud.

mod attributes;
pub mod credentials;
pub mod growth;
pub mod life;
mod login;
mod objects;
mod openstack;
mod servers;
pub mod snapshots;
pub mod writers;

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use harness::{Cluster, ClusterConfig, Product, Progress, wait_for};
use serde_json::{Value, json};

pub use login::Login;
use objects::good_driver;
pub use objects::{claim, pod};
use openstack::Site;
pub use openstack::{OpenStack, SECURE_KEYSTONE};

/// Name of the driver under test.
pub const DRIVER: &str = "cinder.csi.openstack.org";
/// Namespace of the operator and its operands.
pub const NAMESPACE: &str = "cinder-csi";
/// Name of the driver's container in the controller and node pods.
pub const DRIVER_CONTAINER: &str = "cinder-csi-driver";
/// Namespace of the scenarios' pods.
pub const USERS: &str = "users";
/// Name of the Secret that the object refers to.
pub const SECRET: &str = "openstack-credentials";
/// Name of the StorageClass in the object.
pub const CLASS: &str = "cinder";

/// Limit of every wait. A killed sidecar blocks its Lease for 137 s.
pub const PATIENCE: Duration = Duration::from_mins(5);
/// Timeout of kubectl, slightly shorter so that it can print its reason.
pub const WITHIN: &str = "--timeout=290s";

/// A cluster with an available driver.
#[derive(Debug)]
pub struct World {
    pub cluster: Cluster,
    product: Option<Product>,
    openstack: Option<OpenStack>,
}

impl World {
    /// Wraps a cluster on the simulator without the product.
    pub fn bare(cluster: Cluster) -> Self {
        Self {
            cluster,
            product: None,
            openstack: None,
        }
    }

    /// Installs the operator and a driver, and waits until the driver is available.
    pub async fn install(cluster: Cluster) -> Result<Self> {
        Self::bare(cluster).with_product().await
    }

    /// Starts a cluster whose two nodes are servers of the real OpenStack, and installs the product.
    pub async fn on_real_services(progress: Progress) -> Result<Self> {
        Self::bare_on_real_services(progress).await?.with_product().await
    }

    /// Like [`World::on_real_services`], without the product.
    pub async fn bare_on_real_services(progress: Progress) -> Result<Self> {
        Self::begun(progress, Site::cluster).await
    }

    /// Like [`World::bare_on_real_services`], with an additional node in the other zone.
    pub async fn bare_in_both_zones(progress: Progress) -> Result<Self> {
        Self::begun(progress, Site::cluster_in_both_zones).await
    }

    async fn begun(progress: Progress, cluster: fn(&Site) -> ClusterConfig) -> Result<Self> {
        let site = Site::take().await?;
        let config = ClusterConfig {
            progress,
            ..cluster(&site)
        };
        let cluster = Cluster::start(config).await?;
        let openstack = Some(site.open(&cluster).await?);
        Ok(Self {
            openstack,
            ..Self::bare(cluster)
        })
    }

    /// Installs the operator and a driver in a bare cluster, and waits until the driver is available.
    pub async fn with_product(mut self) -> Result<Self> {
        let logs = self.cluster.logs()?.to_owned();
        let product = self
            .cluster
            .install_product()
            .await
            .with_context(|| format!("the operator is not installed; logs: {}", logs.display()))?;
        self.product = Some(product);
        let installed = async {
            let users = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": USERS}});
            self.cluster.apply(&users.to_string()).await?;
            self.ask_for_driver().await
        };
        if let Err(error) = installed.await {
            let description = self.describe().await;
            return Err(error.context(format!(
                "the product is not installed; logs: {}\n{description}",
                logs.display()
            )));
        }
        Ok(self)
    }

    /// Returns the installed product. Fails in a bare cluster.
    pub fn product(&self) -> Result<&Product> {
        self.product
            .as_ref()
            .context("this cluster began with nothing installed")
    }

    /// Returns the real services. Fails in a cluster on the simulator.
    pub fn openstack(&self) -> Result<&OpenStack> {
        self.openstack.as_ref().context("this cluster's cloud is the simulator")
    }

    /// Removes the cluster, checks that nothing remains, and releases the real services.
    pub async fn stop(self) -> Result<()> {
        self.cluster.stop().await.context("something of the cluster is left")?;
        match self.openstack {
            Some(openstack) => openstack.stop().await,
            None => Ok(()),
        }
    }

    /// Applies a valid Secret and a valid object, and waits until the driver is available.
    pub async fn ask_for_driver(&self) -> Result<()> {
        self.good_secret().await?;
        self.apply_driver().await?;
        self.healthy().await
    }

    /// Applies a valid object.
    pub async fn apply_driver(&self) -> Result<()> {
        self.cluster.apply(&good_driver().to_string()).await.map(drop)
    }

    /// Returns the CinderCSIDriver object.
    pub async fn driver(&self) -> Result<Value> {
        self.cluster.get(&["cindercsidriver", DRIVER]).await
    }

    /// Waits until the driver is Available and neither Progressing nor Degraded.
    pub async fn healthy(&self) -> Result<()> {
        for (kind, status) in [("Available", "True"), ("Progressing", "False"), ("Degraded", "False")] {
            self.condition(kind, status, |_| true).await?;
        }
        // A Deployment is up to date before its old pods are deleted, but callers that count pods must not count those.
        wait_for("the end of the pods that were replaced", PATIENCE, async || {
            let list = self.cluster.get(&["pods", "-n", NAMESPACE]).await?;
            let pods = list["items"].as_array().context("a list without items")?;
            let leaving: Vec<_> = pods
                .iter()
                .filter(|pod| !pod["metadata"]["deletionTimestamp"].is_null())
                .map(|pod| pod["metadata"]["name"].to_string())
                .collect();
            ensure!(leaving.is_empty(), "{} still ending", leaving.join(", "));
            Ok(())
        })
        .await
    }

    /// Returns a valid application credential.
    pub fn login(&self) -> Result<Login> {
        if let Some(openstack) = &self.openstack {
            return openstack.login();
        }
        let access = self.cluster.simulator()?.access();
        Ok(Login {
            auth_url: access.auth_url.clone(),
            region: access.region.clone(),
            id: access.application_credential_id.clone(),
            secret: access.application_credential_secret.clone(),
        })
    }

    /// Writes the Secret with a valid application credential.
    pub async fn good_secret(&self) -> Result<()> {
        self.secret("clouds.yaml", &self.login()?.clouds_yaml()).await
    }

    /// Returns a clouds.yaml with this secret of the application credential.
    pub fn clouds_yaml(&self, secret: &str) -> Result<String> {
        let login = Login {
            secret: secret.to_owned(),
            ..self.login()?
        };
        Ok(login.clouds_yaml())
    }

    /// Writes one key of the Secret that the object refers to.
    pub async fn secret(&self, key: &str, content: &str) -> Result<()> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": NAMESPACE},
            "stringData": {key: content},
        });
        self.cluster.apply(&secret.to_string()).await.map(drop)
    }

    /// Merges a change into the spec of the object.
    pub async fn patch_spec(&self, spec: &Value) -> Result<()> {
        let patch = json!({ "spec": spec }).to_string();
        self.cluster
            .kubectl(&["patch", "cindercsidriver", DRIVER, "--type=merge", "-p", &patch])
            .await
            .map(drop)
    }

    /// Waits until a condition of the object has this status for the current generation and satisfies `accept`. Returns
    /// the condition.
    pub async fn condition(&self, kind: &str, status: &str, accept: impl Fn(&Value) -> bool) -> Result<Value> {
        wait_for(&format!("condition {kind}={status}"), PATIENCE, async || {
            let object = self.driver().await?;
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let entry = conditions.iter().find(|condition| condition["type"] == kind);
            let entry = entry.with_context(|| format!("there is no condition {kind}"))?;
            ensure!(
                entry["observedGeneration"] == object["metadata"]["generation"],
                "{kind} tells about generation {}, the object has {}",
                entry["observedGeneration"],
                object["metadata"]["generation"]
            );
            ensure!(entry["status"] == status && accept(entry), "{entry}");
            Ok(entry.clone())
        })
        .await
    }

    /// Creates a claim, and a pod that continuously appends to a file on its volume, optionally on this node.
    pub async fn start_pod(&self, name: &str, node: Option<&str>) -> Result<()> {
        self.start_pod_of(name, node, &claim(name, "Filesystem")).await
    }

    /// Like [`World::start_pod`], with another StorageClass.
    pub async fn start_pod_of_class(&self, name: &str, class: &str) -> Result<()> {
        let mut claim = claim(name, "Filesystem");
        claim["spec"]["storageClassName"] = json!(class);
        self.start_pod_of(name, None, &claim).await
    }

    /// Like [`World::start_pod_of_class`], on this node.
    pub async fn start_pod_on(&self, name: &str, node: &str, class: &str) -> Result<()> {
        let mut claim = claim(name, "Filesystem");
        claim["spec"]["storageClassName"] = json!(class);
        self.start_pod_of(name, Some(node), &claim).await
    }

    /// Like [`World::start_pod`], with this claim.
    pub async fn start_pod_of(&self, name: &str, node: Option<&str>, claim: &Value) -> Result<()> {
        self.cluster.apply(&claim.to_string()).await?;
        let script = "trap 'exit 0' TERM; while :; do date >> /data/log && sync; sleep 1 & wait $!; done";
        let mut pod = pod(name, script, node);
        pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
        self.cluster.apply(&pod.to_string()).await.map(drop)
    }

    /// Creates a claim, and a pod with a raw block volume at `/dev/volume`.
    pub async fn start_block_pod(&self, name: &str) -> Result<()> {
        self.cluster.apply(&claim(name, "Block").to_string()).await?;
        let mut pod = pod(name, "trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done", None);
        pod["spec"]["containers"][0]["volumeDevices"] = json!([{"name": "data", "devicePath": "/dev/volume"}]);
        self.cluster.apply(&pod.to_string()).await.map(drop)
    }

    /// Creates a claim with a data source, and a pod; waits until the pod is Ready.
    pub async fn start_pod_from(&self, name: &str, source: &Value) -> Result<()> {
        let mut claim = claim(name, "Filesystem");
        claim["spec"]["dataSource"] = source.clone();
        self.start_pod_of(name, None, &claim).await?;
        self.ready(name).await
    }

    /// Waits until a pod is Ready.
    pub async fn ready(&self, pod: &str) -> Result<()> {
        wait_for(&format!("pod {pod}"), PATIENCE, async || {
            let object = self.cluster.get(&["pod", pod, "-n", USERS]).await?;
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let ready = conditions
                .iter()
                .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
            if !ready {
                bail!("{}", self.last_events().await);
            }
            Ok(())
        })
        .await
    }

    /// Runs a shell command in a pod.
    pub async fn sh(&self, pod: &str, command: &str) -> Result<String> {
        let words = ["exec", "-n", USERS, pod, "--", "sh", "-c", command];
        self.cluster.kubectl(&words).await
    }

    /// Deletes a pod and waits for its removal.
    pub async fn delete_pod(&self, name: &str) -> Result<()> {
        let words = ["delete", "pod", name, "-n", USERS, WITHIN, "--ignore-not-found"];
        self.cluster.kubectl_within(PATIENCE, &words).await.map(drop)
    }

    /// Deletes a pod and its claim, and waits until the volume is deleted in Kubernetes and in the cloud.
    pub async fn delete_pod_and_volume(&self, name: &str) -> Result<()> {
        self.delete_pod(name).await?;
        self.delete_claim(name).await?;
        self.nothing_left().await
    }

    /// Deletes one of the users' objects and waits for its removal.
    pub async fn delete(&self, kind: &str, name: &str) -> Result<()> {
        let words = ["delete", kind, name, "-n", USERS, WITHIN, "--ignore-not-found"];
        self.cluster.kubectl_within(PATIENCE, &words).await.map(drop)
    }

    /// Deletes all pods and claims, and waits until the volumes are deleted in Kubernetes and in the cloud.
    pub async fn delete_all(&self) -> Result<()> {
        for kind in ["pods", "pvc"] {
            let words = ["delete", kind, "--all", "-n", USERS, WITHIN];
            self.cluster.kubectl_within(PATIENCE, &words).await?;
        }
        self.nothing_left().await
    }

    /// Deletes a claim and waits for its removal; its volume may still exist.
    pub async fn delete_claim(&self, name: &str) -> Result<()> {
        let words = ["delete", "pvc", name, "-n", USERS, WITHIN, "--ignore-not-found"];
        self.cluster.kubectl_within(PATIENCE, &words).await.map(drop)
    }

    /// Waits until no node has an attached volume, which takes longer than the removal of its pod.
    pub async fn detached(&self) -> Result<()> {
        wait_for("the end of all attachments", PATIENCE, async || {
            let remaining = self
                .cluster
                .kubectl(&["get", "volumeattachments", "-o", "name"])
                .await?;
            ensure!(remaining.trim().is_empty(), "left: {remaining}");
            Ok(())
        })
        .await
    }

    /// Waits until there are no volumes in Kubernetes and in the cloud.
    pub async fn nothing_left(&self) -> Result<()> {
        wait_for("the end of all volumes", PATIENCE, async || {
            for kind in ["persistentvolumes", "volumeattachments"] {
                let remaining = self.cluster.kubectl(&["get", kind, "-o", "name"]).await?;
                ensure!(
                    remaining.trim().is_empty(),
                    "left: {}",
                    remaining.split_whitespace().collect::<Vec<_>>().join(", ")
                );
            }
            if let Some(openstack) = &self.openstack {
                return openstack.nothing_left().await;
            }
            let state = self.cluster.simulator()?.state().await?;
            for what in ["volumes", "attachments", "mappings", "loop_devices"] {
                ensure!(
                    state[what].as_array().is_some_and(Vec::is_empty),
                    "the cloud has {what}: {}",
                    state[what]
                );
            }
            Ok(())
        })
        .await
    }

    /// Returns the cloud's current resources of a kind, such as volumes or snapshots.
    pub async fn cloud_things(&self, kind: &str) -> Result<Vec<Value>> {
        if let Some(openstack) = &self.openstack {
            return openstack.list(kind).await;
        }
        let state = self.cluster.simulator()?.state().await?;
        let things = state[kind].as_array();
        Ok(things.with_context(|| format!("a state without {kind}"))?.clone())
    }

    /// Returns the names of the cloud's current volumes.
    pub async fn cloud_volumes(&self) -> Result<Vec<String>> {
        let volumes = self.cloud_things("volumes").await?;
        let names = volumes
            .iter()
            .map(|volume| volume["name"].as_str().unwrap_or_default().to_owned());
        Ok(names.collect())
    }

    /// Sets latencies of the cloud, for example `{"create": "5s"}`.
    pub async fn latencies(&self, latencies: Value) -> Result<()> {
        self.cluster
            .simulator()?
            .admin(reqwest::Method::POST, "latency", Some(latencies))
            .await
            .map(drop)
    }

    /// Waits until the cloud has received a request of this operation since its log was cleared.
    pub async fn asked_for(&self, operation: &str) -> Result<()> {
        wait_for(&format!("a request {operation}"), PATIENCE, async || {
            let log = self.cluster.simulator()?.log().await?;
            ensure!(
                log.iter().any(|entry| entry["operation"] == operation),
                "{} other requests",
                log.len()
            );
            Ok(())
        })
        .await
    }

    /// Returns the driver's metrics of all running controller pods.
    pub async fn controller_metrics(&self) -> Result<String> {
        self.driver_metrics("controller", 8080).await
    }

    /// Returns the driver's metrics of all running pods of a component, which are served over TLS.
    pub async fn driver_metrics(&self, component: &str, port: u16) -> Result<String> {
        let selector = format!("csi.openstack.org/instance={DRIVER},app.kubernetes.io/component={component}");
        wait_for(&format!("the metrics of the {component}"), PATIENCE, async || {
            let list = self.cluster.get(&["pods", "-n", NAMESPACE, "-l", &selector]).await?;
            let mut pages = String::new();
            for pod in list["items"].as_array().context("a list without items")? {
                if pod["metadata"]["deletionTimestamp"].is_null() {
                    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/https:{name}:{port}/proxy/metrics");
                    pages.push_str(&self.cluster.kubectl(&["get", "--raw", &path]).await?);
                }
            }
            ensure!(!pages.is_empty(), "there is no pod");
            Ok(pages)
        })
        .await
    }

    /// Kills the driver in all controller pods with SIGKILL. The sidecars' Leases determine which of them is active.
    pub async fn kill_controllers(&self) -> Result<()> {
        let mut killed = 0;
        for node in self.cluster.nodes() {
            for container in node.containers(NAMESPACE, DRIVER_CONTAINER).await? {
                if container.pod.contains("controller") {
                    node.signal(&container, "SIGKILL").await?;
                    killed += 1;
                }
            }
        }
        ensure!(killed > 0, "no controller runs");
        Ok(())
    }

    /// Returns objects by name as `kubectl get` prints them, with their resource versions. For objects with a status,
    /// whose controllers write it at any time, returns the content without the status instead.
    pub async fn versions(&self, words: &[&str]) -> Result<Vec<(String, String)>> {
        let list = self.cluster.get(words).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let items = list["items"].as_array().context("a list without items")?;
        Ok(items
            .iter()
            .map(|item| {
                let name = format!("{}/{}", text(&item["kind"]), text(&item["metadata"]["name"]));
                (name, version(item))
            })
            .collect())
    }

    /// Waits for an event with this reason about an object (`Pod/web`) whose message contains all these words.
    pub async fn event(&self, reason: &str, object: &str, words: &[&str]) -> Result<()> {
        wait_for(&format!("an event {reason} of {object}"), PATIENCE, async || {
            let list = self.cluster.get(&["events", "-A"]).await?;
            let events = list["items"].as_array().context("a list without items")?;
            let messages: Vec<_> = events
                .iter()
                .filter(|event| {
                    let about = &event["involvedObject"];
                    let text = |field: &str| about[field].as_str().unwrap_or_default().to_owned();
                    event["reason"] == reason && format!("{}/{}", text("kind"), text("name")) == object
                })
                .map(|event| event["message"].as_str().unwrap_or_default())
                .collect();
            ensure!(
                messages
                    .iter()
                    .any(|message| words.iter().all(|word| message.contains(word))),
                "told was {messages:?}"
            );
            Ok(())
        })
        .await
    }

    async fn last_events(&self) -> String {
        let words = [
            "get",
            "events",
            "-n",
            USERS,
            "--sort-by=.lastTimestamp",
            "-o",
            "custom-columns=R:.reason,M:.message",
            "--no-headers",
        ];
        match self.cluster.kubectl(&words).await {
            Ok(events) => {
                let lines: Vec<_> = events.lines().rev().take(4).collect();
                lines.join(" | ")
            }
            Err(error) => format!("{error:#}"),
        }
    }

    /// Describes the state of the cluster, for the report of a failure.
    pub async fn describe(&self) -> String {
        let mut text = String::new();
        for words in [
            &["get", "cindercsidriver", DRIVER, "-o", "jsonpath={.status}"][..],
            &["get", "pods", "-A", "-o", "wide"],
            &["get", "pv,volumeattachments"],
            &["get", "events", "-A", "--sort-by=.lastTimestamp"],
        ] {
            let answer = self
                .cluster
                .kubectl(words)
                .await
                .unwrap_or_else(|error| format!("{error:#}"));
            let lines: Vec<_> = answer.lines().rev().take(25).collect();
            for line in lines.iter().rev() {
                text.push_str("    ");
                text.push_str(line);
                text.push('\n');
            }
        }
        text
    }

    /// Deletes the objects of a failed scenario.
    pub async fn delete_what_users_made(&self) -> Result<()> {
        // The kinds of snapshots may not be installed.
        for (kinds, must) in [
            ("statefulsets,daemonsets,cronjobs,jobs,pods", true),
            ("volumegroupsnapshots", false),
            ("volumesnapshots", false),
            ("pvc", true),
        ] {
            let words = ["delete", kinds, "--all", "-n", USERS, "--timeout=60s"];
            let deleted = self.cluster.kubectl_within(Duration::from_secs(70), &words).await;
            if must {
                deleted?;
            }
        }
        Ok(())
    }

    /// Restores the state that the next scenario expects, as far as possible.
    pub async fn recover(&self) {
        let steps = async {
            if let Some(openstack) = &self.openstack {
                openstack.start_stopped().await?;
            } else {
                self.cluster.simulator()?.clear_faults().await?;
                self.latencies(json!({"create": 0, "attach": 0})).await?;
            }
            self.delete_what_users_made().await?;
            self.apply_driver().await?;
            // An apply does not remove fields that a scenario has patched.
            let good = good_driver();
            let spec = self.driver().await?["spec"].clone();
            let added = spec.as_object().into_iter().flatten().map(|(field, _)| field);
            let added = added.filter(|field| good["spec"][field.as_str()].is_null());
            let change: serde_json::Map<_, _> = added.map(|field| (field.clone(), Value::Null)).collect();
            self.patch_spec(&Value::Object(change)).await?;
            self.ask_for_driver().await?;
            self.all_home().await
        };
        if let Err(error) = steps.await {
            println!("    the cluster did not recover: {error:#}");
        }
    }
}

fn version(object: &Value) -> String {
    if !object["status"].is_object() {
        return object["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
    }
    let mut rest = object.clone();
    rest["status"] = Value::Null;
    rest["metadata"]["resourceVersion"] = Value::Null;
    rest.to_string()
}
