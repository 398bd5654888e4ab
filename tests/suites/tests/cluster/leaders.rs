// SPDX-License-Identifier: Apache-2.0
//! Replicas of the operator: one is the leader, and another one continues when it ends.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::{Command, wait_for};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::metrics;
use crate::upkeep::{looked, owned_versions};
use crate::world::{NAMESPACE, PATIENCE, World};

/// Name of the operator's Lease, and label of its pods.
const OPERATOR: &str = "cinder-csi-operator";
/// Lease duration in seconds, after which another replica takes over from a dead leader.
const LEASE_DURATION: f64 = 30.0;
/// Limit of the watch, above that of the scenario.
const LONGEST_WATCH: Duration = Duration::from_mins(15);

/// Returns the pod that owns the operator's Lease.
pub(crate) async fn leader(world: &World) -> Result<String> {
    let lease = world.cluster.get(&["lease", OPERATOR, "-n", NAMESPACE]).await?;
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
    let lease = Watch::start(
        world,
        &["lease", OPERATOR, "-n", NAMESPACE],
        "{.spec.leaseTransitions} {.spec.holderIdentity}",
    )
    .await?;
    let class = Watch::start(world, &["storageclass", "cinder"], "{.metadata.uid}").await?;
    let before = owned_versions(world).await?;

    let first = leader(world).await?;
    world
        .cluster
        .kubectl(&["delete", "pod", &first, "-n", NAMESPACE])
        .await?;
    let second = other_leads(world, &first, false).await?;
    looked(world).await?;
    ensure!(
        owned_versions(world).await? == before,
        "the second leader wrote again what was there"
    );
    both_serve(world).await?;

    ensure!(kill(world, &second).await?, "{second} does not run");
    // The next leader must notice a change that occurs without a leader.
    world.cluster.kubectl(&["delete", "storageclass", "cinder"]).await?;
    let third = other_leads(world, &second, true).await?;
    wait_for("the class", PATIENCE, async || {
        world.cluster.get(&["storageclass", "cinder"]).await.map(drop)
    })
    .await?;
    looked(world).await?;
    // The kubelet delays a restart after many kills.
    world
        .cluster
        .kubectl(&["delete", "pod", &second, "-n", NAMESPACE])
        .await?;
    world.healthy().await?;
    both_serve(world).await?;

    let is_class = |object: &&(String, String)| object.0 == "StorageClass/cinder";
    let after = owned_versions(world).await?;
    let changed: Vec<_> = before.iter().filter(|object| !after.contains(object)).collect();
    ensure!(changed.iter().all(is_class), "written again: {changed:?}");
    let lines = class.stop()?;
    let made = lines.last().map(|(_, uid)| uid);
    let writes = lines.iter().filter(|(_, uid)| Some(uid) == made).count();
    ensure!(writes == 1, "the class was written {writes} times: {lines:?}");
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
        let pods = world.cluster.get(&["pods", "-n", NAMESPACE, "-l", &label]).await?;
        let pods = pods["items"].as_array().context("a list without items")?;
        ensure!(pods.len() == 2, "there are {}", pods.len());
        let mut leaders = 0;
        for pod in pods {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            ensure!(is_ready(pod), "{name} is not Ready");
            leaders += usize::from(
                metrics::page_of(world, name)
                    .await?
                    .contains("\ncinder_csi_operator_leader 1"),
            );
        }
        ensure!(leaders == 1, "{leaders} say that they lead");
        Ok(())
    })
    .await
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Checks the versions of the Lease: these pods owned it in turn. The first one released it, and that of the second one
/// expired.
fn one_after_the_other(lines: &[(f64, String)], pods: [&str; 3]) -> Result<()> {
    let versions: Vec<(f64, i64, &str)> = lines
        .iter()
        .map(|(at, text)| {
            let (transitions, holder) = text.split_once(' ').unwrap_or((text, ""));
            Ok((*at, transitions.parse().context("no number of transitions")?, holder))
        })
        .collect::<Result<_>>()?;
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

/// `kubectl get --watch` of one object, with the time of each version.
struct Watch {
    running: JoinHandle<Result<String>>,
    file: PathBuf,
    // Deleted with the watch.
    _directory: tempfile::TempDir,
}

impl Watch {
    async fn start(world: &World, object: &[&str], path: &str) -> Result<Self> {
        let directory = tempfile::tempdir().context("cannot make a directory")?;
        let file = directory.path().join("versions");
        let script = "\"$@\" | while read -r line; do echo \"$EPOCHREALTIME $line\" >> \"$0\"; done";
        let command: Command = world
            .cluster
            .command_in_network("bash")?
            .args(["-c", script])
            .arg(&file)
            .arg(world.cluster.tools().path("kubectl")?)
            .arg("get")
            .args(object)
            .args(["--watch", "-o", &format!("jsonpath={path}{{\"\\n\"}}")])
            .timeout(LONGEST_WATCH);
        let running = tokio::spawn(async move { command.output().await });
        wait_for("the watch", PATIENCE, async || {
            ensure!(file.exists(), "it has told nothing");
            Ok(())
        })
        .await?;
        Ok(Self {
            running,
            file,
            _directory: directory,
        })
    }

    /// Stops the watch; returns the versions with times in seconds.
    fn stop(self) -> Result<Vec<(f64, String)>> {
        ensure!(!self.running.is_finished(), "the watch ended too early");
        // Its child processes end with it.
        self.running.abort();
        let text = fs::read_to_string(&self.file).context("cannot read what the watch saw")?;
        text.lines()
            .map(|line| {
                let (at, version) = line.split_once(' ').context("a line without a version")?;
                Ok((
                    at.parse().context("a line without its time")?,
                    version.trim().to_owned(),
                ))
            })
            .collect()
    }
}
