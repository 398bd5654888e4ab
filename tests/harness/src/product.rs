//! The programs of this repository, built and installed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::run::cache_directory;
use crate::{Cluster, Command, Progress, images, wait_for, workspace_root};

/// A cold release build takes about 4 minutes on two cores.
const BUILD_TIMEOUT: Duration = Duration::from_mins(40);
const OPERATOR_TIMEOUT: Duration = Duration::from_mins(1);
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
        let built = Self {
            driver: output.join("cinder-csi-driver"),
            operator: output.join("cinder-csi-operator"),
        };
        if profile == Profile::Release {
            Ok(built)
        } else {
            built.stripped(&output).await
        }
    }

    /// Copies without symbols: a development build is ten times as large with them.
    async fn stripped(&self, output: &Path) -> Result<Self> {
        let directory = output.join("stripped");
        tokio::fs::create_dir_all(&directory)
            .await
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let strip = async |program: &Path| -> Result<PathBuf> {
            let copy = directory.join(program.file_name().context("a program without a name")?);
            let modified = |path: &Path| std::fs::metadata(path).and_then(|data| data.modified()).ok();
            if modified(&copy) < modified(program) {
                Command::new("strip").arg("-o").arg(&copy).arg(program).output().await?;
            }
            Ok(copy)
        };
        Ok(Self {
            driver: strip(&self.driver).await?,
            operator: strip(&self.operator).await?,
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

fn default_manifests() -> Result<String> {
    let path = workspace_root().join("config/default");
    Ok(path
        .to_str()
        .context("the path of the workspace is not UTF-8")?
        .to_owned())
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
        self.install_manifests().await
    }

    /// Applies `config/default` and waits until the operator runs.
    pub async fn install_manifests(&self) -> Result<()> {
        self.progress().say("installing config/default");
        self.kubectl(&["apply", "-k", &default_manifests()?]).await?;
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
        let words = ["delete", "-k", &default_manifests()?, "--timeout=60s"];
        self.kubectl_within(REMOVAL_TIMEOUT, &words).await.map(drop)
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
