// SPDX-License-Identifier: Apache-2.0
//! Checks whether the driver uses the content of the Secret.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::wait_for;
use serde_json::Value;

use super::World;

/// Limit until the driver uses a changed Secret: the kubelet syncs its pods about once a minute.
pub const ROTATION: Duration = Duration::from_mins(4);

/// Returns the controller pods: uid and restarts of their containers.
pub async fn controllers(world: &World) -> Result<Vec<Value>> {
    world.operand_pods(",app.kubernetes.io/component=controller").await
}

/// Returns the first and the last time at which a controller activated its configuration.
async fn configured(world: &World) -> Result<(u64, u64)> {
    let pages = world.controller_metrics().await?;
    let times = pages
        .lines()
        .filter_map(|line| line.strip_prefix("cinder_csi_config_reload_timestamp_seconds "));
    let times: Vec<u64> = times.filter_map(|time| time.parse().ok()).collect();
    let (first, last) = (times.iter().min().copied(), times.iter().max().copied());
    first.zip(last).context("no controller reports the time")
}

/// Changes the credentials and waits until every controller uses them.
pub async fn rotate(world: &World, change: impl Future<Output = Result<()>>) -> Result<()> {
    let (_, before) = configured(world).await?;
    change.await?;
    wait_for("the changed credentials in the controllers", ROTATION, async || {
        let (first, _) = configured(world).await?;
        ensure!(first > before, "a controller has used its configuration since {first}");
        Ok(())
    })
    .await
}

/// Returns the number of failed calls of the sidecars, from the driver's metrics.
pub async fn failed_calls(world: &World) -> Result<u64> {
    let pages = world.controller_metrics().await?;
    let counts = pages
        .lines()
        .filter(|line| line.starts_with("csi_operations_seconds_count{") && !line.contains("grpc_status_code=\"OK\""));
    let counts = counts.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
    Ok(counts.sum())
}
