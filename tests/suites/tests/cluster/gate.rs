// SPDX-License-Identifier: Apache-2.0
//! A gate in the API server before which the operator's writes of one kind stand still.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::FutureExt as _;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use crate::world::{NAMESPACE, PATIENCE, USERS, World};

const NAME: &str = "gate.suites.example.org";
/// A write of the administrator's that the gate holds too: it tells when the gate is in force.
const KNOCK: &str = "gate-knock";
/// The longest that Kubernetes lets an admission webhook take.
const HOLD_SECONDS: u32 = 30;
const KNOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Which of the operator's writes are held: group and resource as in the paths of the API, such as `apps` and
/// `deployments`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writes {
    pub(crate) group: &'static str,
    pub(crate) resource: &'static str,
}

/// An admission webhook that takes the API server's connection and never answers. A write stands still before it takes
/// effect, and the connection says that it does. Removed by [`Gate::remove`].
#[derive(Debug)]
pub(crate) struct Gate {
    listener: TcpListener,
    writes: Writes,
    held: Vec<TcpStream>,
}

impl Gate {
    /// Closes the gate for these writes of the operator's, and waits until it is in force.
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
        world.cluster.apply(&configuration.to_string()).await?;
        let gate = Self {
            listener,
            writes,
            held: Vec::new(),
        };
        gate.in_force(world).await?;
        Ok(gate)
    }

    /// Knocks until a knock stands before the gate, and lets go of it.
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
        // Nothing of the knock may be taken for a write of the operator's.
        while self.listener.accept().now_or_never().is_some() {}
        Ok(())
    }

    /// Waits until a write of the operator's stands before the gate.
    pub(crate) async fn holds_a_write(&mut self) -> Result<()> {
        let accepted = tokio::time::timeout(PATIENCE, self.listener.accept()).await;
        let accepted =
            accepted.with_context(|| format!("the operator writes no {} for {PATIENCE:?}", self.writes.resource))?;
        let (connection, _) = accepted.context("the gate takes no connections")?;
        self.held.push(connection);
        Ok(())
    }

    /// Takes the gate away. A write that still stands before it is refused.
    pub(crate) async fn remove(world: &World) -> Result<()> {
        let words = ["delete", "validatingwebhookconfiguration", NAME, "--ignore-not-found"];
        world.cluster.kubectl(&words).await.map(drop)
    }
}
