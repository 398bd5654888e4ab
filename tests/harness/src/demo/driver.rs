// SPDX-License-Identifier: Apache-2.0
//! Creates, observes and removes the `CinderCSIDriver` of the demo.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use harness::{Cluster, wait_for, workspace_root};
use serde_json::{Value, json};

/// Namespace of the operator and its operands.
pub(crate) const NAMESPACE: &str = "cinder-csi";
/// Name of the driver's container, in the controller pods and on the nodes.
pub(crate) const CONTAINER: &str = "cinder-csi-driver";

const AVAILABLE_TIMEOUT: Duration = Duration::from_mins(2);
const REMOVAL_TIMEOUT: Duration = Duration::from_mins(2);

/// Returns the path of a file in `config/samples`.
pub(crate) fn sample(name: &str) -> Result<String> {
    let path = workspace_root().join("config/samples").join(name);
    Ok(path
        .to_str()
        .context("the path of the workspace is not UTF-8")?
        .to_owned())
}

/// The object from `config/samples`.
#[derive(Debug)]
pub(crate) struct Driver {
    name: String,
}

impl Driver {
    /// Applies the object from `config/samples`.
    pub(crate) async fn ask_for(cluster: &Cluster) -> Result<Self> {
        print!(
            "{}",
            cluster
                .kubectl(&["apply", "-f", &sample("cindercsidriver.yaml")?])
                .await?
        );
        let drivers = cluster.get(&["cindercsidrivers"]).await?;
        let drivers = drivers["items"].as_array().context("a list without items")?;
        let [driver] = drivers.as_slice() else {
            bail!(
                "config/samples has {} CinderCSIDrivers; the demo shows one",
                drivers.len()
            );
        };
        let name = driver["metadata"]["name"]
            .as_str()
            .context("an object without a name")?
            .to_owned();
        Ok(Self { name })
    }

    /// Returns the name of the CSI driver.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    async fn object(&self, cluster: &Cluster) -> Result<Value> {
        cluster.get(&["cindercsidriver", &self.name]).await
    }

    /// Creates the Secret that the object refers to, with an application credential of the simulated cloud.
    pub(crate) async fn give_credentials(&self, cluster: &Cluster) -> Result<()> {
        let object = self.object(cluster).await?;
        let cloud = &object["spec"]["clouds"][0];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let secret = text(&cloud["credentialsSecretRef"]["name"]).context("the sample's cloud refers to no Secret")?;
        // The operator's defaults, which the stored object does not contain.
        let key = text(&cloud["credentialsSecretRef"]["key"]).unwrap_or_else(|| "clouds.yaml".to_owned());
        let entry = text(&cloud["cloudName"]).unwrap_or_else(|| "openstack".to_owned());
        let access = cluster.simulator()?.access();
        let clouds = json!({"clouds": {entry: {
            "auth_type": "v3applicationcredential",
            "region_name": access.region,
            "auth": {
                "auth_url": access.auth_url,
                "application_credential_id": access.application_credential_id,
                "application_credential_secret": access.application_credential_secret,
            },
        }}});
        // Passed on standard input, because process arguments are visible to all users.
        let manifest = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret, "namespace": NAMESPACE},
            "stringData": {key: clouds.to_string()},
        });
        print!("{}", cluster.apply(&manifest.to_string()).await?);
        Ok(())
    }

    /// Prints changes of the conditions until the driver is Available.
    pub(crate) async fn wait_until_available(&self, cluster: &Cluster) -> Result<()> {
        let mut shown = BTreeMap::new();
        wait_for("the condition Available", AVAILABLE_TIMEOUT, async || {
            let object = self.object(cluster).await?;
            let mut seen = Vec::new();
            for condition in object["status"]["conditions"].as_array().unwrap_or(&Vec::new()) {
                let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
                let line = format!(
                    "{:<12} {:<7} {}: {}",
                    text("type"),
                    text("status"),
                    text("reason"),
                    text("message")
                );
                if shown.insert(text("type"), line.clone()).as_ref() != Some(&line) {
                    println!("  {line}");
                }
                seen.push((text("type"), text("status"), line));
            }
            let is = |kind: &str, status: &str| seen.iter().any(|(k, s, _)| k == kind && s == status);
            let lines: Vec<_> = seen.iter().map(|(_, _, line)| line.as_str()).collect();
            ensure!(
                is("Available", "True") && is("Progressing", "False"),
                "{}",
                lines.join("; ")
            );
            Ok(())
        })
        .await
    }

    /// Prints the operands.
    pub(crate) async fn show_operands(&self, cluster: &Cluster) -> Result<()> {
        for words in [
            &["get", "cindercsidrivers"][..],
            &[
                "get",
                "deployments,daemonsets,pods,serviceaccounts,secrets",
                "-n",
                NAMESPACE,
            ],
            &["get", "csidrivers,storageclasses"],
            &[
                "get",
                "csinodes",
                "-o",
                "custom-columns=NODE:.metadata.name,DRIVERS:.spec.drivers[*].name,ID:.spec.drivers[*].nodeID",
            ],
        ] {
            println!("{}", cluster.kubectl(words).await?);
        }
        Ok(())
    }

    /// Deletes the object and waits until all its operands are deleted.
    pub(crate) async fn remove(&self, cluster: &Cluster) -> Result<()> {
        let progress = async || -> Result<String> {
            let column = "jsonpath={.status.conditions[?(@.type==\"Progressing\")].message}";
            let words = ["get", "cindercsidriver", &self.name, "--ignore-not-found", "-o", column];
            cluster.kubectl(&words).await
        };
        let mut shown = progress().await?;
        let words = ["delete", "cindercsidriver", &self.name, "--wait=false"];
        print!("{}", cluster.kubectl(&words).await?);
        wait_for("the end of what the operator made", REMOVAL_TIMEOUT, async || {
            let message = progress().await?;
            if !message.is_empty() && message != shown {
                println!("  {message}");
                shown.clone_from(&message);
            }
            let objects = cluster.kubectl(&["get", "cindercsidrivers", "-o", "name"]).await?;
            ensure!(objects.is_empty(), "{} is there: {message}", objects.trim());
            let csi = cluster.get(&["csidrivers,storageclasses,csinodes"]).await?;
            for object in csi["items"].as_array().context("a list without items")? {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let ours = name == self.name || object["provisioner"] == self.name.as_str();
                let registered = object["spec"]["drivers"]
                    .as_array()
                    .is_some_and(|drivers| drivers.iter().any(|driver| driver["name"] == self.name.as_str()));
                ensure!(!ours && !registered, "{} {name} is there", object["kind"]);
            }
            let selector = format!("csi.openstack.org/instance={}", self.name);
            let kinds = "deployments,daemonsets,pods,serviceaccounts,secrets,roles,rolebindings,clusterroles,clusterrolebindings";
            let remaining = cluster
                .kubectl(&["get", kinds, "-n", NAMESPACE, "-l", &selector, "-o", "name"])
                .await?;
            ensure!(
                remaining.is_empty(),
                "left: {}",
                remaining.split_whitespace().collect::<Vec<_>>().join(", ")
            );
            Ok(())
        })
        .await
    }
}
