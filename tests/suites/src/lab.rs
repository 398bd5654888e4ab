// SPDX-License-Identifier: Apache-2.0
//! Namespaces for a test.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::File;
use std::future::Future;
use std::os::fd::AsFd as _;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use futures::FutureExt as _;
use harness::wait_for_some;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tempfile::TempDir;
use tokio::process::Command;

use crate::process::Process;
use crate::programs;

/// Address of Nova's metadata service in every instance.
pub const METADATA_ADDRESS: &str = "169.254.169.254";
/// Directory in which udev creates links to disks, and in which the driver finds its devices.
pub const BY_ID: &str = "/dev/disk/by-id";
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Long, because a script may read or write a volume on a slow disk.
const SHELL_TIMEOUT: Duration = Duration::from_mins(2);
/// Sets up the namespaces, then keeps them alive.
const KEEPER: &str = r#"
set -e
ip link set lo up
ip address add "$METADATA_ADDRESS/32" dev lo
mkdir -p /dev/disk
mount -t tmpfs -o mode=755 tmpfs /dev/disk
mkdir "$BY_ID"
touch "$READY"
exec sleep infinity
"#;

/// Network and mount namespaces with the metadata address on their loopback device and an empty `/dev/disk/by-id`, and
/// a directory for files of the test. They are removed when the test ends, even if it is killed.
#[derive(Debug)]
pub struct Lab {
    directory: TempDir,
    keeper: Process,
    keeps_logs: Cell<bool>,
}

/// Runs a test in its own lab, on a thread in the lab's network. Programs and connections of the test are also in that
/// network. Fails if resources remain. Panics with the whole error chain; the logs of a failed test are retained.
pub fn in_lab<Test, Fut>(test: Test)
where
    Test: FnOnce(Rc<Lab>) -> Fut + Send,
    Fut: Future<Output = Result<()>>,
{
    if let Err(error) = run_in_lab(test) {
        panic_with(&error);
    }
}

/// Like [`in_lab`], for callers outside of libtest: returns the error.
pub fn run_in_lab<Test, Fut>(test: Test) -> Result<()>
where
    Test: FnOnce(Rc<Lab>) -> Fut + Send,
    Fut: Future<Output = Result<()>>,
{
    let in_thread = || -> Result<()> {
        programs::install_packages()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot make a runtime")?;
        runtime.block_on(run(test))
    };
    let joined = thread::scope(|scope| scope.spawn(in_thread).join());
    joined.unwrap_or_else(|panic| resume_unwind(panic))
}

async fn run<Test, Fut>(test: Test) -> Result<()>
where
    Test: FnOnce(Rc<Lab>) -> Fut,
    Fut: Future<Output = Result<()>>,
{
    let lab = Rc::new(Lab::start().await?);
    lab.enter_network()?;
    let outcome = AssertUnwindSafe(test(lab.clone())).catch_unwind().await;
    // The test and its background tasks have ended, so this is the last reference.
    let lab = Rc::try_unwrap(lab).map_err(|_shared| anyhow!("the test kept its lab"))?;
    let passed = matches!(outcome, Ok(Ok(())));
    let cleanup = lab.finish(!passed).await;
    match outcome {
        Ok(result) => result.and(cleanup),
        Err(panic) => resume_unwind(panic),
    }
}

#[expect(clippy::panic, reason = "it is how a test fails")]
fn panic_with(error: &anyhow::Error) {
    panic!("{error:?}");
}

impl Lab {
    async fn start() -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("cinder-csi-")
            .tempdir()
            .context("cannot make a directory")?;
        let ready = directory.path().join("lab-ready");
        let mut command = Command::new("setpriv");
        command
            .args([
                "--pdeathsig",
                "KILL",
                "unshare",
                "--net",
                "--mount",
                "--propagation",
                "private",
            ])
            .args(["sh", "-c", KEEPER])
            .env("METADATA_ADDRESS", METADATA_ADDRESS)
            .env("BY_ID", BY_ID)
            .env("READY", &ready);
        let mut keeper = Process::spawn("unshare", command, &directory.path().join("lab.log"))?;
        wait_for_some("the namespaces (they need root)", START_TIMEOUT, async || {
            keeper.check()?;
            Ok(ready.exists().then_some(()))
        })
        .await?;
        Ok(Self {
            directory,
            keeper,
            keeps_logs: Cell::new(false),
        })
    }

    fn enter_network(&self) -> Result<()> {
        let path = format!("/proc/{}/ns/net", self.keeper.pid()?.as_raw_nonzero());
        let namespace = File::open(&path).with_context(|| format!("cannot open {path}"))?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .with_context(|| format!("cannot enter {path}: run as root"))
    }

    /// Retains the logs even if the test does not fail.
    pub fn keep_logs(&self) {
        self.keeps_logs.set(true);
    }

    /// Returns a path in the test's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns a command in the lab's mount namespace. The program is killed when the test's thread ends.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Result<Command> {
        self.command_ended_by("KILL", program)
    }

    /// Like [`Lab::command`], with another signal at the end of the test's thread.
    pub fn command_ended_by(&self, signal: &str, program: impl AsRef<OsStr>) -> Result<Command> {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--target={}", self.keeper.pid()?.as_raw_nonzero()))
            .args(["--mount", "--", "setpriv", "--pdeathsig", signal, "--"])
            .arg(program)
            .env_remove("RUST_LOG");
        Ok(command)
    }

    /// Runs a shell script in the lab and returns its output.
    pub async fn shell(&self, script: &str) -> Result<String> {
        let mut command = self.command("sh")?;
        let output = tokio::time::timeout(SHELL_TIMEOUT, command.args(["-ec", script]).output())
            .await
            .with_context(|| format!("`{script}` takes longer than {SHELL_TIMEOUT:?}"))?
            .with_context(|| format!("cannot run `{script}`"))?;
        if !output.status.success() {
            bail!(
                "`{script}` failed ({}): {}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns loop devices of files in the test's directory.
    pub async fn loop_devices(&self) -> Result<Vec<String>> {
        loop_devices(self.directory.path()).await
    }

    /// Returns mount points in the test's directory in the lab.
    pub async fn mounts(&self) -> Result<Vec<String>> {
        let table = self.shell("cat /proc/self/mountinfo").await?;
        let directory = self.directory.path().display().to_string();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4));
        Ok(points
            .filter(|point| point.starts_with(&directory))
            .map(str::to_owned)
            .collect())
    }

    /// Returns the mounts in the test's directory in the lab: mount point, root, options, type and options of the file
    /// system. Omits device numbers and the numbers of loop devices.
    pub fn mount_table(&self) -> Result<Vec<String>> {
        let path = format!("/proc/{}/mountinfo", self.keeper.pid()?.as_raw_nonzero());
        let table = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let directory = self.directory.path().display().to_string();
        let mut lines = Vec::new();
        for line in table.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let (Some(&[root, point, options]), Some(end)) =
                (fields.get(3..6), fields.iter().position(|field| *field == "-"))
            else {
                bail!("the mount table has the line {line:?}");
            };
            if point.starts_with(&directory) {
                let kind = fields.get(end + 1).copied().unwrap_or_default();
                let own = fields.get(end + 3).copied().unwrap_or_default();
                let root = root.trim_end_matches(|c: char| c.is_ascii_digit());
                lines.push(format!("{point} {root} {options} {kind} {own}"));
            }
        }
        Ok(lines)
    }

    /// Ends the namespaces and checks for remaining resources.
    async fn finish(self, keep_logs: bool) -> Result<()> {
        let Self {
            directory,
            keeper,
            keeps_logs,
        } = self;
        keeper.kill().await?;
        let given_back = wait_for_some("loop devices to be given back", START_TIMEOUT, async || {
            Ok(loop_devices(directory.path()).await?.is_empty().then_some(()))
        })
        .await;
        let leaked = if given_back.is_ok() {
            Vec::new()
        } else {
            loop_devices(directory.path()).await?
        };
        for device in &leaked {
            // The test fails anyway, but the machine must not run out of devices.
            drop(Command::new("losetup").args(["--detach", device]).status().await);
        }
        if keep_logs || keeps_logs.get() {
            let log_directory = directory.keep();
            println!("the logs are in {}", log_directory.display());
        }
        ensure!(leaked.is_empty(), "the test leaked the loop devices {leaked:?}");
        Ok(())
    }
}

async fn loop_devices(directory: &Path) -> Result<Vec<String>> {
    let output = Command::new("losetup")
        .args(["--list", "--noheadings", "--raw", "--output", "NAME,BACK-FILE"])
        .output()
        .await
        .context("cannot run losetup")?;
    let list = String::from_utf8_lossy(&output.stdout).into_owned();
    let directory = directory.display().to_string();
    let ours = list.lines().filter(|line| line.contains(&directory));
    Ok(ours
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect())
}
