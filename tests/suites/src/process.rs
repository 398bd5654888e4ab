// SPDX-License-Identifier: Apache-2.0
//! Programs that run in the background of a test.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

/// Limit until a program exits after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
const LINES_SHOWN: usize = 40;

/// A background program. It is stopped when the value is dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with its output in `log`.
    pub fn spawn(name: &str, mut command: Command, log: &Path) -> Result<Self> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot write {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().context("cannot share the log file")?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log: log.to_owned(),
        })
    }

    /// Returns the process id; fails if the program has ended.
    pub fn pid(&self) -> Result<Pid> {
        self.child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
            .with_context(|| format!("{} has ended; {}", self.name, self.tail()))
    }

    /// Fails with the end of the log if the program has ended.
    pub fn check(&mut self) -> Result<()> {
        match self
            .child
            .try_wait()
            .with_context(|| format!("cannot ask after {}", self.name))?
        {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status}); {}", self.name, self.tail()),
        }
    }

    /// Kills the program with SIGKILL.
    pub async fn kill(mut self) -> Result<()> {
        kill_process(self.pid()?, Signal::KILL).with_context(|| format!("cannot kill {}", self.name))?;
        self.child
            .wait()
            .await
            .with_context(|| format!("cannot wait for {}", self.name))?;
        Ok(())
    }

    /// Stops the program with SIGTERM and waits for its exit.
    pub async fn stop(mut self) -> Result<ExitStatus> {
        kill_process(self.pid()?, Signal::TERM).with_context(|| format!("cannot end {}", self.name))?;
        let ended = tokio::time::timeout(STOP_TIMEOUT, self.child.wait()).await;
        let ended =
            ended.with_context(|| format!("{} ignores SIGTERM for {STOP_TIMEOUT:?}; {}", self.name, self.tail()))?;
        ended.with_context(|| format!("cannot wait for {}", self.name))
    }

    /// Waits until the program exits by itself with any status.
    pub async fn wait(mut self, limit: Duration) -> Result<ExitStatus> {
        let ended = tokio::time::timeout(limit, self.child.wait()).await;
        let ended = ended.with_context(|| format!("{} still runs after {limit:?}; {}", self.name, self.tail()))?;
        ended.with_context(|| format!("cannot wait for {}", self.name))
    }

    /// Returns the output so far.
    pub fn log(&self) -> Result<String> {
        fs::read_to_string(&self.log).with_context(|| format!("cannot read {}", self.log.display()))
    }

    /// Returns path and last lines of the log.
    pub fn tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(LINES_SHOWN);
        format!("the end of {}:\n{}", self.log.display(), lines[from..].join("\n"))
    }
}

impl Drop for Process {
    /// Sends SIGTERM first, because the simulator then releases its loop devices.
    fn drop(&mut self) {
        let Ok(pid) = self.pid() else { return };
        if kill_process(pid, Signal::TERM).is_err() {
            return;
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        // An error cannot be handled here.
        drop(self.child.start_kill());
    }
}
