// SPDX-License-Identifier: Apache-2.0
//! The sidecar containers of a driver on a node: node-driver-registrar and livenessprobe.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::{Cluster, Image, programs};

/// The program that replaces both unless the environment names real ones.
const STAND_IN: &str = "node-sidecars";

impl Cluster {
    /// Imports these images of node-driver-registrar and livenessprobe on every node, and reports their programs. The
    /// environment may name real programs (`NODE_DRIVER_REGISTRAR=/path`, `LIVENESSPROBE=/path`); otherwise a stand-in
    /// runs.
    pub async fn load_node_sidecars(&self, images: &[&str]) -> Result<()> {
        for name in images {
            let program = program_of(name)?;
            let (source, what) = match named(program) {
                Some(path) => {
                    ensure!(path.exists(), "{} for {program} is not there", path.display());
                    let what = path.display().to_string();
                    (path, what)
                }
                None => (self.stand_in().await?, "a stand-in of this repository".to_owned()),
            };
            println!("    {name} runs {what}");
            let path = format!("/{program}");
            let image = Image::new(*name).program(&source, &path).await?.entrypoint(path);
            self.import(&image).await?;
        }
        Ok(())
    }

    async fn stand_in(&self) -> Result<PathBuf> {
        let built = programs::development(&[STAND_IN], self.progress()).await?;
        built.into_iter().next().context("cargo built nothing")
    }
}

/// Returns `livenessprobe` for `registry.k8s.io/sig-storage/livenessprobe:v2.19.0`.
fn program_of(image: &str) -> Result<&str> {
    let name = image.rsplit('/').next().unwrap_or(image);
    let name = name.split(':').next().unwrap_or(name);
    ensure!(
        ["csi-node-driver-registrar", "livenessprobe"].contains(&name),
        "{image} is neither node-driver-registrar nor livenessprobe"
    );
    Ok(name)
}

/// Returns the program from the environment.
fn named(program: &str) -> Option<PathBuf> {
    let variable = program.trim_start_matches("csi-").to_uppercase().replace('-', "_");
    std::env::var_os(variable).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_program_ignores_registry_and_tag() {
        let of = |image| program_of(image).unwrap();
        assert_eq!(of("registry.k8s.io/sig-storage/livenessprobe:v2.19.0"), "livenessprobe");
        assert_eq!(of("csi-node-driver-registrar:v2.15.0"), "csi-node-driver-registrar");
        assert!(program_of("busybox:stable").is_err());
    }
}
