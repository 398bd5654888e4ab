// SPDX-License-Identifier: Apache-2.0
//! A gate in the API server that suspends writes of the operator.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::FutureExt as _;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use crate::world::{NAMESPACE, PATIENCE, USERS, World};

const NAME: &str = "gate.suites.example.org";
/// A write of the administrator that the gate suspends too, which proves that the gate is active.
const KNOCK: &str = "gate-knock";
/// Maximum timeout of an admission webhook.
const HOLD_SECONDS: u32 = 30;
const KNOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Writes of the operator to suspend: group and resource as in API paths, such as `apps` and `deployments`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writes {
    pub(crate) group: &'static str,
    pub(crate) resource: &'static str,
}

/// An admission webhook that accepts the API server's connection and never responds. It suspends a write before it
/// takes effect, and the connection proves that. [`Gate::remove`] removes it.
#[derive(Debug)]
pub(crate) struct Gate {
    listener: TcpListener,
    writes: Writes,
    held: Vec<TcpStream>,
}

impl Gate {
    /// Suspends these writes of the operator from now on, and waits until the gate is active.
    pub(crate) async fn close(world: &World, writes: Writes) -> Result<Self> {
        let listener = world.cluster.listen_beside_the_api_server().await?;
        let address = listener.local_addr().context("the gate has no address")?;
        let user = format!("system:serviceaccount:{NAMESPACE}:cinder-csi-operator");
        let condition = format!("request.userInfo.username == '{user}' || request.name == '{KNOCK}'");
        let rule = |group: &str, resource: &str| {
            json!({
                "apiGroups": [group], "apiVersions": ["*"], "resources": [resource],
                "operations": ["CREATE", "UPDATE", "DELETE"],
            })
        };
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": NAME},
            "webhooks": [{
                "name": NAME, "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": format!("https://{address}/")},
                "failurePolicy": "Fail", "timeoutSeconds": HOLD_SECONDS,
                "rules": [rule(writes.group, writes.resource), rule("", "configmaps")],
                "matchConditions": [{"name": "operator", "expression": condition}],
            }],
        });
        world.apply(&configuration).await?;
        let gate = Self {
            listener,
            writes,
            held: Vec::new(),
        };
        gate.in_force(world).await?;
        Ok(gate)
    }

    /// Repeats the administrator's write until it is suspended, and cancels it.
    async fn in_force(&self, world: &World) -> Result<()> {
        let words = ["create", "configmap", KNOCK, "-n", USERS, "--dry-run=server"];
        harness::wait_for("the gate to be in force", PATIENCE, async || {
            let knock = world.cluster.kubectl_within(KNOCK_TIMEOUT, &words);
            tokio::pin!(knock);
            let connection = tokio::select! {
                connection = self.listener.accept() => connection.context("the gate takes no connections")?,
                passed = &mut knock => {
                    passed?;
                    bail!("a write passes")
                }
            };
            drop(connection);
            ensure!(knock.await.is_err(), "the knock passed although the gate held it");
            Ok(())
        })
        .await?;
        // Connections of the administrator's write must not count as writes of the operator.
        while self.listener.accept().now_or_never().is_some() {}
        Ok(())
    }

    /// Waits until a write of the operator is suspended.
    pub(crate) async fn holds_a_write(&mut self) -> Result<()> {
        let accepted = tokio::time::timeout(PATIENCE, self.listener.accept()).await;
        let accepted =
            accepted.with_context(|| format!("the operator writes no {} for {PATIENCE:?}", self.writes.resource))?;
        let (connection, _) = accepted.context("the gate takes no connections")?;
        self.held.push(connection);
        Ok(())
    }

    /// Removes the gate. A suspended write is rejected.
    pub(crate) async fn remove(world: &World) -> Result<()> {
        let words = ["delete", "validatingwebhookconfiguration", NAME, "--ignore-not-found"];
        world.kubectl(&words).await.map(drop)
    }
}
