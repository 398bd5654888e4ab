// SPDX-License-Identifier: Apache-2.0
//! Builds and installs the programs of this repository.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use cinder_operator_core::cluster::KubernetesVersion;

use crate::run::cache_directory;
use crate::{Cluster, Progress, images, programs, wait_for, workspace_root};

const DRIVER: &str = "cinder-csi-driver";
const OPERATOR: &str = "cinder-csi-operator";
const PLUGIN: &str = "kubectl-cinder_csi";

const OPERATOR_TIMEOUT: Duration = Duration::from_mins(3);
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(90);

/// Build profile of the product's programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// As released: optimized, and static if the Rust target is installed.
    Release,
    /// Unoptimized, with the required shared libraries in the image.
    Dev,
}

impl Profile {
    /// Reads `HARNESS_PROFILE`: `release` (the default) or `dev`.
    pub fn from_environment() -> Result<Self> {
        match std::env::var("HARNESS_PROFILE").as_deref() {
            Err(_) | Ok("" | "release") => Ok(Self::Release),
            Ok("dev") => Ok(Self::Dev),
            Ok(other) => bail!("HARNESS_PROFILE is `{other}`; it can be `release` or `dev`"),
        }
    }
}

/// The programs of one version of the product.
#[derive(Debug, Clone)]
pub struct Product {
    pub version: String,
    /// Root of the sources, which also contains the manifests.
    pub source: PathBuf,
    /// Path of `cinder-csi-driver`.
    pub driver: PathBuf,
    /// Path of `cinder-csi-operator`.
    pub operator: PathBuf,
    /// Path of `kubectl-cinder_csi`.
    pub plugin: PathBuf,
}

impl Product {
    /// Builds the programs unless they are up to date, with cargo's progress on standard error. `CINDER_CSI_DRIVER`,
    /// `CINDER_CSI_OPERATOR` and `KUBECTL_CINDER_CSI` name other programs.
    pub async fn build(profile: Profile, progress: &Progress) -> Result<Self> {
        let names = [DRIVER, OPERATOR, PLUGIN];
        let built = match profile {
            Profile::Dev => programs::development(&names, progress).await?,
            Profile::Release => programs::release(&names, progress).await?,
        };
        let [driver, operator, plugin] = built
            .try_into()
            .map_err(|_| anyhow!("cargo built other programs than asked for"))?;
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            source: workspace_root(),
            driver,
            operator,
            plugin,
        })
    }

    /// Returns the path of the program with this name.
    pub(crate) fn program(&self, name: &str) -> Option<&Path> {
        match name {
            DRIVER => Some(&self.driver),
            OPERATOR => Some(&self.operator),
            PLUGIN => Some(&self.plugin),
            _ => None,
        }
    }

    /// Packs the product's images and returns the archives.
    pub async fn pack_images(&self) -> Result<Vec<PathBuf>> {
        let mut archives = Vec::new();
        for image in images::product(self).await? {
            archives.push(image.pack(&cache_directory().join("images")).await?);
        }
        Ok(archives)
    }
}

fn default_manifests(source: &Path) -> Result<String> {
    let path = source.join("config/default");
    Ok(path
        .to_str()
        .context("the path of the workspace is not UTF-8")?
        .to_owned())
}

impl Cluster {
    /// Builds the product, imports its images and the sidecars' on every node, applies `config/default`, and waits
    /// until the operator runs.
    pub async fn install_product(&self) -> Result<Product> {
        let product = Product::build(Profile::from_environment()?, self.progress()).await?;
        self.load_images(&product).await?;
        self.install_manifests().await?;
        Ok(product)
    }

    /// Applies `config/default` and waits until the operator runs.
    pub async fn install_manifests(&self) -> Result<()> {
        self.install_manifests_of(&workspace_root()).await
    }

    /// Like [`Cluster::install_manifests`], with other sources of the product.
    pub async fn install_manifests_of(&self, source: &Path) -> Result<()> {
        self.progress().say("installing config/default");
        self.kubectl(&[
            "apply",
            "--server-side",
            "--force-conflicts",
            "-k",
            &default_manifests(source)?,
        ])
        .await?;
        wait_for("the operator's Deployment", OPERATOR_TIMEOUT, async || {
            let words = [
                "wait",
                "-n",
                "cinder-csi",
                "--for=condition=Available",
                "--timeout=5s",
                "deployment",
                "--all",
            ];
            self.kubectl_within(Duration::from_secs(10), &words).await
        })
        .await?;
        Ok(())
    }

    /// Deletes the objects of `config/default`.
    pub async fn remove_manifests(&self) -> Result<()> {
        let words = ["delete", "-k", &default_manifests(&workspace_root())?, "--timeout=60s"];
        self.kubectl_within(REMOVAL_TIMEOUT, &words).await.map(drop)
    }

    /// Packs the images of the product and of its sidecars, and imports them on every node.
    pub async fn load_images(&self, product: &Product) -> Result<()> {
        self.progress().say("packing and importing images");
        for image in &images::product(product).await? {
            self.import(image).await?;
        }
        self.load_sidecar_images().await
    }

    /// Packs only the images of the product's sidecars, and imports them on every node.
    pub async fn load_sidecar_images(&self) -> Result<()> {
        for image in &images::sidecars(self.tools(), self.kubernetes_version().await?)? {
            self.import(image).await?;
        }
        Ok(())
    }

    /// Waits for the controller of an earlier operator, and imports the current sidecars under the image names that it
    /// uses. The earlier version may use other releases.
    pub async fn load_sidecars_of_controller(&self, namespace: &str) -> Result<()> {
        let kubernetes = self.kubernetes_version().await?;
        let column = "jsonpath={.items[*].spec.template.spec.containers[*].image}";
        let named = wait_for("the controller with its sidecars", OPERATOR_TIMEOUT, async || {
            let names = self
                .kubectl(&["get", "deployments", "-n", namespace, "-o", column])
                .await?;
            let mut sidecars = Vec::new();
            for name in names.split_whitespace() {
                sidecars.extend(images::sidecar_under_name(self.tools(), kubernetes, name)?);
            }
            ensure!(!sidecars.is_empty(), "the Deployments have {names}");
            Ok(sidecars)
        })
        .await?;
        let present = images::sidecars(self.tools(), kubernetes)?;
        let others = named
            .iter()
            .filter(|image| present.iter().all(|known| known.name != image.name));
        for image in others {
            self.import(image).await?;
        }
        Ok(())
    }

    /// Returns the version that the API server reports.
    pub async fn kubernetes_version(&self) -> Result<KubernetesVersion> {
        let answer = self.kubectl(&["get", "--raw", "/version"]).await?;
        let version: serde_json::Value = serde_json::from_str(&answer).context("/version is not JSON")?;
        let part = |name: &str| version[name].as_str().unwrap_or_default().to_owned();
        KubernetesVersion::parse(&part("major"), &part("minor"))
            .with_context(|| format!("the API server reports no version: {answer}"))
    }
}
