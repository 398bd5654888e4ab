// SPDX-License-Identifier: Apache-2.0
//! Tests of the replacement of node pods according to the kubelets' registrations.

use anyhow::{Context as _, Result, ensure};
use harness::wait_for;
use serde_json::{Value, json};
use suites::expect::{expect_equal, expect_field, expect_parts};

use crate::api::PATIENCE;
use crate::world::{DAEMON_SET, DEPLOYMENT, LEASE, OBJECT, World, is_renewal};

/// Number of reconciles of an idle period.
const QUIET: f64 = 5.0;
/// Version of another operator.
const OLD: &str = "0.0.9";

/// Fails unless one node pod is being deleted.
async fn expect_one_leaving(world: &World) -> Result<()> {
    let pods = world.node_pods().await?;
    let leaving = pods.iter().filter(|(_, leaves)| *leaves).count();
    ensure!(leaving == 1, "{leaving} of {} pods leave", pods.len());
    Ok(())
}

pub(crate) async fn replaces_node_pods_sequentially(world: &World) -> Result<()> {
    let often = ["--credentials-check-interval=500ms"];
    let operator = world.installed("rolling", &often, json!({})).await?;
    let old = world.node_pods().await?;
    world.patch_spec(&json!({"logLevel": "Debug"})).await?;
    // The other components do nothing: only the first pod is deleted.
    wait_for("the first replacement", PATIENCE, async || {
        // The DaemonSet's controller has seen the template, and no kubelet has ended a pod yet.
        world.controllers_see().await?;
        expect_one_leaving(world).await
    })
    .await?;
    operator.reconciles(QUIET).await?;
    expect_one_leaving(world).await?;
    world.settled().await?;
    let new = world.node_pods().await?;
    let are_new = new.iter().zip(&old).all(|(new, old)| new.0 != old.0);
    ensure!(are_new, "{old:?} became {new:?}");
    operator.stop().await
}

pub(crate) async fn failed_rollout_stops_and_is_reported(world: &World) -> Result<()> {
    let soon = ["--credentials-check-interval=500ms", "--registration-deadline=3s"];
    let operator = world.installed("stopping", &soon, json!({})).await?;
    let old = world.node_pods().await?;
    world.patch_spec(&json!({"logLevel": "Debug"})).await?;
    let broken = ["node1"];
    let message = world
        .wait_for_reason_with(&broken, "Degraded", "True", "RolloutStopped")
        .await?;
    let (pod, cause) = ("node-pod-node1", "there is no such image");
    expect_parts(&message, &["node1", pod, cause, "1 node with an old pod"])?;
    world.reason("Progressing", "False", "Blocked").await?;

    // A new operator process must not continue either.
    operator.process.kill().await?;
    world.api.delete(LEASE).await?;
    let operator = world.start_operator("stopped", &soon).await?;
    operator.reconciles(QUIET).await?;
    let now = world.node_pods().await?;
    expect_equal("pod of the other node", &now[1], &old[1])?;
    let object = world.api.get(OBJECT).await?;
    expect_field(&object, "/status/rollout/state", "Stopped")?;
    expect_field(&object, "/status/rollout/failed/0/node", "node1")?;

    // A second template is tried.
    world.patch_spec(&json!({"logLevel": "Trace"})).await?;
    world.wait_for_reason("Degraded", "False", "AsExpected").await?;
    world.settled().await?;
    operator.stop().await
}

pub(crate) async fn update_needs_approval_and_downgrade_permission(world: &World) -> Result<()> {
    let manual = json!({"update": {"policy": "Manual"}});
    let operator = world.installed("manual", &[], manual).await?;
    let target = version(world).await?;
    let managed = json!({"managementState": "Managed"});
    pretend(world, OLD).await?;
    world.patch_spec(&managed).await?;
    let message = waits_for_approval(world).await?;
    expect_parts(&message, &["from version 0.0.9"])?;
    expect_version(world, DAEMON_SET, OLD).await?;
    approve(world, json!(target)).await?;
    world.settled().await?;

    pretend(world, "99.0.0").await?;
    world.patch_spec(&managed).await?;
    world.wait_for_reason("Degraded", "True", "DowngradeRefused").await?;
    world.patch_spec(&json!({"update": {"allowDowngrade": true}})).await?;
    world.wait_for_reason("Degraded", "False", "AsExpected").await?;
    world.settled().await?;
    expect_equal("version", &version(world).await?, &target)?;

    // An adopted object has its own version.
    pretend(world, OLD).await?;
    let unmarked = json!({"metadata": {"labels": {"csi.openstack.org/instance": null}}});
    for path in [DEPLOYMENT, DAEMON_SET] {
        world.api.merge(path, &unmarked).await?;
    }
    let update = json!({"approvedVersion": null, "allowDowngrade": null});
    let adoption = json!({"managementState": "Managed", "adoption": {"mode": "Adopt"}, "update": update});
    world.patch_spec(&adoption).await?;
    waits_for_approval(world).await?;
    for path in [DEPLOYMENT, DAEMON_SET] {
        expect_version(world, path, OLD).await?;
    }
    approve(world, json!(target)).await?;
    world.settled().await?;
    expect_version(world, DAEMON_SET, &target).await?;
    operator.stop().await
}

pub(crate) async fn update_continues_after_its_approval_is_removed(world: &World) -> Result<()> {
    let often = ["--credentials-check-interval=500ms"];
    let operator = world.installed("approval-removed", &often, json!({})).await?;
    let target = version(world).await?;

    pretend(world, OLD).await?;
    let manual = json!({"managementState": "Managed", "update": {"policy": "Manual"}});
    world.patch_spec(&manual).await?;
    waits_for_approval(world).await?;
    // The operator reports the last change before the idle period begins.
    operator.reconciles(QUIET).await?;
    let before = world.writes()?.len();
    operator.reconciles(QUIET).await?;
    let writes = world.writes()?.split_off(before);
    let are_renewals = writes.iter().all(|write| is_renewal(write));
    ensure!(are_renewals, "written without approval: {writes:?}");
    for path in [DEPLOYMENT, DAEMON_SET] {
        expect_version(world, path, OLD).await?;
    }

    approve(world, json!(target)).await?;
    wait_for("the controller's update", PATIENCE, async || {
        expect_version(world, DEPLOYMENT, &target).await
    })
    .await?;
    // Nothing reports yet that the controller serves: the nodes wait, and the approval is removed meanwhile.
    expect_version(world, DAEMON_SET, OLD).await?;
    approve(world, Value::Null).await?;
    world.settled().await?;
    expect_version(world, DAEMON_SET, &target).await?;
    operator.stop().await
}

pub(crate) async fn foreign_crd_version_is_reported(world: &World) -> Result<()> {
    let hash = |hash: &str| json!({"metadata": {"annotations": {"csi.openstack.org/schema-hash": hash}}});
    let own = world.api.get(DEFINITION).await?["metadata"]["annotations"]["csi.openstack.org/schema-hash"].take();
    let own = own.as_str().context("the definition has no hash")?;
    world.api.merge(DEFINITION, &hash("0123456789abcdef")).await?;
    let operator = world.start_operator("definition", &[]).await?;
    world.ask_for_driver(json!({})).await?;
    wait_for("the event", PATIENCE, async || {
        let events = "/apis/events.k8s.io/v1/namespaces/default/events";
        let list = world.api.get(events).await?;
        let mut events = list["items"].as_array().into_iter().flatten();
        let event = events.find(|event| event["reason"] == "CRDMismatch");
        let note = event.context("there is none")?["note"].as_str().unwrap_or_default();
        expect_parts(note, &["schema 0123456789abcdef", own, "-k config/crd"])
    })
    .await?;
    operator.stop().await?;
    world.api.merge(DEFINITION, &hash(own)).await.map(drop)
}

/// Path of the operator's own CustomResourceDefinition.
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/cindercsidrivers.csi.openstack.org";

/// Waits until the operator reports that an update needs approval, and returns the message.
async fn waits_for_approval(world: &World) -> Result<String> {
    let reason = "WaitingForApproval";
    world.wait_for_reason("Progressing", "True", reason).await
}

/// Sets the approved version; null removes it.
async fn approve(world: &World, version: Value) -> Result<()> {
    world.patch_spec(&json!({"update": {"approvedVersion": version}})).await
}

/// Returns the version in the driver's status.
async fn version(world: &World) -> Result<String> {
    let status = world.api.get(OBJECT).await?["status"].take();
    Ok(status["version"].as_str().unwrap_or_default().to_owned())
}

/// Fails unless a workload has this version.
async fn expect_version(world: &World, path: &str, version: &str) -> Result<()> {
    let workload = world.api.get(path).await?;
    expect_field(&workload, "/metadata/labels/app.kubernetes.io~1version", version)
}

/// Changes the workloads to those of another operator version, and pauses the object.
async fn pretend(world: &World, version: &str) -> Result<()> {
    world.patch_spec(&json!({"managementState": "Paused"})).await?;
    world.wait_for_reason("Progressing", "False", "Paused").await?;
    let label = json!({"metadata": {"labels": {"app.kubernetes.io/version": version}}});
    let image = json!({"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": format!("driver:{version}")});
    for path in [DEPLOYMENT, DAEMON_SET] {
        world.api.merge(path, &label).await?;
        world.api.change(path, &image).await?;
    }
    Ok(())
}
