// SPDX-License-Identifier: Apache-2.0
//! Tests of two operators with leader election.

use anyhow::{Context as _, Result, bail, ensure};
use futures::FutureExt as _;
use harness::wait_for;
use reqwest::Method;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use crate::api::PATIENCE;
use crate::world::{DAEMON_SET, DEPLOYMENT, LEASE, NAMESPACE, Operator, RECONCILES, World};

const GATE: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/cinder-csi-operator";
const GATE_NAME: &str = "gate.suites.example.org";
/// A write of the administrator that the gate suspends too, which proves that the gate is active.
const KNOCK: &str = "gate-knock";

pub(crate) async fn stopped_leader_hands_over_to_standby(world: &World) -> Result<()> {
    let often = ["--credentials-check-interval=500ms"];
    let first = world.installed("first", &often, json!({})).await?;
    let second = world.start_operator("second", &often).await?;
    for _ in 0..5 {
        first.reconciles(1.0).await?;
        ensure!(first.leads().await? && !second.leads().await?, "not one leader");
        let reconciles = second.metric(RECONCILES).await.unwrap_or_default();
        ensure!(reconciles == 0.0, "the one that stands by reconciles");
    }
    let lease_holder = holder(world).await?;
    ensure!(lease_holder.starts_with(&first.name), "{lease_holder} holds the Lease");

    first.stop().await?;
    second.wait_until_leader().await?;
    let lease_holder = holder(world).await?;
    ensure!(lease_holder.starts_with(&second.name), "{lease_holder} holds the Lease");
    world.api.merge(DEPLOYMENT, &json!({"spec": {"replicas": 0}})).await?;
    wait_for("the repair by the second", PATIENCE, async || {
        let replicas = world.api.get(DEPLOYMENT).await?["spec"]["replicas"].clone();
        ensure!(replicas != 0, "there are {replicas}");
        Ok(())
    })
    .await?;
    second.stop().await
}

pub(crate) async fn replica_without_list_permission_does_not_lead(world: &World) -> Result<()> {
    let rules = world.api.get(ROLE).await?["rules"].clone();
    let mut fewer = rules.clone();
    let fewer_rules = fewer.as_array_mut().context("the role has no rules")?;
    fewer_rules.retain(|rule| rule["resources"] != json!(["persistentvolumeclaims"]));
    world.api.merge(ROLE, &json!({"rules": fewer})).await?;
    let outcome = waits_for_its_lists(world).await;
    world.api.merge(ROLE, &json!({"rules": rules})).await?;
    let operator = outcome?;
    operator.wait_until_leader().await?;
    operator.stop().await
}

/// Starts an operator that lacks a permission, and returns it after it has reported that.
async fn waits_for_its_lists(world: &World) -> Result<Operator> {
    let mut operator = world.spawn_operator("without-a-right", &[]).await?;
    wait_for("the cause in /readyz", PATIENCE, async || {
        operator.process.check()?;
        let (is_ready, text) = operator.readiness().await?;
        ensure!(
            !is_ready && text.contains("cannot list persistentvolumeclaims") && text.contains("ClusterRole"),
            "{text}"
        );
        Ok(())
    })
    .await?;
    ensure!(!operator.leads().await?, "it leads");
    if world.api.find(LEASE).await?.is_some() {
        ensure!(!holder(world).await?.starts_with(&operator.name), "it holds the Lease");
    }
    Ok(operator)
}

pub(crate) async fn successor_completes_work_of_killed_leader(world: &World) -> Result<()> {
    let gate = TcpListener::bind("127.0.0.1:0").await.context("cannot listen")?;
    let outcome = killed_mid_step(world, &gate).await;
    world.api.delete(&format!("{GATE}/{GATE_NAME}")).await?;
    drop(gate);
    let successor = outcome?;
    successor.wait_until_leader().await?;
    wait_for("what the first had not made", PATIENCE, async || {
        world.everything_runs().await?;
        world.condition("Available", "True").await?;
        world.condition("Degraded", "False").await
    })
    .await?;
    let deployments = "/apis/apps/v1/deployments?labelSelector=csi.openstack.org/instance";
    let deployments = world.api.get(deployments).await?;
    let count = deployments["items"].as_array().map_or(0, Vec::len);
    ensure!(count == 1, "there are {count} Deployments");
    successor.stop().await
}

/// Kills the leader while its write of the DaemonSet is suspended in the API server; returns the standby.
async fn killed_mid_step(world: &World, gate: &TcpListener) -> Result<Operator> {
    let address = gate.local_addr().context("the gate has no address")?;
    let user = format!("system:serviceaccount:{NAMESPACE}:cinder-csi-operator");
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": GATE_NAME},
        "webhooks": [{
            "name": GATE_NAME, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": format!("https://{address}/")}, "failurePolicy": "Fail", "timeoutSeconds": 30,
            "rules": [
                {"apiGroups": ["apps"], "apiVersions": ["*"], "resources": ["daemonsets"], "operations": ["CREATE", "UPDATE"]},
                {"apiGroups": [""], "apiVersions": ["*"], "resources": ["configmaps"], "operations": ["CREATE"]},
            ],
            "matchConditions": [{"name": "operator",
                "expression": format!(
                    "(request.userInfo.username == '{user}' && request.resource.resource == 'daemonsets') || request.name == '{KNOCK}'"
                )}],
        }],
    });
    world.api.create(GATE, &configuration).await?;
    in_force(world, gate).await?;

    let first = world.start_operator("killed", &[]).await?;
    first.wait_until_leader().await?;
    let successor = world.start_operator("successor", &[]).await?;
    world.ask_for_driver(json!({})).await?;
    let held = tokio::time::timeout(PATIENCE, gate.accept()).await;
    let held = held
        .context("the operator does not write its DaemonSet")?
        .context("the gate is broken")?;
    world.api.get(DEPLOYMENT).await.context("the first step was not done")?;
    ensure!(!successor.leads().await?, "two lead");
    first.process.kill().await?;
    drop(held);
    // The suspended write had no effect.
    world.api.expect_missing(DAEMON_SET).await?;
    Ok(successor)
}

/// Waits until the gate is active.
async fn in_force(world: &World, gate: &TcpListener) -> Result<()> {
    let knock = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": KNOCK}});
    wait_for("the gate", PATIENCE, async || {
        let path = "/api/v1/namespaces/default/configmaps?dryRun=All";
        let body = Some(("application/json", &knock));
        let ask = world.api.request(Method::POST, path, body);
        tokio::select! {
            answer = ask => bail!("it is open: {}", answer.is_ok()),
            held = gate.accept() => held.map(drop).context("it is broken"),
        }
    })
    .await?;
    // Connections of the administrator's write must not count as writes of the operator.
    while let Some(Ok::<(TcpStream, _), _>(_)) = gate.accept().now_or_never() {}
    Ok(())
}

async fn holder(world: &World) -> Result<String> {
    let lease = world.api.get(LEASE).await?;
    Ok(lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned())
}
