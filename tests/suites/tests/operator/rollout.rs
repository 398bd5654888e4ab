// SPDX-License-Identifier: Apache-2.0
//! Tests of the replacement of node pods according to the kubelets' registrations.

use anyhow::{Context as _, Result, bail, ensure};
use harness::wait_for;
use serde_json::json;

use crate::world::{DAEMON_SET, DEPLOYMENT, NODES, OBJECT, PATIENCE, World, is_renewal};

/// Number of reconciles of an idle period.
const QUIET: f64 = 5.0;

pub(crate) async fn replaces_node_pods_sequentially(world: &World) -> Result<()> {
    let operator = world
        .installed("rolling", &["--credentials-check-interval=500ms"], json!({}))
        .await?;
    let old = world.node_pods().await?;
    world.patch_spec(&json!({"logLevel": "Debug"})).await?;
    // The other components do nothing: only the first pod is deleted.
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
    world
        .wait_for_condition("Progressing", "False", "AsExpected", &[])
        .await?;
    let new = world.node_pods().await?;
    ensure!(
        new.iter().zip(&old).all(|(new, old)| new.0 != old.0),
        "{old:?} became {new:?}"
    );
    operator.process.stop().await?;
    Ok(())
}

pub(crate) async fn failed_rollout_stops_and_is_reported(world: &World) -> Result<()> {
    let soon = ["--credentials-check-interval=500ms", "--registration-deadline=3s"];
    let operator = world.installed("stopping", &soon, json!({})).await?;
    let old = world.node_pods().await?;
    world.patch_spec(&json!({"logLevel": "Debug"})).await?;
    let message = world
        .wait_for_condition("Degraded", "True", "RolloutStopped", &["node1"])
        .await?;
    for part in [
        "node1",
        "node-pod-node1",
        "there is no such image",
        "1 node with an old pod",
    ] {
        ensure!(message.contains(part), "{part}: {message}");
    }
    let (reason, _) = world.condition("Progressing", "False").await?;
    ensure!(reason == "Blocked", "{reason}");

    // A new operator process must not continue either.
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

    // A second template is tried.
    world.patch_spec(&json!({"logLevel": "Trace"})).await?;
    world.wait_for_condition("Degraded", "False", "AsExpected", &[]).await?;
    world
        .wait_for_condition("Progressing", "False", "AsExpected", &[])
        .await?;
    operator.process.stop().await?;
    Ok(())
}

pub(crate) async fn update_needs_approval_and_downgrade_permission(world: &World) -> Result<()> {
    let operator = world
        .installed("manual", &[], json!({"update": {"policy": "Manual"}}))
        .await?;
    let target = version(world).await?;
    pretend(world, "0.0.9").await?;
    world.patch_spec(&json!({"managementState": "Managed"})).await?;
    let message = world
        .wait_for_condition("Progressing", "True", "WaitingForApproval", &[])
        .await?;
    ensure!(message.contains("from version 0.0.9"), "{message}");
    ensure!(version_of(world, DAEMON_SET).await? == "0.0.9", "it was updated");
    world
        .patch_spec(&json!({"update": {"approvedVersion": target}}))
        .await?;
    world
        .wait_for_condition("Progressing", "False", "AsExpected", &[])
        .await?;

    pretend(world, "99.0.0").await?;
    world.patch_spec(&json!({"managementState": "Managed"})).await?;
    world
        .wait_for_condition("Degraded", "True", "DowngradeRefused", &[])
        .await?;
    world.patch_spec(&json!({"update": {"allowDowngrade": true}})).await?;
    world.wait_for_condition("Degraded", "False", "AsExpected", &[]).await?;
    world
        .wait_for_condition("Progressing", "False", "AsExpected", &[])
        .await?;
    let now = version(world).await?;
    ensure!(now == target, "{now}");

    // An adopted object has its own version.
    pretend(world, "0.0.9").await?;
    let unmarked = json!({"metadata": {"labels": {"csi.openstack.org/instance": null}}});
    for path in [DEPLOYMENT, DAEMON_SET] {
        world.api.merge(path, &unmarked).await?;
    }
    let update = json!({"approvedVersion": null, "allowDowngrade": null});
    world
        .patch_spec(&json!({"managementState": "Managed", "adoption": {"mode": "Adopt"}, "update": update}))
        .await?;
    world
        .wait_for_condition("Progressing", "True", "WaitingForApproval", &[])
        .await?;
    for path in [DEPLOYMENT, DAEMON_SET] {
        ensure!(version_of(world, path).await? == "0.0.9", "{path} was updated");
    }
    world
        .patch_spec(&json!({"update": {"approvedVersion": target}}))
        .await?;
    world
        .wait_for_condition("Progressing", "False", "AsExpected", &[])
        .await?;
    ensure!(version_of(world, DAEMON_SET).await? == target, "it was not updated");
    operator.process.stop().await?;
    Ok(())
}

pub(crate) async fn update_continues_after_its_approval_is_removed(world: &World) -> Result<()> {
    let operator = world
        .installed("approval-removed", &["--credentials-check-interval=500ms"], json!({}))
        .await?;
    let target = version(world).await?;

    pretend(world, "0.0.9").await?;
    world
        .patch_spec(&json!({"managementState": "Managed", "update": {"policy": "Manual"}}))
        .await?;
    world
        .wait_for_condition("Progressing", "True", "WaitingForApproval", &[])
        .await?;
    // The operator reports the last change before the idle period begins.
    operator.reconciles(QUIET).await?;
    let before = world.writes()?.len();
    operator.reconciles(QUIET).await?;
    let writes = world.writes()?.split_off(before);
    ensure!(
        writes.iter().all(|write| is_renewal(write)),
        "written without approval: {writes:?}"
    );
    for path in [DEPLOYMENT, DAEMON_SET] {
        ensure!(version_of(world, path).await? == "0.0.9", "{path} was updated");
    }

    world
        .patch_spec(&json!({"update": {"approvedVersion": target}}))
        .await?;
    wait_for("the controller's update", PATIENCE, async || {
        let now = version_of(world, DEPLOYMENT).await?;
        ensure!(now == target, "it is {now}");
        Ok(())
    })
    .await?;
    // Nothing reports yet that the controller serves: the nodes wait, and the approval is removed meanwhile.
    let nodes = version_of(world, DAEMON_SET).await?;
    ensure!(nodes == "0.0.9", "the nodes did not wait for the controller: {nodes}");
    world.patch_spec(&json!({"update": {"approvedVersion": null}})).await?;
    world
        .wait_for_condition("Progressing", "False", "AsExpected", &[])
        .await?;
    let nodes = version_of(world, DAEMON_SET).await?;
    ensure!(nodes == target, "the update stopped in the middle: {nodes}");
    operator.process.stop().await?;
    Ok(())
}

pub(crate) async fn foreign_crd_version_is_reported(world: &World) -> Result<()> {
    let hash = |hash: &str| json!({"metadata": {"annotations": {"csi.openstack.org/schema-hash": hash}}});
    let own = world.api.get(DEFINITION).await?["metadata"]["annotations"]["csi.openstack.org/schema-hash"].take();
    let own = own.as_str().context("the definition has no hash")?.to_owned();
    world.api.merge(DEFINITION, &hash("0123456789abcdef")).await?;
    let operator = world.start_operator("definition", &[]).await?;
    world.ask_for_driver(json!({})).await?;
    wait_for("the event", PATIENCE, async || {
        let list = world
            .api
            .get("/apis/events.k8s.io/v1/namespaces/default/events")
            .await?;
        let mut events = list["items"].as_array().into_iter().flatten();
        let event = events.find(|event| event["reason"] == "CRDMismatch");
        let note = event.context("there is none")?["note"].as_str().unwrap_or_default();
        ensure!(
            note.contains("schema 0123456789abcdef") && note.contains(&own) && note.contains("-k config/crd"),
            "{note}"
        );
        Ok(())
    })
    .await?;
    operator.process.stop().await?;
    world.api.merge(DEFINITION, &hash(&own)).await.map(drop)
}

/// Path of the operator's own CustomResourceDefinition.
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/cindercsidrivers.csi.openstack.org";

/// Returns the version in the driver's status.
async fn version(world: &World) -> Result<String> {
    let status = world.api.get(OBJECT).await?["status"].take();
    Ok(status["version"].as_str().unwrap_or_default().to_owned())
}

/// Returns the version of a workload.
async fn version_of(world: &World, path: &str) -> Result<String> {
    let labels = world.api.get(path).await?["metadata"]["labels"].take();
    Ok(labels["app.kubernetes.io/version"]
        .as_str()
        .unwrap_or_default()
        .to_owned())
}

/// Changes the workloads to those of another operator version, and pauses the object.
async fn pretend(world: &World, version: &str) -> Result<()> {
    world.patch_spec(&json!({"managementState": "Paused"})).await?;
    world.wait_for_condition("Progressing", "False", "Paused", &[]).await?;
    let label = json!({"metadata": {"labels": {"app.kubernetes.io/version": version}}});
    let image = json!({"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": format!("driver:{version}")});
    for path in [DEPLOYMENT, DAEMON_SET] {
        world.api.merge(path, &label).await?;
        if let Err(refusal) = world.api.patch(path, std::slice::from_ref(&image), false).await? {
            bail!("{}", refusal.message);
        }
    }
    Ok(())
}
