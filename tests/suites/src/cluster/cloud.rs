// SPDX-License-Identifier: Apache-2.0
//! The resources and requests of the cluster's cloud.

use anyhow::{Context as _, Result, ensure};
use harness::wait_for;
use serde_json::Value;

use super::{PATIENCE, World};
use crate::expect::{expect_equal, expect_none};

impl World {
    /// Waits until no node has an attached volume, which takes longer than the removal of its pod.
    pub async fn detached(&self) -> Result<()> {
        wait_for("the end of all attachments", PATIENCE, async || {
            self.expect_no_object(&["volumeattachments"]).await
        })
        .await
    }

    /// Waits until Kubernetes and the cloud have deleted all volumes.
    pub async fn nothing_left(&self) -> Result<()> {
        wait_for("the end of all volumes", PATIENCE, async || {
            self.expect_no_object(&["persistentvolumes,volumeattachments"]).await?;
            if let Some(openstack) = &self.openstack {
                return openstack.nothing_left().await;
            }
            for kind in ["volumes", "attachments", "mappings", "loop_devices"] {
                expect_none(kind, &self.cloud_things(kind).await?)?;
            }
            Ok(())
        })
        .await
    }

    /// Returns the cloud's current resources of a kind, such as volumes or snapshots.
    pub async fn cloud_things(&self, kind: &str) -> Result<Vec<Value>> {
        if let Some(openstack) = &self.openstack {
            return openstack.list(kind).await;
        }
        let state = self.cluster.simulator()?.state().await?;
        let things = state[kind].as_array();
        Ok(things.with_context(|| format!("a state without {kind}"))?.clone())
    }

    /// Returns the only volume in the cloud.
    pub async fn cloud_volume(&self) -> Result<Value> {
        let mut volumes = self.cloud_things("volumes").await?;
        expect_equal("volumes in the cloud", &volumes.len(), &1)?;
        volumes.pop().context("there is no volume")
    }

    /// Returns the names of the cloud's current volumes.
    pub async fn cloud_volumes(&self) -> Result<Vec<String>> {
        let volumes = self.cloud_things("volumes").await?;
        let names = volumes.iter().map(|volume| volume["name"].as_str());
        Ok(names.map(|name| name.unwrap_or_default().to_owned()).collect())
    }

    /// Fails unless the cloud has this number of volumes.
    pub async fn expect_cloud_volumes(&self, count: usize) -> Result<()> {
        let volumes = self.cloud_volumes().await?;
        ensure!(volumes.len() == count, "the cloud has {volumes:?}, expected {count}");
        Ok(())
    }

    /// Waits until the cloud has no resource of these kinds.
    pub async fn end_in_cloud(&self, kinds: &[&str]) -> Result<()> {
        wait_for(&format!("the end of {kinds:?} in the cloud"), PATIENCE, async || {
            for kind in kinds {
                expect_none(kind, &self.cloud_things(kind).await?)?;
            }
            Ok(())
        })
        .await
    }

    /// Sets latencies of the cloud, for example `{"create": "5s"}`.
    pub async fn latencies(&self, latencies: Value) -> Result<()> {
        let simulator = self.cluster.simulator()?;
        let method = reqwest::Method::POST;
        simulator.admin(method, "latency", Some(latencies)).await.map(drop)
    }

    /// Waits until the cloud has received a request of this operation since its log was cleared.
    pub async fn asked_for(&self, operation: &str) -> Result<()> {
        wait_for(&format!("a request {operation}"), PATIENCE, async || {
            let log = self.cluster.simulator()?.log().await?;
            let is_there = log.iter().any(|entry| entry["operation"] == operation);
            ensure!(is_there, "{} other requests", log.len());
            Ok(())
        })
        .await
    }
}
