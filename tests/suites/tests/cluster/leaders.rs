// SPDX-License-Identifier: Apache-2.0
//! Replicas of the operator: one is the leader, and another one continues when it ends.

use anyhow::{Context as _, Result, ensure};
use harness::wait_for;
use suites::cluster::{Watch, WatchLine, is_ready};
use suites::expect::expect_equal;

use crate::metrics;
use crate::upkeep::looked;
use crate::world::{NAMESPACE, PATIENCE, World};

/// Name of the operator's Lease, and label of its pods.
const OPERATOR: &str = "cinder-csi-operator";
/// Lease duration in seconds, after which another replica takes over from a dead leader.
const LEASE_DURATION: f64 = 30.0;

/// Returns the pod that owns the operator's Lease.
pub(crate) async fn leader(world: &World) -> Result<String> {
    let lease = world.get(&["lease", OPERATOR, "-n", NAMESPACE]).await?;
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    let pod = holder.split('_').next().unwrap_or_default();
    ensure!(!pod.is_empty(), "nobody leads");
    Ok(pod.to_owned())
}

/// Kills the operator of a pod with SIGKILL. Returns false if it is not running.
pub(crate) async fn kill(world: &World, pod: &str) -> Result<bool> {
    for node in world.cluster.nodes() {
        for container in node.containers(NAMESPACE, "operator").await? {
            if container.pod == pod {
                node.signal(&container, "SIGKILL").await?;
                return Ok(true);
            }
        }
    }
    Ok(false)
}

pub(crate) async fn replica_continues_after_leader_ends(world: &World) -> Result<()> {
    world.healthy().await?;
    both_serve(world).await?;
    let lease = ["lease", OPERATOR, "-n", NAMESPACE];
    let holders = "{.spec.leaseTransitions} {.spec.holderIdentity}";
    let lease = Watch::start(world, "lease", &lease, holders).await?;
    let class = ["storageclass", "cinder"];
    let classes = Watch::start(world, "class", &class, "{.metadata.uid}").await?;
    let before = world.operand_versions().await?;

    let first = leader(world).await?;
    world.remove(&["pod", &first, "-n", NAMESPACE]).await?;
    let second = other_leads(world, &first, false).await?;
    looked(world).await?;
    expect_equal("operands", &world.operand_versions().await?, &before)?;
    both_serve(world).await?;

    ensure!(kill(world, &second).await?, "{second} does not run");
    // The next leader must notice a change that occurs without a leader.
    world.remove(&class).await?;
    let third = other_leads(world, &second, true).await?;
    wait_for("the class", PATIENCE, async || world.get(&class).await).await?;
    looked(world).await?;
    // The kubelet delays a restart after many kills.
    world.remove(&["pod", &second, "-n", NAMESPACE]).await?;
    world.healthy().await?;
    both_serve(world).await?;

    let is_class = |object: &&(String, String)| object.0 == "StorageClass/cinder";
    let after = world.operand_versions().await?;
    let changed: Vec<_> = before.iter().filter(|object| !after.contains(object)).collect();
    ensure!(changed.iter().all(is_class), "written again: {changed:?}");
    let versions = classes.stop()?;
    let uid = versions.last().map(|version| version.word(0));
    let writes = versions.iter().filter(|version| Some(version.word(0)) == uid);
    ensure!(writes.count() == 1, "the class was written again: {versions:?}");
    one_after_the_other(&lease.stop()?, [&first, &second, &third])
}

/// Waits until a replica other than `ended` leads, and returns its pod. If `dies`, kills `ended` after each restart.
async fn other_leads(world: &World, ended: &str, dies: bool) -> Result<String> {
    wait_for("another leader", PATIENCE, async || {
        let now = leader(world).await?;
        if now == ended && dies {
            kill(world, ended).await?;
        }
        ensure!(now != ended, "{ended} holds the Lease");
        Ok(now)
    })
    .await
}

/// Waits until two replicas are Ready and serve metrics, and exactly one reports that it leads.
async fn both_serve(world: &World) -> Result<()> {
    wait_for("two replicas", PATIENCE, async || {
        let label = format!("app.kubernetes.io/name={OPERATOR}");
        let pods = world.list(&["pods", "-n", NAMESPACE, "-l", &label]).await?;
        ensure!(pods.len() == 2, "there are {}", pods.len());
        let mut leaders = 0;
        for pod in &pods {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            ensure!(is_ready(pod), "{name} is not Ready");
            let page = metrics::page_of(world, name).await?;
            leaders += usize::from(page.contains("\ncinder_csi_operator_leader 1"));
        }
        ensure!(leaders == 1, "{leaders} say that they lead");
        Ok(())
    })
    .await
}

/// Checks the versions of the Lease: these pods owned it in turn. The first one released it, and that of the second one
/// expired.
fn one_after_the_other(lines: &[WatchLine], pods: [&str; 3]) -> Result<()> {
    let parse = |line| -> Result<(f64, i64, &str)> {
        let line: &WatchLine = line;
        let transitions = line.word(0).parse().context("no number of transitions")?;
        Ok((line.at, transitions, line.word(1)))
    };
    let versions = lines.iter().map(parse).collect::<Result<Vec<_>>>()?;
    let mut changes = Vec::new();
    for pair in versions.windows(2) {
        let [(seen, before, old), (now, after, new)] = pair else {
            continue;
        };
        let is_taken = old != new && !new.is_empty();
        ensure!(
            *after == before + i64::from(is_taken),
            "{before} transitions under {old:?} became {after} under {new:?}"
        );
        // No replica took the Lease from one that might still be active.
        ensure!(
            !is_taken || old.is_empty() || now - seen >= LEASE_DURATION,
            "{new} took the Lease {:.1} s after {old} had renewed it",
            now - seen
        );
        if old != new {
            changes.push(new.split('_').next().unwrap_or_default());
        }
    }
    let [first, second, third] = pods;
    let holder = versions.first().map_or("", |(.., holder)| holder);
    ensure!(
        holder.starts_with(first) && changes == ["", second, third],
        "the Lease went from {holder} through {changes:?}"
    );
    Ok(())
}
