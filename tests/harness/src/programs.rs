// SPDX-License-Identifier: Apache-2.0
//! Builds programs of this repository with cargo.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};

use crate::{Command, Progress, workspace_root};

/// A cold release build takes about 4 minutes on two cores.
const BUILD_TIMEOUT: Duration = Duration::from_mins(40);

/// Returns the simulator.
pub(crate) async fn simulator(progress: &Progress) -> Result<PathBuf> {
    let built = development_unstripped(&["openstack-sim"], progress).await?;
    built.into_iter().next().context("cargo built nothing")
}

/// Returns development builds without symbols, which reduces their size to a tenth.
pub(crate) async fn development(names: &[&str], progress: &Progress) -> Result<Vec<PathBuf>> {
    let mut stripped = Vec::new();
    for program in development_unstripped(names, progress).await? {
        stripped.push(strip(&program).await?);
    }
    Ok(stripped)
}

async fn development_unstripped(names: &[&str], progress: &Progress) -> Result<Vec<PathBuf>> {
    let output = target_directory().join("debug");
    let missing = |name: &&&str| named_in_environment(name).is_none() && !is_fresh(&output.join(name));
    let missing: Vec<_> = names.iter().filter(missing).copied().collect();
    if !missing.is_empty() {
        progress.say(format!("building {} (development build)", missing.join(" and ")));
        // Builds with the features of the whole workspace, because other features would rebuild the dependencies.
        let cargo = cargo().args(["build", "--workspace"]);
        let cargo = missing.iter().fold(cargo, |cargo, name| cargo.args(["--bin", name]));
        cargo.run_visibly().await.context("cargo could not build them")?;
    }
    Ok(names
        .iter()
        .map(|name| named_in_environment(name).unwrap_or_else(|| output.join(name)))
        .collect())
}

/// Returns the release build of the driver, static if the Rust target is installed. Builds it unless
/// `CINDER_CSI_DRIVER` names a program.
pub async fn release_driver(progress: &Progress) -> Result<PathBuf> {
    let built = release(&["cinder-csi-driver"], progress).await?;
    built.into_iter().next().context("cargo built nothing")
}

/// Like [`release_driver`], for the operator and `CINDER_CSI_OPERATOR`.
pub async fn release_operator(progress: &Progress) -> Result<PathBuf> {
    let built = release(&["cinder-csi-operator"], progress).await?;
    built.into_iter().next().context("cargo built nothing")
}

/// Returns release builds, static if the Rust target is installed.
pub(crate) async fn release(names: &[&str], progress: &Progress) -> Result<Vec<PathBuf>> {
    let missing: Vec<_> = names
        .iter()
        .filter(|name| named_in_environment(name).is_none())
        .copied()
        .collect();
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let mut output = target_directory();
    if !missing.is_empty() {
        progress.say(format!(
            "building {} (release build: minutes when cold)",
            missing.join(" and ")
        ));
        let mut cargo = cargo().args(["build", "--release"]);
        if static_target_installed(&target).await {
            // Only C code of dependencies needs this compiler. As the linker, it would create a program that does not
            // start.
            let compiler = format!("CC_{}", target.replace('-', "_"));
            cargo = cargo.args(["--target", &target]).env(compiler, "musl-gcc");
            output.push(&target);
        } else {
            progress.say(format!(
                "the Rust target {target} is not installed: the programs will not be static"
            ));
        }
        let cargo = missing
            .iter()
            .fold(cargo, |cargo, name| cargo.args(["--package", name]));
        cargo.run_visibly().await.context("cargo could not build them")?;
    }
    output.push("release");
    Ok(names
        .iter()
        .map(|name| named_in_environment(name).unwrap_or_else(|| output.join(name)))
        .collect())
}

/// Returns a program from the environment: `CINDER_CSI_DRIVER=/path` for `cinder-csi-driver`.
fn named_in_environment(name: &str) -> Option<PathBuf> {
    std::env::var_os(name.to_uppercase().replace('-', "_")).map(PathBuf::from)
}

/// Whether a program is newer than all its sources, according to cargo's dependency file. Running cargo would rebuild
/// programs that were built with other features of their dependencies.
pub fn is_fresh(program: &Path) -> bool {
    let modified = |path: &Path| -> Option<SystemTime> { fs::metadata(path).ok()?.modified().ok() };
    let Some(built) = modified(program) else { return false };
    let Ok(list) = fs::read_to_string(program.with_extension("d")) else {
        return false;
    };
    let Some((_, sources)) = list.split_once(": ") else {
        return false;
    };
    let mut sources = sources.split_whitespace().map(Path::new);
    sources.all(|source| modified(source).is_some_and(|changed| changed <= built))
}

async fn strip(program: &Path) -> Result<PathBuf> {
    let name = program.file_name().context("a program without a name")?;
    let directory = target_directory().join("debug/stripped");
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let copy = directory.join(name);
    let modified = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    if modified(&copy) < modified(program) {
        // Another test may strip the same program concurrently.
        let whole = tempfile::NamedTempFile::new_in(&directory).context("cannot make a temporary file")?;
        Command::new("strip")
            .arg("-o")
            .arg(whole.path())
            .arg(program)
            .output()
            .await?;
        fs::set_permissions(whole.path(), fs::Permissions::from_mode(0o755)).context("cannot make it executable")?;
        whole
            .persist(&copy)
            .with_context(|| format!("cannot name {}", copy.display()))?;
    }
    Ok(copy)
}

fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let inherited = std::env::vars_os().map(|(name, _)| name);
    Command::new(program)
        .directory(workspace_root())
        .without_env(inherited.filter(|name| name.to_str().is_some_and(is_of_another_cargo)))
        .timeout(BUILD_TIMEOUT)
}

/// Whether the parent process (cargo or `tests/run`) set this variable for this program. Build scripts of dependencies
/// watch some of these variables, so inheriting them would invalidate builds from a shell.
pub fn is_of_another_cargo(name: &str) -> bool {
    let prefixes = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];
    let names = [
        "CARGO_CRATE_NAME",
        "CARGO_PRIMARY_PACKAGE",
        "CARGO_TARGET_TMPDIR",
        "OUT_DIR",
        "RUSTC_BOOTSTRAP",
    ];
    prefixes.iter().any(|prefix| name.starts_with(prefix)) || names.contains(&name)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_inherits_only_cargo_settings() {
        let settings = [
            "CARGO_HOME",
            "CARGO_TARGET_DIR",
            "CARGO_BUILD_JOBS",
            "CARGO_NET_OFFLINE",
            "PATH",
        ];
        let dropped = [
            "CARGO_PKG_NAME",
            "CARGO_MANIFEST_DIR",
            "CARGO_BIN_EXE_harness",
            "CARGO_PRIMARY_PACKAGE",
        ];
        assert!(!settings.into_iter().any(is_of_another_cargo));
        assert!(dropped.into_iter().all(is_of_another_cargo));
    }

    #[test]
    fn program_is_fresh_until_source_changes() {
        let directory = tempfile::tempdir().unwrap();
        let (source, program) = (directory.path().join("main.rs"), directory.path().join("program"));
        assert!(!is_fresh(&program));
        fs::write(&source, "").unwrap();
        fs::write(&program, "").unwrap();
        fs::write(
            program.with_extension("d"),
            format!("{}: {}", program.display(), source.display()),
        )
        .unwrap();
        assert!(is_fresh(&program));
        let later = SystemTime::now() + Duration::from_secs(10);
        fs::File::options()
            .append(true)
            .open(&source)
            .unwrap()
            .set_modified(later)
            .unwrap();
        assert!(!is_fresh(&program));
    }
}
