// SPDX-License-Identifier: Apache-2.0
//! What the published Go modules say, through the programs in `tests/tools/contracts`.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use tokio::process::Command;

use crate::programs;

/// What `GetInfo` of a registration socket answered to a client that dials as the kubelet does.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub struct PluginInfo {
    /// `CSIPlugin`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The driver's name.
    pub name: String,
    /// Path of the socket that serves CSI.
    pub endpoint: String,
    /// Versions of the registration interface.
    pub supported_versions: Vec<String>,
}

/// Descriptors of csi.proto and of the registration interface as their Go modules publish them: an encoded
/// `google.protobuf.FileDescriptorSet`.
pub async fn published_descriptors() -> Result<Vec<u8>> {
    run(Command::new(programs::contract_program("descriptors")?)).await
}

/// How two messages of Go that say the same compare once one of them was sent. Fails if that makes no difference.
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
