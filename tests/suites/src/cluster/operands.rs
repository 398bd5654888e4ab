// SPDX-License-Identifier: Apache-2.0
//! The objects and processes that the operator manages.

use anyhow::{Context as _, Result, ensure};
use harness::{Node, wait_for};
use serde_json::{Value, json};

use super::{DRIVER, DRIVER_CONTAINER, NAMESPACE, PATIENCE, World};

/// Kinds of the operands outside of namespaces.
const CLUSTER_KINDS: &str = "csidrivers,storageclasses,clusterroles,clusterrolebindings";
/// Kinds of the operands in the operator's namespace.
const NAMESPACED_KINDS: &str = "deployments,daemonsets,serviceaccounts,secrets,roles,rolebindings,services,configmaps,\
                                poddisruptionbudgets,networkpolicies";
/// Selects the operands of the driver.
pub const OPERANDS: &str = "csi.openstack.org/instance=cinder.csi.openstack.org";

impl World {
    /// Returns all operands of the driver as `kind/name`, except deleted ones.
    pub async fn operands(&self) -> Result<Vec<String>> {
        let mut names = self.operands_of(CLUSTER_KINDS).await?;
        names.extend(self.operands_of(NAMESPACED_KINDS).await?);
        names.sort();
        Ok(names)
    }

    /// Returns the driver's objects of these kinds as `kind/name`, except deleted ones.
    pub async fn operands_of(&self, kinds: &str) -> Result<Vec<String>> {
        let mut items = self.list(&[kinds, "-n", NAMESPACE, "-l", OPERANDS]).await?;
        items.retain(|item| item["metadata"]["deletionTimestamp"].is_null());
        Ok(items.iter().map(label).collect())
    }

    /// Returns the driver's operands with their resource versions.
    pub async fn operand_versions(&self) -> Result<Vec<(String, String)>> {
        let mut versions = self.versions(&[CLUSTER_KINDS, "-l", OPERANDS]).await?;
        versions.extend(
            self.versions(&[NAMESPACED_KINDS, "-n", NAMESPACE, "-l", OPERANDS])
                .await?,
        );
        Ok(versions)
    }

    /// Returns objects by name as `kubectl get` prints them, with their resource versions. For objects with a status,
    /// which controllers write at any time, returns the content without the status instead.
    pub async fn versions(&self, arguments: &[&str]) -> Result<Vec<(String, String)>> {
        let items = self.list(arguments).await?;
        Ok(items.iter().map(|item| (label(item), version(item))).collect())
    }

    /// Waits until no operand remains, also on the nodes.
    pub async fn no_operands(&self) -> Result<()> {
        wait_for("the end of the driver", PATIENCE, async || {
            self.expect_no_object(&[CLUSTER_KINDS, "-l", OPERANDS]).await?;
            let kinds = "deployments,daemonsets,pods,serviceaccounts,secrets,roles,rolebindings";
            self.expect_no_object(&[kinds, "-n", NAMESPACE, "-l", OPERANDS]).await?;
            for node in self.cluster.nodes() {
                ensure!(!self.is_registered(node).await?, "{} has the driver", node.name());
            }
            Ok(())
        })
        .await?;
        for node in self.cluster.nodes() {
            let links = node.exec(&["ls", "/var/lib/kubelet/plugins_registry"]).await?;
            ensure!(!links.contains(DRIVER), "{} still has {links}", node.name());
        }
        Ok(())
    }

    /// Returns the entry of the driver in the CSINode of a node, or null.
    pub async fn registration(&self, node: &Node) -> Result<Value> {
        let object = self.get(&["csinode", node.name()]).await?;
        let mut drivers = object["spec"]["drivers"].as_array().into_iter().flatten();
        let entry = drivers.find(|driver| driver["name"] == DRIVER);
        Ok(entry.cloned().unwrap_or_default())
    }

    /// Whether the CSINode of a node lists the driver.
    pub async fn is_registered(&self, node: &Node) -> Result<bool> {
        Ok(!self.registration(node).await?.is_null())
    }

    /// Returns uids and container restarts of the driver's pods with additional labels.
    pub async fn operand_pods(&self, labels: &str) -> Result<Vec<Value>> {
        let selector = format!("{OPERANDS}{labels}");
        let pods = self.list(&["pods", "-n", NAMESPACE, "-l", &selector]).await?;
        let restarts = |pod: &Value| {
            let containers = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
            let restarts: Vec<_> = containers.map(|one| one["restartCount"].clone()).collect();
            json!([pod["metadata"]["uid"], restarts])
        };
        Ok(pods.iter().map(restarts).collect())
    }

    /// Returns the driver's metrics of all running controller pods.
    pub async fn controller_metrics(&self) -> Result<String> {
        self.driver_metrics("controller", 8080).await
    }

    /// Returns the driver's metrics of all running pods of a component, which are served over TLS.
    pub async fn driver_metrics(&self, component: &str, port: u16) -> Result<String> {
        let selector = format!("{OPERANDS},app.kubernetes.io/component={component}");
        wait_for(&format!("the metrics of the {component}"), PATIENCE, async || {
            let mut pages = String::new();
            for pod in self.list(&["pods", "-n", NAMESPACE, "-l", &selector]).await? {
                if pod["metadata"]["deletionTimestamp"].is_null() {
                    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/https:{name}:{port}/proxy/metrics");
                    pages.push_str(&self.kubectl(&["get", "--raw", &path]).await?);
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

    /// Kills the node plugin and waits for its next process.
    pub async fn kill_plugin(&self, node: &Node) -> Result<()> {
        let containers = node.containers(NAMESPACE, DRIVER_CONTAINER).await?;
        let plugin = containers.iter().find(|container| container.pod.contains("node"));
        let plugin = plugin.with_context(|| format!("no node plugin runs on {}", node.name()))?;
        node.signal(plugin, "SIGKILL").await?;
        wait_for("the node plugin's new process", PATIENCE, async || {
            let mut containers = node.containers(NAMESPACE, DRIVER_CONTAINER).await?;
            containers.retain(|new| new.pod == plugin.pod && new.pid != plugin.pid);
            ensure!(!containers.is_empty(), "it has not started again");
            Ok(())
        })
        .await
    }
}

fn label(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text(&object["kind"]), text(&object["metadata"]["name"]))
}

fn version(object: &Value) -> String {
    let version = &object["metadata"]["resourceVersion"];
    if !object["status"].is_object() {
        return version.as_str().unwrap_or_default().to_owned();
    }
    let mut rest = object.clone();
    rest["status"] = Value::Null;
    rest["metadata"]["resourceVersion"] = Value::Null;
    rest.to_string()
}
