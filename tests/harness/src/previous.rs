// SPDX-License-Identifier: Apache-2.0
//! The version before this one, built from the commit that it was.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::run::cache_directory;
use crate::{Command, Product, Progress, workspace_root};

/// A version that was.
struct Past {
    commit: &'static str,
    version: &'static str,
}

/// The version before this one: the first commit whose API is `v1beta1`. The workspace has a later version than this.
const PREVIOUS: Past = Past {
    commit: "357c86fe79a64d376d9effe74fc85cf2063637e1",
    version: "0.2.0",
};
/// The last commit whose API was `v1alpha1`.
const LAST_ALPHA: Past = Past {
    commit: "70c2654a4802de3f11318d5df6e368a45cf7687c",
    version: "0.2.0",
};
const PROGRAMS: [&str; 2] = ["cinder-csi-driver", "cinder-csi-operator"];

/// A cold build takes 4 minutes on two idle cores.
const BUILD_TIMEOUT: Duration = Duration::from_mins(40);

impl Product {
    /// The version before this one. It is built once, without debugging information, and kept in the cache directory; the commit
    /// comes from the history of the repository that this is run in.
    pub async fn previous(progress: &Progress) -> Result<Self> {
        Self::past(&PREVIOUS, progress).await
    }

    /// The last version with the API `v1alpha1`, in the same way.
    pub async fn last_alpha(progress: &Progress) -> Result<Self> {
        Self::past(&LAST_ALPHA, progress).await
    }

    async fn past(past: &Past, progress: &Progress) -> Result<Self> {
        let (kept, source, _lock) = kept(past).await?;
        let built = kept.join("programs");
        if !built.exists() {
            let Past { commit, version } = past;
            progress.say(format!("building version {version} of {commit} (minutes when cold)"));
            build(&source, &kept.join("target"), &built).await?;
        }
        Ok(Self {
            version: past.version.to_owned(),
            driver: built.join(PROGRAMS[0]),
            operator: built.join(PROGRAMS[1]),
            source,
        })
    }
}

/// The sources of the version before this one, for what needs its manifests alone.
pub async fn previous_source() -> Result<PathBuf> {
    kept(&PREVIOUS).await.map(|(_, source, _)| source)
}

/// Where what belongs to that version is kept, its sources there, and the lock of both.
async fn kept(past: &Past) -> Result<(PathBuf, PathBuf, fs::File)> {
    let kept = cache_directory().join("previous").join(&past.commit[..8]);
    fs::create_dir_all(&kept).with_context(|| format!("cannot make {}", kept.display()))?;
    // Others may want the same at this moment; the lock goes with the program that holds it.
    let lock = fs::File::create(kept.join("lock")).context("cannot make a lock")?;
    let lock = tokio::task::spawn_blocking(move || {
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).map(|()| lock)
    });
    let lock = lock.await.context("the wait for the lock was cancelled")?;
    let lock = lock.context("cannot lock")?;
    let source = kept.join("source");
    if !source.exists() {
        check_out(past.commit, &source).await?;
    }
    Ok((kept, source, lock))
}

/// Writes the files of the commit, all or nothing.
async fn check_out(commit: &str, source: &Path) -> Result<()> {
    let script = "rm -rf \"$1.new\"; mkdir \"$1.new\"; git archive \"$2\" | tar -x -C \"$1.new\"; mv \"$1.new\" \"$1\"";
    Command::new("bash")
        .args(["-euo", "pipefail", "-c", script, "check-out"])
        .arg(source)
        .arg(commit)
        .directory(workspace_root())
        .output()
        .await
        .map(drop)
        .with_context(|| {
            format!("cannot read commit {commit}, an earlier version: the whole history of the repository is needed (git fetch --unshallow)")
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
    // All or nothing: what is there under its last name is whole.
    let whole =
        tempfile::tempdir_in(built.parent().context("no place for programs")?).context("cannot make a directory")?;
    for name in PROGRAMS {
        let program = target.join("debug").join(name);
        ensure!(program.exists(), "cargo did not build {}", program.display());
        fs::copy(&program, whole.path().join(name)).with_context(|| format!("cannot copy {}", program.display()))?;
    }
    fs::rename(whole.keep(), built).with_context(|| format!("cannot name {}", built.display()))?;
    // Hundreds of megabytes that nobody needs again.
    fs::remove_dir_all(target).context("cannot clear up after cargo")
}
