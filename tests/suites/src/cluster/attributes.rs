// SPDX-License-Identifier: Apache-2.0
//! Claims that change their VolumeAttributesClass.

use anyhow::{Result, ensure};
use harness::wait_for;
use serde_json::json;

use super::{PATIENCE, USERS, World};

impl World {
    /// Changes the VolumeAttributesClass of a claim, and waits until its volume has the attributes.
    pub async fn change_attributes(&self, claim: &str, class: &str) -> Result<()> {
        let patch = json!({"spec": {"volumeAttributesClassName": class}}).to_string();
        let words = ["patch", "pvc", claim, "-n", USERS, "--type=merge", "-p", &patch];
        self.cluster.kubectl(&words).await?;
        wait_for("the change of the volume", PATIENCE, async || {
            let status = self.cluster.get(&["pvc", claim, "-n", USERS]).await?["status"].take();
            ensure!(status["currentVolumeAttributesClassName"] == class, "{status}");
            Ok(())
        })
        .await
    }
}
