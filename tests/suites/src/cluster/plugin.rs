// SPDX-License-Identifier: Apache-2.0
//! kubectl with the plugin.

use anyhow::{Context as _, Result};
use harness::Command;
use tempfile::TempDir;

use super::World;

/// A directory with the plugin, for the `PATH` of kubectl.
#[derive(Debug)]
pub struct Plugin {
    directory: TempDir,
    path: String,
}

impl Plugin {
    /// Links the plugin and its completion.
    pub fn install(world: &World) -> Result<Self> {
        let directory = tempfile::tempdir().context("cannot make a directory")?;
        for name in ["kubectl-cinder_csi", "kubectl_complete-cinder_csi"] {
            let link = directory.path().join(name);
            std::os::unix::fs::symlink(&world.product()?.plugin, link).context("cannot link the plugin")?;
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", directory.path().display());
        Ok(Self { directory, path })
    }

    /// Returns the directory of the plugin.
    pub fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// Returns a command of the plugin.
    pub fn command(&self, world: &World, arguments: &[&str]) -> Result<Command> {
        Ok(self.kubectl(world)?.arg("cinder-csi").args(arguments))
    }

    /// Returns kubectl with the plugin in its `PATH`.
    pub fn kubectl(&self, world: &World) -> Result<Command> {
        let kubectl = world.cluster.tools().path("kubectl")?.display().to_string();
        Ok(world.cluster.command_in_network(&kubectl)?.env("PATH", &self.path))
    }
}
