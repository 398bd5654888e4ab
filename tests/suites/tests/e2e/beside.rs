// SPDX-License-Identifier: Apache-2.0
//! Runs the Go driver instead of our driver, on the same cluster and the same cloud.
//!
//! It runs the scenarios that use only Kubernetes' own objects. The other scenarios do one of the following:
//!
//! - They use features of our operator: classes of attributes, of backups and of group snapshots, snapshot kinds that
//!   appear and disappear, another Secret or CA.
//! - They kill our processes.
//! - They wait for our operator's conditions: zones, outages of services.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;
use suites::cluster::{CLASS, DRIVER, World, growth, life, snapshots};
use suites::go_manifests as go;
use suites::scenarios;

use crate::volumes;

/// Result of a scenario with the Go driver.
pub(crate) struct GoDriverResult {
    pub(crate) passed: bool,
    pub(crate) time: Duration,
    pub(crate) calls: usize,
}

impl GoDriverResult {
    /// Returns the columns for seconds and requests.
    pub(crate) fn columns(&self) -> (String, String) {
        let time = if self.passed {
            format!("{:.1}", self.time.as_secs_f64())
        } else {
            "FAILED".to_owned()
        };
        (time, self.calls.to_string())
    }
}

/// Removes our driver, installs the Go driver, and runs those of the named scenarios that it supports.
pub(crate) async fn run(world: &World, names: &[&str]) -> Result<BTreeMap<&'static str, GoDriverResult>> {
    let mut both = scenarios![
        life::pod_gets_volume_and_cleans_up,
        life::pod_gets_raw_block_volume,
        growth::claim_expands_while_pod_runs,
        life::pod_moves_to_other_node_with_data,
        volumes::ten_concurrent_claims_get_ten_volumes,
        snapshots::restored_volume_has_data_of_snapshot,
        snapshots::clone_has_data_of_source,
    ];
    both.retain(|scenario| names.contains(&scenario.name));
    let mut all = BTreeMap::new();
    if both.is_empty() {
        return Ok(all);
    }
    install(world).await.context("the Go driver is not installed")?;
    for scenario in both {
        let before = world.openstack()?.calls().len();
        let (outcome, time) = scenario.attempt(world).await;
        let calls = world.openstack()?.calls().len() - before;
        let passed = outcome.is_ok();
        let name = scenario.name;
        match outcome {
            Ok(()) => println!("the Go driver, {name} ... ok ({:.1} s)", time.as_secs_f64()),
            Err(error) => {
                println!("the Go driver, {name} ... FAILED\n    {error:#}");
                world.delete_what_users_made().await?;
                let remains = world.nothing_left().await;
                remains.with_context(|| format!("after the Go driver's {name}"))?;
            }
        }
        all.insert(name, GoDriverResult { passed, time, calls });
    }
    Ok(all)
}

async fn install(world: &World) -> Result<()> {
    let cluster = &world.cluster;
    cluster.progress().say("removing our driver");
    world.delete_driver().await?;
    go::install(cluster, &go::cloud_conf(world)?).await?;
    // The operator's names of the classes.
    let classes = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS}, "provisioner": DRIVER,
            "allowVolumeExpansion": true, "volumeBindingMode": "WaitForFirstConsumer"},
        {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass", "metadata": {"name": CLASS},
            "driver": DRIVER, "deletionPolicy": "Delete", "parameters": {"force-create": "true"}},
    ]});
    world.apply(&classes).await
}
