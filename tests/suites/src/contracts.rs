// SPDX-License-Identifier: Apache-2.0
//! Runs the programs in `tests/tools/contracts`, which use the published Go modules.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use tokio::process::Command;

use crate::programs;

/// Response of `GetInfo` on a registration socket to a client that dials like the kubelet.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub struct PluginInfo {
    /// `CSIPlugin`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Name of the driver.
    pub name: String,
    /// Path of the CSI socket.
    pub endpoint: String,
    /// Versions of the registration API.
    pub supported_versions: Vec<String>,
}

/// Returns descriptors of csi.proto and of the registration API from their Go modules, as an encoded
/// `google.protobuf.FileDescriptorSet`.
pub async fn published_descriptors() -> Result<Vec<u8>> {
    run(Command::new(programs::contract_program("descriptors")?)).await
}

/// Returns how two equal Go messages compare after one of them was sent. Fails if that has no effect.
pub async fn equality() -> Result<String> {
    let shown = run(Command::new(programs::contract_program("equality")?)).await?;
    String::from_utf8(shown).context("what the program prints is no text")
}

/// Registers a plugin as the kubelet's plugin manager does.
pub async fn register(socket: &Path) -> Result<PluginInfo> {
    let mut command = Command::new(programs::contract_program("registration")?);
    command.arg(socket);
    let answer = run(command).await?;
    serde_json::from_slice(&answer).context("the answer is no JSON object of a plugin")
}

async fn run(mut command: Command) -> Result<Vec<u8>> {
    let output = command
        .output()
        .await
        .with_context(|| format!("cannot run {}", command.as_std().get_program().display()))?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(output.stdout)
}
