//! `kubectl cinder-csi`: the operator's program as a plugin of kubectl.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use harness::{Command, Product, Profile};
use serde_json::Value;

use crate::world::{DRIVER, World};

/// kubectl with the plugin on its path.
struct Plugin {
    directory: tempfile::TempDir,
    path: String,
}

impl Plugin {
    async fn install(world: &World) -> Result<Self> {
        let product = Product::build(Profile::from_environment()?, world.cluster.progress()).await?;
        let directory = tempfile::tempdir().context("cannot make a directory")?;
        std::os::unix::fs::symlink(&product.operator, directory.path().join("kubectl-cinder_csi"))
            .context("cannot link the plugin")?;
        let path = format!(
            "{}:{}",
            directory.path().display(),
            std::env::var("PATH").unwrap_or_default()
        );
        Ok(Self { directory, path })
    }

    fn kubectl(&self, world: &World, words: &[&str]) -> Result<Command> {
        let kubectl = world.cluster.tools().path("kubectl")?.display().to_string();
        Ok(world
            .cluster
            .command_in_network(&kubectl)?
            .env("PATH", &self.path)
            .arg("cinder-csi")
            .args(words))
    }
}

pub(crate) async fn kubectl_shows_a_driver_on_one_screen_and_to_programs(world: &World) -> Result<()> {
    world.healthy().await?;
    let plugin = Plugin::install(world).await?;

    let screen = plugin.kubectl(world, &["status"])?.output().await?;
    let objects = plugin
        .kubectl(world, &["status", DRIVER, "-o", "json"])?
        .output()
        .await?;

    for part in [
        DRIVER,
        "Available=True (AsExpected)",
        "LOGS IN",
        "default",
        "PersistentVolumes",
    ] {
        ensure!(screen.contains(part), "no {part} in\n{screen}");
    }
    let objects: Value = serde_json::from_str(&objects).context("is no JSON")?;
    ensure!(objects[0]["metadata"]["name"] == DRIVER, "{objects}");
    let refused = plugin.kubectl(world, &["status", "other.example.org"])?.output().await;
    let error = format!("{:#}", refused.err().context("a driver that does not exist was shown")?);
    ensure!(error.contains("other.example.org"), "{error}");
    Ok(())
}

pub(crate) async fn a_support_bundle_has_what_helps_and_no_secret(world: &World) -> Result<()> {
    let plugin = Plugin::install(world).await?;
    let place = plugin.directory.path().join("bundle");
    let place_text = place.display().to_string();

    let told = plugin
        .kubectl(world, &["support-bundle", "--output", &place_text])?
        .output()
        .await?;

    ensure!(told.contains(&place_text), "{told}");
    let mut files = Vec::new();
    collect(&place, &mut files)?;
    let has = |part: &str| files.iter().any(|(name, _)| name.contains(part));
    for part in [
        "cindercsidrivers.json",
        "operands-secrets.json",
        "operands-daemonsets.json",
        "cinder-csi-driver.current.log",
    ] {
        ensure!(
            has(part),
            "no {part} among {:?}",
            files.iter().map(|(name, _)| name).collect::<Vec<_>>()
        );
    }
    let access = world.cluster.simulator()?.access();
    for (name, content) in &files {
        ensure!(
            !content.contains(access.application_credential_secret.as_str()),
            "{name} holds the secret of the application credential"
        );
    }
    // A second one does not mix with the first.
    let again = plugin
        .kubectl(world, &["support-bundle", "--output", &place_text])?
        .output()
        .await;
    ensure!(again.is_err(), "a bundle was written into another one");
    Ok(())
}

fn collect(directory: &Path, files: &mut Vec<(String, String)>) -> Result<()> {
    for entry in std::fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            let content = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            files.push((
                path.display().to_string(),
                String::from_utf8_lossy(&content).into_owned(),
            ));
        }
    }
    Ok(())
}
