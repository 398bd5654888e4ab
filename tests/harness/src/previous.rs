// SPDX-License-Identifier: Apache-2.0
//! Builds an earlier commit of this product, for tests of updates to the current one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::run::cache_directory;
use crate::{Command, Product, Progress, workspace_root};

/// The commit from which the tests update. Move it forward when the API changes.
const COMMIT: &str = "1aebd3cc3f7b6b8aae8b79b6d7a6d8faba36a174";
/// The version of that build. The operator refuses updates to the same or an older version.
const VERSION: &str = "0.0.1";
const PROGRAMS: [&str; 2] = ["cinder-csi-driver", "cinder-csi-operator"];

/// A cold build takes 4 minutes on two idle cores.
const BUILD_TIMEOUT: Duration = Duration::from_mins(40);

impl Product {
    /// Returns the product of the earlier commit. It is built once from the history of this repository, without debug
    /// information, and cached.
    pub async fn previous(progress: &Progress) -> Result<Self> {
        let (kept, source, _lock) = open_cache().await?;
        let built = kept.join("programs");
        if !built.exists() {
            progress.say(format!(
                "building commit {COMMIT} as version {VERSION} (minutes when cold)"
            ));
            build(&source, &kept.join("target"), &built).await?;
        }
        Ok(Self {
            version: VERSION.to_owned(),
            driver: built.join(PROGRAMS[0]),
            operator: built.join(PROGRAMS[1]),
            // In that commit the operator's program is also the plugin.
            plugin: built.join(PROGRAMS[1]),
            source,
        })
    }
}

/// Returns the sources of the earlier commit, for tests that need only its manifests.
pub async fn previous_source() -> Result<PathBuf> {
    open_cache().await.map(|(_, source, _)| source)
}

/// Returns the cache directory of the commit, its sources, and a lock on both.
async fn open_cache() -> Result<(PathBuf, PathBuf, fs::File)> {
    let cache = cache_directory()
        .join("previous")
        .join(format!("{}-{VERSION}", &COMMIT[..8]));
    fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
    // Another process may build the same commit. The kernel releases the lock when the process ends.
    let lock = fs::File::create(cache.join("lock")).context("cannot make a lock")?;
    let lock = tokio::task::spawn_blocking(move || {
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).map(|()| lock)
    });
    let lock = lock.await.context("the wait for the lock was cancelled")?;
    let lock = lock.context("cannot lock")?;
    let source = cache.join("source");
    if !source.exists() {
        check_out(&source).await?;
    }
    Ok((cache, source, lock))
}

/// Writes the files of the commit with [`VERSION`] atomically. `tests/tools/version` needs a repository. It fails at
/// its end because the change log has no section for that version, so its status is ignored.
async fn check_out(source: &Path) -> Result<()> {
    let script = "rm -rf \"$1.new\"; mkdir \"$1.new\"; git archive \"$2\" | tar -x -C \"$1.new\"; cd \"$1.new\"; \
                  git init --quiet; git add --all; tests/tools/version --set \"$3\" >/dev/null || true; rm -rf .git; \
                  grep -q \"^version = \\\"$3\\\"\" Cargo.toml; mv \"$1.new\" \"$1\"";
    Command::new("bash")
        .args(["-euo", "pipefail", "-c", script, "check-out"])
        .arg(source)
        .args([COMMIT, VERSION])
        .directory(workspace_root())
        .output()
        .await
        .map(drop)
        .with_context(|| {
            format!("cannot write the files of commit {COMMIT}: the whole history of the repository is needed (git fetch --unshallow)")
        })
}

async fn build(source: &Path, target: &Path, built: &PathBuf) -> Result<()> {
    let inherited = std::env::vars_os().map(|(name, _)| name);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo)
        .directory(source)
        .without_env(inherited.filter(|name| name.to_str().is_some_and(crate::programs::is_of_another_cargo)))
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_INCREMENTAL", "0")
        .args(["build", "--locked", "--bins"])
        .timeout(BUILD_TIMEOUT);
    for name in PROGRAMS {
        command = command.args(["--package", name]);
    }
    command.run_visibly().await.context("cargo could not build it")?;
    // Renames the complete directory, so that the final name never has partial content.
    let whole =
        tempfile::tempdir_in(built.parent().context("no place for programs")?).context("cannot make a directory")?;
    for name in PROGRAMS {
        let program = target.join("debug").join(name);
        ensure!(program.exists(), "cargo did not build {}", program.display());
        fs::copy(&program, whole.path().join(name)).with_context(|| format!("cannot copy {}", program.display()))?;
    }
    fs::rename(whole.keep(), built).with_context(|| format!("cannot name {}", built.display()))?;
    // Frees hundreds of megabytes of build output.
    fs::remove_dir_all(target).context("cannot clear up after cargo")
}
