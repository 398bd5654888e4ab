// SPDX-License-Identifier: Apache-2.0
//! Kills the operator with SIGKILL in the middle of a reconcile. The point is deterministic: one of its writes is
//! suspended in the API server when it is killed, and never takes effect.

use anyhow::{Context as _, Result, ensure};
use harness::wait_for;

use crate::gate::{Gate, Writes};
use crate::leaders;
use crate::upkeep::operator_metric;
use crate::world::{DRIVER, NAMESPACE, PATIENCE, World};

/// Deleted operands, at least one per stage.
const DELETED: &str = "clusterroles,clusterrolebindings,csidrivers,storageclasses";

pub(crate) async fn operator_killed_before_first_write_completes_repair(world: &World) -> Result<()> {
    let writes = Writes {
        group: "rbac.authorization.k8s.io",
        resource: "clusterroles",
    };
    killed_at(world, writes, Some("clusterroles")).await
}

pub(crate) async fn operator_killed_between_writes_creates_one_deployment(world: &World) -> Result<()> {
    let writes = Writes {
        group: "apps",
        resource: "deployments",
    };
    killed_at(world, writes, Some("deployments")).await
}

pub(crate) async fn operator_killed_before_last_write_completes_repair(world: &World) -> Result<()> {
    let writes = Writes {
        group: "storage.k8s.io",
        resource: "storageclasses",
    };
    killed_at(world, writes, Some("storageclasses")).await
}

pub(crate) async fn operator_killed_before_status_reports_it_later(world: &World) -> Result<()> {
    let writes = Writes {
        group: "csi.openstack.org",
        resource: "cindercsidrivers/status",
    };
    killed_at(world, writes, None).await
}

async fn killed_at(world: &World, writes: Writes, missing: Option<&str>) -> Result<()> {
    world.healthy().await?;
    let before = operands(world).await?;
    // ReplicaSets of earlier revisions remain for some time; they are deleted with a Deployment.
    let sets_before = instances(world, "replicasets").await?;
    let mut gate = Gate::close(world, writes).await?;
    let outcome = kill_at(world, &mut gate, missing).await;
    drop(gate);
    // Also after a failure, because the other scenarios need the operator.
    Gate::remove(world).await?;
    outcome?;
    wait_for("what was deleted", PATIENCE, async || {
        let now = operands(world).await?;
        ensure!(now == before, "there is {now:?}, there was {before:?}");
        let sets = instances(world, "replicasets").await?;
        let as_before = if deletes_deployment(missing) {
            sets.len() == 1
        } else {
            sets == sets_before
        };
        ensure!(
            as_before,
            "there are the ReplicaSets {sets:?}, there were {sets_before:?}"
        );
        // The status may still be that of before the kill. The operator replaces the node pods, which `kubectl rollout
        // status` does not support; the conditions below report them.
        let words = ["rollout", "status", "deployment", "-n", NAMESPACE, "--watch=false"];
        let output = world.cluster.kubectl(&words).await?;
        let done = |line: &str| line.contains("successfully rolled out");
        ensure!(output.lines().all(done), "{output}");
        Ok(())
    })
    .await?;
    // The status may be that of before the kill until the successor leads, which waits until the Lease expires.
    wait_for("the first reconcile of the next leader", PATIENCE, async || {
        operator_metric(world, "cinder_csi_operator_reconcile_total")
            .await
            .map(drop)
    })
    .await?;
    world.healthy().await
}

/// A deleted Deployment affects the status.
fn deletes_deployment(missing: Option<&str>) -> bool {
    matches!(missing, None | Some("deployments"))
}

async fn kill_at(world: &World, gate: &mut Gate, missing: Option<&str>) -> Result<()> {
    let selector = format!("csi.openstack.org/instance={DRIVER}");
    world.cluster.kubectl(&["delete", DELETED, "-l", &selector]).await?;
    if deletes_deployment(missing) {
        let namespaced = ["delete", "deployments", "-n", NAMESPACE, "-l", &selector];
        world.cluster.kubectl(&namespaced).await?;
    }
    gate.holds_a_write().await?;
    let leader = leaders::leader(world).await?;
    ensure!(leaders::kill(world, &leader).await?, "{leader} does not run");
    if let Some(kind) = missing {
        let remaining = instances(world, kind).await?;
        ensure!(
            remaining.is_empty(),
            "the write that was held took effect: there is {remaining:?}"
        );
    }
    Ok(())
}

/// Returns the names of all operands of the driver.
async fn operands(world: &World) -> Result<Vec<String>> {
    let mut names = instances(world, DELETED).await?;
    let namespaced = "deployments,daemonsets,serviceaccounts,secrets,roles,rolebindings";
    names.extend(instances(world, namespaced).await?);
    names.sort();
    ensure!(!names.is_empty(), "the operator made nothing");
    Ok(names)
}

/// Returns the names of the driver's objects of these kinds, except those being deleted.
async fn instances(world: &World, kinds: &str) -> Result<Vec<String>> {
    let selector = format!("csi.openstack.org/instance={DRIVER}");
    let list = world.cluster.get(&[kinds, "-n", NAMESPACE, "-l", &selector]).await?;
    let items = list["items"].as_array().context("a list without items")?;
    let present = items
        .iter()
        .filter(|item| item["metadata"]["deletionTimestamp"].is_null());
    Ok(present
        .map(|item| {
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            format!("{}/{}", text(&item["kind"]), text(&item["metadata"]["name"]))
        })
        .collect())
}
