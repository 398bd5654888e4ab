// SPDX-License-Identifier: Apache-2.0
//! The programs that the cluster is made of: where they are and how they come to be there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::Command;

/// Installing packages and a cold build of all programs take about 10 minutes on two cores.
const BUILD_TIMEOUT: Duration = Duration::from_hours(1);

/// The root of the workspace that this crate belongs to.
pub fn workspace_root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest).to_path_buf()
}

/// Paths of programs by name, as `tests/tools/build` prints them.
#[derive(Debug, Clone)]
pub struct Tools {
    paths: BTreeMap<String, PathBuf>,
}

impl Tools {
    /// All programs of the cluster: installs the distribution's packages and builds the Go programs if they are missing,
    /// with progress on standard error. Fast once everything is there.
    pub async fn locate() -> Result<Self> {
        Self::modules(&[]).await
    }

    /// The programs of some modules of `tests/tools` alone (`csi` for csi-sanity and the Go driver).
    pub async fn modules(modules: &[&str]) -> Result<Self> {
        let scripts = workspace_root().join("tests/tools");
        // The script shows its progress on standard error and its result on standard output.
        let result = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
        Command::new("bash")
            .args(["-c", "exec \"$0\" \"${@:2}\" > \"$1\""])
            .arg(scripts.join("build"))
            .arg(result.path())
            .args(modules)
            .timeout(BUILD_TIMEOUT)
            .run_visibly()
            .await
            .context("cannot build the programs that the cluster is made of")?;
        let list = tokio::fs::read_to_string(result.path())
            .await
            .context("cannot read the list of programs")?;
        Ok(Self::parse(&list))
    }

    fn parse(list: &str) -> Self {
        let paths = list
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(name, path)| (name.to_owned(), PathBuf::from(path)))
            .collect();
        Self { paths }
    }

    /// The path of one program.
    pub fn path(&self, name: &str) -> Result<&Path> {
        let path = self
            .paths
            .get(name)
            .with_context(|| format!("tests/tools/build names no program {name}"))?;
        Ok(path)
    }

    /// All programs.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.paths.iter().map(|(name, path)| (name.as_str(), path.as_path()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_build_script_is_a_program_and_an_unknown_name_is_refused() {
        let tools = Tools::parse("etcd /cache/etcd\ncsi-sanity /a path/csi-sanity\n");
        assert_eq!(tools.path("csi-sanity").unwrap(), Path::new("/a path/csi-sanity"));
        assert_eq!(tools.iter().count(), 2);
        assert!(tools.path("kubelet").unwrap_err().to_string().contains("kubelet"));
    }
}
