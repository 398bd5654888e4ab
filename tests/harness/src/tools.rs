// SPDX-License-Identifier: Apache-2.0
//! The programs of the cluster: finds them, and builds them if needed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use cinder_operator_core::releases::Component;
use cinder_operator_core::releases::sidecars::{VersionSet, version_set};

use crate::Command;

/// Package installation and a cold build take about 10 minutes on two idle cores. The script stops a build that hangs.
const BUILD_TIMEOUT: Duration = Duration::from_hours(3);

/// Returns the root of this workspace.
pub fn workspace_root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest).to_path_buf()
}

/// Paths of programs by name, from the output of `tests/tools/build`.
#[derive(Debug, Clone)]
pub struct Tools {
    paths: BTreeMap<String, PathBuf>,
}

impl Tools {
    /// Returns all programs of the cluster. Installs distribution packages and builds Go programs if they are missing,
    /// with progress on standard error.
    pub async fn locate() -> Result<Self> {
        Self::modules(&[]).await
    }

    /// Returns the programs of some modules of `tests/tools`, for example `csi` for csi-sanity and the Go driver.
    pub async fn modules(modules: &[&str]) -> Result<Self> {
        let scripts = workspace_root().join("tests/tools");
        // The script writes its progress to standard error and its result to standard output.
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

    pub(crate) fn parse(list: &str) -> Self {
        let paths = list
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(name, path)| (name.to_owned(), PathBuf::from(path)))
            .collect();
        Self { paths }
    }

    /// Returns the path of a program.
    pub fn path(&self, name: &str) -> Result<&Path> {
        let path = self
            .paths
            .get(name)
            .with_context(|| format!("tests/tools/build names no program {name}"))?;
        Ok(path)
    }

    /// Returns the path of a sidecar by image name and release of its row in the operator's table. Programs of the
    /// newest row have no release in their names.
    pub(crate) fn sidecar(&self, name: &str, component: Component, row: &VersionSet) -> Result<&Path> {
        let release = row.release(component);
        if release == version_set(None).release(component) {
            return self.path(name);
        }
        let release = release.with_context(|| format!("the table has no release of {name}"))?;
        self.path(&format!("{name}-{}.{}", release.major, release.minor))
    }

    /// Iterates over all programs.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.paths.iter().map(|(name, path)| (name.as_str(), path.as_path()))
    }
}

#[cfg(test)]
mod tests {
    use cinder_operator_core::cluster::KubernetesVersion;
    use cinder_operator_core::releases::COMPONENTS;

    use super::*;

    #[test]
    fn parses_build_output_and_rejects_unknown_names() {
        let tools = Tools::parse("etcd /cache/etcd\ncsi-sanity /a path/csi-sanity\n");
        assert_eq!(tools.path("csi-sanity").unwrap(), Path::new("/a path/csi-sanity"));
        assert_eq!(tools.iter().count(), 2);
        assert!(tools.path("kubelet").unwrap_err().to_string().contains("kubelet"));
    }

    #[test]
    fn older_sidecars_have_release_names() {
        let tools = Tools::parse("csi-attacher /new\ncsi-resizer /new\ncsi-resizer-1.14 /old\n");
        let path = |name, component, minor| {
            let row = version_set(Some(KubernetesVersion { major: 1, minor }));
            tools.sidecar(name, component, row).unwrap().to_owned()
        };
        assert_eq!(path("csi-resizer", Component::Resizer, 33), Path::new("/old"));
        assert_eq!(path("csi-resizer", Component::Resizer, 34), Path::new("/new"));
        assert_eq!(path("csi-attacher", Component::Attacher, 30), Path::new("/new"));
        let old = version_set(Some(KubernetesVersion { major: 1, minor: 30 }));
        let tools = Tools::parse("csi-resizer /new\n");
        let error = tools.sidecar("csi-resizer", Component::Resizer, old);
        assert!(error.unwrap_err().to_string().contains("csi-resizer-1.14"));
    }

    /// Returns the release of a module that a go.mod below `tests/tools` pins.
    fn pinned(folder: &str, module: &str) -> Option<String> {
        let file = workspace_root().join("tests/tools").join(folder).join("go.mod");
        let text = std::fs::read_to_string(file).unwrap();
        let mut lines = text.lines().map(|line| line.trim().trim_start_matches("require "));
        let versions = lines.find_map(|line| line.strip_prefix(module)?.split_whitespace().next());
        versions.map(|version| version.trim_start_matches('v').to_owned())
    }

    #[test]
    fn builds_every_sidecar_release() {
        for minor in 30..=40 {
            let row = version_set(Some(KubernetesVersion { major: 1, minor }));
            for component in COMPONENTS.iter().filter(|component| component.sidecar.is_some()) {
                let release = row.release(component.component).unwrap();
                let newest = version_set(None).release(component.component).unwrap();
                let name = component.container.trim_start_matches("csi-");
                let folder = if release == newest { "csi" } else { name };
                let module = match release.major {
                    0 | 1 => format!("github.com/kubernetes-csi/external-{name} v"),
                    major => format!("github.com/kubernetes-csi/external-{name}/v{major} v"),
                };
                assert_eq!(
                    pinned(folder, &module),
                    Some(release.to_string()),
                    "{name} on Kubernetes 1.{minor}"
                );
            }
        }
    }
}
