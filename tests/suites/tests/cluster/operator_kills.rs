// SPDX-License-Identifier: Apache-2.0
//! Kills the operator with SIGKILL in the middle of a reconcile. The point is deterministic: one of its writes is
//! suspended in the API server when it is killed, and never takes effect.

use anyhow::{Result, ensure};
use harness::wait_for;
use suites::cluster::OPERANDS;
use suites::expect::expect_equal;

use crate::gate::{Gate, Writes};
use crate::leaders;
use crate::upkeep::operator_metric;
use crate::world::{NAMESPACE, PATIENCE, World};

/// Deleted operands, at least one per stage.
const DELETED: &str = "clusterroles,clusterrolebindings,csidrivers,storageclasses";

pub(crate) async fn operator_killed_before_first_write_completes_repair(world: &World) -> Result<()> {
    killed_at(world, "rbac.authorization.k8s.io", "clusterroles").await
}

pub(crate) async fn operator_killed_between_writes_creates_one_deployment(world: &World) -> Result<()> {
    killed_at(world, "apps", "deployments").await
}

pub(crate) async fn operator_killed_before_last_write_completes_repair(world: &World) -> Result<()> {
    killed_at(world, "storage.k8s.io", "storageclasses").await
}

pub(crate) async fn operator_killed_before_status_reports_it_later(world: &World) -> Result<()> {
    killed_at(world, "csi.openstack.org", STATUS).await
}

const STATUS: &str = "cindercsidrivers/status";

async fn killed_at(world: &World, group: &'static str, resource: &'static str) -> Result<()> {
    world.healthy().await?;
    let before = world.operands().await?;
    // ReplicaSets of earlier revisions remain for some time; they are deleted with a Deployment.
    let sets_before = world.operands_of("replicasets").await?;
    let mut gate = Gate::close(world, Writes { group, resource }).await?;
    let outcome = kill_at(world, &mut gate, resource).await;
    drop(gate);
    // Also after a failure, because the other scenarios need the operator.
    Gate::remove(world).await?;
    outcome?;
    wait_for("the deleted operands", PATIENCE, async || {
        expect_equal("operands", &world.operands().await?, &before)?;
        let sets = world.operands_of("replicasets").await?;
        let as_before = if deletes_deployment(resource) {
            sets.len() == 1
        } else {
            sets == sets_before
        };
        ensure!(as_before, "ReplicaSets: {sets:?}, before {sets_before:?}");
        // The status may still be that of before the kill. The operator replaces the node pods, which `kubectl rollout
        // status` does not support; the conditions below report them.
        let words = ["rollout", "status", "deployment", "-n", NAMESPACE, "--watch=false"];
        let output = world.kubectl(&words).await?;
        let done = |line: &str| line.contains("successfully rolled out");
        ensure!(output.lines().all(done), "{output}");
        Ok(())
    })
    .await?;
    // The status may be that of before the kill until the successor leads, which waits until the Lease expires.
    wait_for("the first reconcile of the next leader", PATIENCE, async || {
        operator_metric(world, "cinder_csi_operator_reconcile_total").await
    })
    .await?;
    world.healthy().await
}

/// A deleted Deployment affects the status.
fn deletes_deployment(resource: &str) -> bool {
    ["deployments", STATUS].contains(&resource)
}

async fn kill_at(world: &World, gate: &mut Gate, resource: &str) -> Result<()> {
    world.kubectl(&["delete", DELETED, "-l", OPERANDS]).await?;
    if deletes_deployment(resource) {
        let deployments = ["delete", "deployments", "-n", NAMESPACE, "-l", OPERANDS];
        world.kubectl(&deployments).await?;
    }
    gate.holds_a_write().await?;
    let leader = leaders::leader(world).await?;
    ensure!(leaders::kill(world, &leader).await?, "{leader} does not run");
    if resource != STATUS {
        // The suspended write had no effect.
        let remaining = world.operands_of(resource).await?;
        ensure!(remaining.is_empty(), "there is {remaining:?}");
    }
    Ok(())
}
