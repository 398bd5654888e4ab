// SPDX-License-Identifier: Apache-2.0
//! Pods that write to their volumes continuously.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::wait_for;
use serde_json::json;

use super::objects::mounted_pod;
use super::{PATIENCE, USERS, World, claim_of_class};
use crate::expect::expect_field;

/// Writes consecutive numbers and syncs after each; ends at the first error.
const SCRIPT: &str = "set -e; trap 'exit 0' TERM; n=0; while :; do n=$((n+1)); echo $n >> /data/log; sync /data/log; sleep 0.1 & wait $!; done";

/// One writing pod per node.
#[derive(Debug)]
pub struct Writers {
    names: Vec<String>,
}

impl Writers {
    /// Starts the pods with volumes of a StorageClass, and waits for the first write of each.
    pub async fn start(world: &World, class: &str) -> Result<Self> {
        world.create_namespace(USERS).await?;
        let mut names = Vec::new();
        for node in world.cluster.nodes() {
            let name = format!("writer-{}", node.name());
            let mut pod = mounted_pod(&name, SCRIPT, Some(node.name()));
            pod["spec"]["restartPolicy"] = json!("Never");
            world.apply(&claim_of_class(&name, class)).await?;
            world.apply(&pod).await?;
            names.push(name);
        }
        let writers = Self { names };
        wait_for("the writers", PATIENCE, async || {
            for name in &writers.names {
                ensure!(written(world, name).await? > 0, "{name} has written nothing");
            }
            Ok(())
        })
        .await?;
        Ok(writers)
    }

    /// Returns the names of the pods and their claims.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Fails if a number is missing, or a pod has stopped to write or has restarted. Returns the total of written
    /// numbers.
    pub async fn check(&self, world: &World) -> Result<u64> {
        let mut all = 0;
        for name in &self.names {
            let before = written(world, name).await?;
            wait_for(&format!("{name} to go on"), Duration::from_secs(20), async || {
                let now = written(world, name).await?;
                ensure!(now > before, "it has written {now}");
                Ok(())
            })
            .await?;
            expect_field(&world.get_of_users("pod", name).await?, "/status/phase", "Running")?;
            world.expect_no_restart(name).await?;
            all += before;
        }
        Ok(all)
    }
}

/// Returns the number of written numbers of a pod. Fails if one is missing or out of order.
async fn written(world: &World, name: &str) -> Result<u64> {
    let check = "awk '$1 != NR {print \"line\", NR, \"is\", $1; exit 1} END {print NR}' /data/log";
    let output = world.sh(name, check).await?;
    output.trim().parse().with_context(|| format!("{name}: {output}"))
}
