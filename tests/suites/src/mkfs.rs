// SPDX-License-Identifier: Apache-2.0
//! A real mkfs that is stopped between two writes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::lab::Lab;

const CATCH_LIMIT: Duration = Duration::from_secs(30);
/// Limit until the adopting process has reaped the killed program.
const END_LIMIT: Duration = Duration::from_secs(10);

/// A directory with a wrapper for mkfs that runs the system's program under strace. strace stops it with SIGSTOP after
/// a given number of writes, so the point is deterministic.
#[derive(Debug)]
pub struct StoppedMkfs {
    fs_type: String,
    programs: PathBuf,
    trace: PathBuf,
    after: u32,
}

impl StoppedMkfs {
    /// Stops `mkfs.<fs_type>` after this number of writes to its device; with fewer writes, it runs to completion.
    ///
    /// It ends with the process that started it, as in a container.
    pub fn after(writes: u32, lab: &Lab, fs_type: &str) -> Result<Self> {
        let programs = lab.path(&format!("mkfs-after-{writes}"));
        fs::create_dir_all(&programs).with_context(|| format!("cannot make {}", programs.display()))?;
        let trace = programs.join("trace");
        let name = format!("mkfs.{fs_type}");
        let script = format!(
            "#!/bin/sh\nexec setpriv --pdeathsig KILL strace --follow-forks --output={trace} --trace=pwrite64 \
             --inject=pwrite64:signal=SIGSTOP:when={writes} setpriv --pdeathsig KILL {real} \"$@\"\n",
            trace = trace.display(),
            real = find_program(&name)?.display(),
        );
        let path = programs.join(&name);
        fs::write(&path, script)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self {
            fs_type: fs_type.to_owned(),
            programs,
            trace,
            after: writes,
        })
    }

    /// Returns the directory, for the start of a driver's `PATH`.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// Waits until mkfs is stopped, and returns its process. Fails if mkfs ends first.
    pub async fn caught(&self) -> Result<StoppedProcess> {
        let pid = harness::wait_for_some("mkfs to be stopped", CATCH_LIMIT, async || {
            let trace = fs::read_to_string(&self.trace).unwrap_or_default();
            if let Some(line) = trace.lines().find(|line| line.contains("--- stopped by SIGSTOP ---")) {
                let pid = line.split_whitespace().next().context("strace names no process")?;
                return Ok(Some(pid.parse::<u32>().context("strace's process is no number")?));
            }
            if trace.contains("+++ exited") {
                bail!(
                    "mkfs.{} was done after {} writes, before it could be stopped",
                    self.fs_type,
                    count(&trace)
                );
            }
            Ok(None)
        })
        .await?;
        let trace = fs::read_to_string(&self.trace).context("cannot read strace's record")?;
        ensure!(
            count(&trace) == self.after as usize,
            "mkfs was stopped after {} writes, not after {}",
            count(&trace),
            self.after
        );
        Ok(StoppedProcess { pid })
    }
}

/// Counts completed writes in the output of strace.
fn count(trace: &str) -> usize {
    trace.lines().filter(|line| line.contains(") = ")).count()
}

/// A stopped mkfs.
#[derive(Debug)]
pub struct StoppedProcess {
    pid: u32,
}

impl StoppedProcess {
    /// Returns its `/proc/PID/stat`, with name and state (`T` and `t` are stopped).
    pub fn stat(&self) -> Result<String> {
        fs::read_to_string(format!("/proc/{}/stat", self.pid)).context("mkfs has ended")
    }

    /// Waits until it has ended, together with the process that started it.
    pub async fn ended(self) -> Result<()> {
        harness::wait_for_some("the end of mkfs", END_LIMIT, async || {
            Ok(self.stat().map_or(Some(()), |stat| stat.contains(") Z ").then_some(())))
        })
        .await
    }
}

/// Returns the path of the system's program with this name.
pub(crate) fn find_program(name: &str) -> Result<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let directories = path.split(':').chain(["/usr/sbin", "/sbin"]);
    let mut candidates = directories.map(|directory| Path::new(directory).join(name));
    candidates
        .find(|candidate| candidate.exists())
        .with_context(|| format!("{name} is not installed"))
}
