//! Node pods are replaced by the operator, judged by the kubelets' registrations.

use anyhow::{Result, ensure};
use harness::wait_for;
use serde_json::json;

use crate::world::{DAEMON_SET, DEPLOYMENT, NODES, OBJECT, PATIENCE, World};

/// How long nothing is to happen, in reconciles.
const QUIET: f64 = 5.0;

pub(crate) async fn node_pods_are_replaced_one_after_the_other(world: &World) -> Result<()> {
    let operator = world
        .installed("rolling", &["--credentials-check-interval=500ms"], json!({}))
        .await?;
    let old = world.node_pods().await?;
    world.patch_spec(&json!({"logLevel": "Debug"})).await?;
    // The others do nothing: the first pod leaves, and no second one.
    wait_for("the first replacement", PATIENCE, async || {
        // The DaemonSet's controller has seen the template, and no kubelet has ended a pod yet.
        world.controllers_see().await?;
        let leaving = world.node_pods().await?.iter().filter(|(_, leaves)| *leaves).count();
        ensure!(leaving == 1, "{leaving} pods leave");
        Ok(())
    })
    .await?;
    operator.reconciles(QUIET).await?;
    let leaving = world.node_pods().await?.iter().filter(|(_, leaves)| *leaves).count();
    ensure!(leaving == 1, "{leaving} of {} pods leave at once", NODES.len());
    world.told("Progressing", "False", "AsExpected", &[]).await?;
    let new = world.node_pods().await?;
    ensure!(
        new.iter().zip(&old).all(|(new, old)| new.0 != old.0),
        "{old:?} became {new:?}"
    );
    operator.process.stop().await?;
    Ok(())
}

pub(crate) async fn a_rollout_whose_pods_do_not_come_up_stops_and_says_so(world: &World) -> Result<()> {
    let soon = ["--credentials-check-interval=500ms", "--registration-deadline=3s"];
    let operator = world.installed("stopping", &soon, json!({})).await?;
    let old = world.node_pods().await?;
    world.patch_spec(&json!({"logLevel": "Debug"})).await?;
    let message = world.told("Degraded", "True", "RolloutStopped", &["node1"]).await?;
    for part in ["node1", "node-pod-node1", "there is no such image", "1 nodes keep"] {
        ensure!(message.contains(part), "{part}: {message}");
    }
    let (reason, _) = world.condition("Progressing", "False").await?;
    ensure!(reason == "RolloutStopped", "{reason}");

    // Nor does an operator that knows nothing of it go on.
    operator.process.kill().await?;
    world.api.delete(crate::world::LEASE).await?;
    let operator = world.start_operator("stopped", &soon).await?;
    operator.reconciles(QUIET).await?;
    let now = world.node_pods().await?;
    ensure!(
        now[1] == old[1],
        "the pod of the other node was replaced: {old:?}, {now:?}"
    );
    let status = world.api.get(OBJECT).await?["status"].clone();
    ensure!(
        status["rollout"]["state"] == "Stopped" && status["rollout"]["failed"][0]["node"] == "node1",
        "{}",
        status["rollout"]
    );

    // Another template is tried.
    world.patch_spec(&json!({"logLevel": "Trace"})).await?;
    world.told("Degraded", "False", "AsExpected", &[]).await?;
    world.told("Progressing", "False", "AsExpected", &[]).await?;
    operator.process.stop().await?;
    Ok(())
}

pub(crate) async fn an_update_waits_for_approval_and_leads_back_only_when_allowed(world: &World) -> Result<()> {
    let operator = world
        .installed("manual", &[], json!({"update": {"policy": "Manual"}}))
        .await?;
    let target = world.api.get(OBJECT).await?["status"]["version"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let label = |version: &str| json!({"metadata": {"labels": {"app.kubernetes.io/version": version}}});
    let images = |version: &str| {
        let containers = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": format!("driver:{version}")}]);
        containers.as_array().cloned().unwrap_or_default()
    };
    // As another version of the operator would have left them.
    let pretend = async |version: &str| -> Result<()> {
        for path in [DEPLOYMENT, DAEMON_SET] {
            world.api.merge(path, &label(version)).await?;
            if let Err(refusal) = world.api.patch(path, &images(version), false).await? {
                anyhow::bail!("{}", refusal.message);
            }
        }
        Ok(())
    };
    world.patch_spec(&json!({"managementState": "Paused"})).await?;
    world.told("ReconciliationPaused", "True", "Paused", &[]).await?;
    pretend("0.0.9").await?;
    world.patch_spec(&json!({"managementState": "Managed"})).await?;
    let message = world.told("Progressing", "True", "WaitingForApproval", &[]).await?;
    ensure!(message.contains("from version 0.0.9"), "{message}");
    let there = world.api.get(DAEMON_SET).await?;
    ensure!(
        there["metadata"]["labels"]["app.kubernetes.io/version"] == "0.0.9",
        "it was updated"
    );
    world
        .patch_spec(&json!({"update": {"approvedVersion": target}}))
        .await?;
    world.told("Progressing", "False", "AsExpected", &[]).await?;

    world.patch_spec(&json!({"managementState": "Paused"})).await?;
    world.told("ReconciliationPaused", "True", "Paused", &[]).await?;
    pretend("99.0.0").await?;
    world.patch_spec(&json!({"managementState": "Managed"})).await?;
    world.told("Degraded", "True", "DowngradeRefused", &[]).await?;
    world.patch_spec(&json!({"update": {"allowDowngrade": true}})).await?;
    world.told("Degraded", "False", "AsExpected", &[]).await?;
    world.told("Progressing", "False", "AsExpected", &[]).await?;
    let status = world.api.get(OBJECT).await?["status"].clone();
    ensure!(status["version"] == target.as_str(), "{}", status["version"]);
    operator.process.stop().await?;
    Ok(())
}
