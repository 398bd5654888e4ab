// SPDX-License-Identifier: Apache-2.0
//! The CinderCSIDriver object, its Secret and its conditions.

use anyhow::{Context as _, Result, ensure};
use harness::{Product, wait_for};
use serde_json::{Value, json};

use super::objects::good_driver;
use super::{DRIVER, Login, NAMESPACE, PATIENCE, SECRET, World};
use crate::expect::{expect_field, expect_none};

impl World {
    /// Applies a valid Secret and a valid object, and waits until the driver is available.
    pub async fn ask_for_driver(&self) -> Result<()> {
        self.good_secret().await?;
        self.apply_driver().await?;
        self.healthy().await
    }

    /// Applies a valid object.
    pub async fn apply_driver(&self) -> Result<()> {
        self.apply(&good_driver()).await
    }

    /// Returns the CinderCSIDriver object.
    pub async fn driver(&self) -> Result<Value> {
        self.get(&["cindercsidriver", DRIVER]).await
    }

    /// Deletes the CinderCSIDriver object and waits for its removal.
    pub async fn delete_driver(&self) -> Result<()> {
        self.remove(&["cindercsidriver", DRIVER]).await
    }

    /// Merges a change into the spec of the object.
    pub async fn patch_spec(&self, spec: &Value) -> Result<()> {
        self.patch(&["cindercsidriver", DRIVER], &json!({ "spec": spec })).await
    }

    /// Merges a change into the spec of the object, and waits until the driver is available.
    pub async fn change_spec(&self, spec: &Value) -> Result<()> {
        self.patch_spec(spec).await?;
        self.healthy().await
    }

    /// Waits until the driver is Available and neither Progressing nor Degraded.
    pub async fn healthy(&self) -> Result<()> {
        for (kind, status) in [("Available", "True"), ("Progressing", "False"), ("Degraded", "False")] {
            self.condition(kind, status).await?;
        }
        // A Deployment is up to date before its old pods are deleted, but callers that count pods must not count them.
        wait_for("the end of the pods that were replaced", PATIENCE, async || {
            let mut pods = self.list(&["pods", "-n", NAMESPACE]).await?;
            pods.retain(|pod| !pod["metadata"]["deletionTimestamp"].is_null());
            let leaving: Vec<_> = pods.iter().map(|pod| pod["metadata"]["name"].as_str()).collect();
            expect_none("ending pods", &leaving)
        })
        .await
    }

    /// Waits until the driver has the version of a product and is healthy.
    pub async fn reach_version(&self, product: &Product) -> Result<()> {
        let version = product.version.as_str();
        self.wait_for_field(&["cindercsidriver", DRIVER], "/status/version", version)
            .await?;
        self.healthy().await
    }

    /// Waits until a condition of the object has this status for the current generation. Returns the condition.
    pub async fn condition(&self, kind: &str, status: &str) -> Result<Value> {
        self.wait_for_condition(kind, status, |_| true).await
    }

    /// Like [`World::condition`], for a condition with this reason and all these parts in its message.
    pub async fn reason(&self, kind: &str, status: &str, reason: &str, parts: &[&str]) -> Result<Value> {
        let is_complete = |condition: &Value| {
            let message = condition["message"].as_str().unwrap_or_default();
            condition["reason"] == reason && parts.iter().all(|part| message.contains(part))
        };
        self.wait_for_condition(kind, status, is_complete).await
    }

    async fn wait_for_condition(&self, kind: &str, status: &str, accept: impl Fn(&Value) -> bool) -> Result<Value> {
        wait_for(&format!("condition {kind}={status}"), PATIENCE, async || {
            let object = self.driver().await?;
            let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
            let condition = conditions.find(|condition| condition["type"] == kind);
            let condition = condition.with_context(|| format!("there is no condition {kind}"))?;
            expect_field(
                condition,
                "/observedGeneration",
                object["metadata"]["generation"].clone(),
            )?;
            ensure!(condition["status"] == status && accept(condition), "{condition}");
            Ok(condition.clone())
        })
        .await
    }

    /// Returns a valid application credential.
    pub fn login(&self) -> Result<Login> {
        match &self.openstack {
            Some(openstack) => openstack.login(),
            None => Ok(Login::of_simulator(self.cluster.simulator()?)),
        }
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
        self.write_secret(SECRET, key, content).await
    }

    /// Writes one key of a Secret in the operator's namespace.
    pub async fn write_secret(&self, name: &str, key: &str, content: &str) -> Result<()> {
        self.apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE},
            "stringData": {key: content},
        }))
        .await
    }

    /// Writes one key of a ConfigMap in the operator's namespace.
    pub async fn write_config_map(&self, name: &str, key: &str, content: &str) -> Result<()> {
        self.apply(&json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE},
            "data": {key: content},
        }))
        .await
    }
}
