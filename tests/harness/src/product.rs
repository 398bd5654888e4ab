// SPDX-License-Identifier: Apache-2.0
//! The programs of this repository, built and installed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use cinder_operator_core::cluster::KubernetesVersion;

use crate::run::cache_directory;
use crate::{Cluster, Progress, images, programs, wait_for, workspace_root};

const OPERATOR_TIMEOUT: Duration = Duration::from_mins(3);
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(90);

/// How the product's programs are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// As released: optimised, static where the target for that is installed.
    Release,
    /// Quickly, with the shared libraries that they need in the image.
    Dev,
}

impl Profile {
    /// `HARNESS_PROFILE`: `release` (when it is not set) or `dev`.
    pub fn from_environment() -> Result<Self> {
        match std::env::var("HARNESS_PROFILE").as_deref() {
            Err(_) | Ok("" | "release") => Ok(Self::Release),
            Ok("dev") => Ok(Self::Dev),
            Ok(other) => bail!("HARNESS_PROFILE is `{other}`; it can be `release` or `dev`"),
        }
    }
}

/// The product's programs, of one version.
#[derive(Debug, Clone)]
pub struct Product {
    /// Their version.
    pub version: String,
    /// The root of the sources that they and their manifests are from.
    pub source: PathBuf,
    /// `cinder-csi-driver`.
    pub driver: PathBuf,
    /// `cinder-csi-operator`.
    pub operator: PathBuf,
}

impl Product {
    /// Builds both unless they are up to date, with cargo's progress on standard error. `CINDER_CSI_DRIVER` and
    /// `CINDER_CSI_OPERATOR` name programs to be used instead.
    pub async fn build(profile: Profile, progress: &Progress) -> Result<Self> {
        let names = ["cinder-csi-driver", "cinder-csi-operator"];
        let built = match profile {
            Profile::Dev => programs::development(&names, progress).await?,
            Profile::Release => programs::release(&names, progress).await?,
        };
        let [driver, operator] = built
            .try_into()
            .map_err(|_| anyhow!("cargo built other programs than asked for"))?;
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            source: workspace_root(),
            driver,
            operator,
        })
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
    /// Builds the product, makes its images and the sidecars' known on every node, applies `config/default` and waits
    /// until the operator runs. Returns what was installed.
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

    /// The same from other sources of the product.
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

    /// Deletes what `config/default` installed.
    pub async fn remove_manifests(&self) -> Result<()> {
        let words = ["delete", "-k", &default_manifests(&workspace_root())?, "--timeout=60s"];
        self.kubectl_within(REMOVAL_TIMEOUT, &words).await.map(drop)
    }

    /// Packs the images of the product and of its sidecars and imports them on every node.
    pub async fn load_images(&self, product: &Product) -> Result<()> {
        self.progress().say("packing and importing images");
        for image in &images::product(product).await? {
            self.import(image).await?;
        }
        self.load_sidecar_images().await
    }

    /// Packs the images of the product's sidecars alone and imports them on every node.
    pub async fn load_sidecar_images(&self) -> Result<()> {
        for image in &images::sidecars(self.tools(), self.kubernetes_version().await?)? {
            self.import(image).await?;
        }
        Ok(())
    }

    /// Waits for the controller of an earlier version of the operator, and imports the present sidecars under the names that it has
    /// there: the table of that version may name other releases.
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

    /// The version that the API server reports.
    pub async fn kubernetes_version(&self) -> Result<KubernetesVersion> {
        let answer = self.kubectl(&["get", "--raw", "/version"]).await?;
        let version: serde_json::Value = serde_json::from_str(&answer).context("/version is not JSON")?;
        let part = |name: &str| version[name].as_str().unwrap_or_default().to_owned();
        KubernetesVersion::parse(&part("major"), &part("minor"))
            .with_context(|| format!("the API server reports no version: {answer}"))
    }
}
