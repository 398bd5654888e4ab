// SPDX-License-Identifier: Apache-2.0
//! Finds and builds the programs under test and their peers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context as _, Result, bail};
use harness::{is_fresh, is_of_another_cargo, workspace_root};
use parking_lot::Mutex;

/// Programs that were built or found up to date. The lock allows one build at a time. Later calls do not check again,
/// so that all tests of a run use the same sources.
static BUILT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Returns the driver: `CINDER_CSI_DRIVER`, or the cargo build.
pub fn driver() -> Result<PathBuf> {
    of_this_workspace("cinder-csi-driver", "CINDER_CSI_DRIVER")
}

/// Returns the operator: `CINDER_CSI_OPERATOR`, or the cargo build.
pub fn operator() -> Result<PathBuf> {
    of_this_workspace("cinder-csi-operator", "CINDER_CSI_OPERATOR")
}

/// Static builds of the product's programs.
#[derive(Debug)]
pub struct StaticPrograms {
    pub driver: PathBuf,
    pub operator: PathBuf,
    pub plugin: PathBuf,
}

/// Returns static builds in the profile of the demo, or `CINDER_CSI_DRIVER`, `CINDER_CSI_OPERATOR` and
/// `KUBECTL_CINDER_CSI`.
pub fn build_static() -> Result<StaticPrograms> {
    let named = ["CINDER_CSI_DRIVER", "CINDER_CSI_OPERATOR", "KUBECTL_CINDER_CSI"].map(env::var_os);
    if let [Some(driver), Some(operator), Some(plugin)] = named {
        return Ok(StaticPrograms {
            driver: driver.into(),
            operator: operator.into(),
            plugin: plugin.into(),
        });
    }
    let target = format!("{}-unknown-linux-musl", env::consts::ARCH);
    let mut build = cargo();
    build
        .args(["build", "--profile", "demo", "--target", &target])
        .args([
            "--package",
            "cinder-csi-driver",
            "--package",
            "cinder-csi-operator",
            "--package",
            "kubectl-cinder_csi",
            "--bins",
        ])
        // Only C code of dependencies needs this compiler.
        .env(format!("CC_{}", target.replace('-', "_")), "musl-gcc");
    let status = build.status().context("cannot run cargo")?;
    if !status.success() {
        bail!("the static programs do not build ({status}); tests/tools/apt adds the target {target}");
    }
    let directory = target_directory()?;
    let root = directory.parent().context("cargo's target directory has no parent")?;
    let directory = root.join(target).join("demo");
    Ok(StaticPrograms {
        driver: directory.join("cinder-csi-driver"),
        operator: directory.join("cinder-csi-operator"),
        plugin: directory.join("kubectl-cinder_csi"),
    })
}

/// Returns the simulator: `OPENSTACK_SIM`, or the cargo build.
pub fn simulator() -> Result<PathBuf> {
    of_this_workspace("openstack-sim", "OPENSTACK_SIM")
}

/// Returns csi-sanity with one corrected comparison: `CSI_SANITY`, or the build of `tests/tools/build`.
pub fn csi_sanity() -> Result<PathBuf> {
    of_module("sanity", "csi-sanity")
}

/// Returns csi-sanity as published: `CSI_SANITY_PUBLISHED`, or the build of `tests/tools/build`.
pub fn csi_sanity_published() -> Result<PathBuf> {
    of_module("sanity", "csi-sanity-published")
}

/// Returns the Go driver: `CINDER_CSI_PLUGIN`, or the build of `tests/tools/build`.
pub fn go_driver() -> Result<PathBuf> {
    of_module("sanity", "cinder-csi-plugin")
}

/// Returns kubectl: `KUBECTL`, or the build of `tests/tools/build`.
pub fn kubectl() -> Result<PathBuf> {
    of_module("kubernetes", "kubectl")
}

/// Returns helm: `HELM`, or the build of `tests/tools/build`.
pub fn helm() -> Result<PathBuf> {
    of_module("helm", "helm")
}

/// Returns crane, a tool and server for image registries: `CRANE`, or the build of `tests/tools/build`.
pub fn crane() -> Result<PathBuf> {
    of_module("registry", "crane")
}

fn of_this_workspace(package: &str, variable: &str) -> Result<PathBuf> {
    match env::var_os(variable) {
        Some(path) => Ok(path.into()),
        None => build("--bin", package, &target_directory()?.join(package)),
    }
}

/// Returns an example of a crate, from the cargo build.
pub fn example(name: &str) -> Result<PathBuf> {
    build("--example", name, &target_directory()?.join("examples").join(name))
}

/// Builds a target unless it is up to date, and returns `binary`.
fn build(kind: &str, name: &str, binary: &Path) -> Result<PathBuf> {
    let mut known = BUILT.lock();
    if known.contains(name) || is_fresh(binary) {
        known.insert(name.to_owned());
        return Ok(binary.to_owned());
    }
    let mut build = cargo();
    // Builds with the features of the whole workspace, because other features would rebuild the dependencies.
    build.args(["build", "--workspace", kind, name]);
    if target_directory()?.ends_with("release") {
        build.arg("--release");
    }
    let status = build.status().context("cannot run cargo")?;
    if !status.success() {
        bail!("{name} does not build ({status})");
    }
    known.insert(name.to_owned());
    Ok(binary.to_owned())
}

/// Returns a cargo command in this workspace, without the settings of the cargo that runs the tests.
fn cargo() -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut cargo = Command::new(program);
    cargo.current_dir(workspace_root());
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_of_another_cargo) {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Returns the target directory of this program's profile: tests are in `deps`, programs next to it.
fn target_directory() -> Result<PathBuf> {
    let program = env::current_exe().context("cannot tell where this program is")?;
    let directory = program.parent().filter(|directory| !directory.ends_with("deps"));
    directory
        .or_else(|| program.ancestors().nth(2))
        .map(Path::to_owned)
        .context("this program is not in cargo's target directory")
}

/// Installs the distribution packages that the tests need, once per test program.
pub fn install_packages() -> Result<()> {
    static DONE: Mutex<bool> = Mutex::new(false);
    let mut done = DONE.lock();
    if !*done {
        let script = workspace_root().join("tests/tools/apt");
        let status = Command::new(&script)
            .status()
            .with_context(|| format!("cannot run {}", script.display()))?;
        if !status.success() {
            bail!("{} failed ({status})", script.display());
        }
        *done = true;
    }
    Ok(())
}

fn of_module(module: &str, name: &str) -> Result<PathBuf> {
    let output = Command::new(workspace_root().join("tests/tools/build"))
        .arg(module)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot run tests/tools/build")?;
    if !output.status.success() {
        bail!("tests/tools/build {module} failed ({})", output.status);
    }
    let list = String::from_utf8_lossy(&output.stdout).into_owned();
    let path = list.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    path.map(PathBuf::from)
        .with_context(|| format!("tests/tools/build {module} names no program {name}"))
}

/// Builds a program of `tests/tools/contracts`.
pub fn contract_program(name: &str) -> Result<PathBuf> {
    go_program("contracts", name)
}

/// Builds a program from a Go module in `tests/tools`.
pub fn go_program(module: &str, name: &str) -> Result<PathBuf> {
    let directory = target_directory()?.join("contracts");
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let binary = directory.join(name);
    let _one_at_a_time = BUILT.lock();
    let status = Command::new("go")
        .args(["build", "-mod=readonly", "-buildvcs=false", "-o"])
        .arg(&binary)
        .arg(format!("./{name}"))
        .env("CGO_ENABLED", "0")
        .current_dir(workspace_root().join("tests/tools").join(module))
        .status()
        .context("cannot run go: put Go 1.26 on the PATH")?;
    if !status.success() {
        bail!("tests/tools/{module}/{name} does not build ({status})");
    }
    Ok(binary)
}
