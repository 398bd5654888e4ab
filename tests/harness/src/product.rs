//! The programs of this repository, built and installed.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{Cluster, Command, Progress, images, wait_for, workspace_root};

/// A cold release build takes about 4 minutes on two cores.
const BUILD_TIMEOUT: Duration = Duration::from_mins(40);
const OPERATOR_TIMEOUT: Duration = Duration::from_secs(60);

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

/// The product's programs.
#[derive(Debug, Clone)]
pub struct Product {
    /// `cinder-csi-driver`.
    pub driver: PathBuf,
    /// `cinder-csi-operator`.
    pub operator: PathBuf,
}

impl Product {
    /// Builds both, with cargo's progress on standard error.
    pub async fn build(profile: Profile, progress: &Progress) -> Result<Self> {
        let mut cargo = cargo().args(["build", "-p", "cinder-csi-driver", "-p", "cinder-csi-operator"]);
        let mut output = target_directory();
        match profile {
            Profile::Dev => {
                progress.say("building the driver and the operator (development build)");
                output.push("debug");
            }
            Profile::Release => {
                progress.say("building the driver and the operator (release build: minutes when cold)");
                cargo = cargo.arg("--release");
                let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
                if static_target_installed(&target).await {
                    // Only C code of dependencies needs this compiler; as the linker it would make a program that does
                    // not start.
                    cargo = cargo.args(["--target", &target]);
                    cargo = cargo.env(format!("CC_{}", target.replace('-', "_")), "musl-gcc");
                    output.push(&target);
                } else {
                    progress.say(format!(
                        "the Rust target {target} is not installed: the binaries will not be static"
                    ));
                }
                output.push("release");
            }
        }
        cargo.run_visibly().await.context("the product does not build")?;
        Ok(Self {
            driver: output.join("cinder-csi-driver"),
            operator: output.join("cinder-csi-operator"),
        })
    }
}

/// The simulator's program: `OPENSTACK_SIM`, or built by cargo.
pub(crate) async fn simulator_program() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("OPENSTACK_SIM") {
        return Ok(path.into());
    }
    cargo()
        .args(["build", "-p", "openstack-sim"])
        .run_visibly()
        .await
        .context("the simulator does not build")?;
    Ok(target_directory().join("debug/openstack-sim"))
}

fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    Command::new(program).directory(workspace_root()).timeout(BUILD_TIMEOUT)
}

fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace_root().join("target"), PathBuf::from)
}

async fn static_target_installed(target: &str) -> bool {
    let libraries = Command::new("rustc").args(["--print", "target-libdir", "--target", target]);
    match libraries.directory(workspace_root()).output().await {
        Ok(path) => tokio::fs::try_exists(path.trim()).await.unwrap_or(false),
        Err(_) => false,
    }
}

impl Cluster {
    /// Builds the product, makes its images and the sidecars' known on every node, applies `config/default` and waits
    /// until the operator runs.
    pub async fn install_product(&self) -> Result<()> {
        let product = Product::build(Profile::from_environment()?, self.progress()).await?;
        self.load_images(&product).await?;
        self.progress().say("installing config/default");
        let manifests = workspace_root().join("config/default");
        let manifests = manifests.to_str().context("the path of the workspace is not UTF-8")?;
        self.kubectl(&["apply", "--server-side", "-k", manifests]).await?;
        wait_for("the operator's Deployment", OPERATOR_TIMEOUT, async || {
            let limit = Duration::from_secs(10);
            self.kubectl_within(
                limit,
                &[
                    "-n",
                    "cinder-csi",
                    "wait",
                    "--for=condition=Available",
                    "--timeout=5s",
                    "deployment",
                    "--all",
                ],
            )
            .await
        })
        .await?;
        Ok(())
    }

    /// Packs the images of the product and of its sidecars and imports them on every node.
    pub async fn load_images(&self, product: &Product) -> Result<()> {
        self.progress().say("packing and importing images");
        let mut all = images::product(product).await?;
        all.extend(images::sidecars(self.tools())?);
        for image in &all {
            self.import(image).await?;
        }
        Ok(())
    }
}
