// SPDX-License-Identifier: Apache-2.0
//! Programs that run as long as the cluster.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::run::OwnProcessGroup;

/// A program in the background with its output in a file.
#[derive(Debug)]
pub(crate) struct Daemon {
    name: String,
    log: PathBuf,
    child: Child,
}

impl Daemon {
    /// Starts `command`. Its output is appended to `NAME.log` in `logs`.
    pub(crate) fn start(name: &str, logs: &Path, command: &mut std::process::Command) -> Result<Self> {
        let log = logs.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log);
        let file = file.with_context(|| format!("cannot write {}", log.display()))?;
        let errors = file.try_clone().context("cannot share a log file")?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .process_group_of_its_own()
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self {
            name: name.to_owned(),
            log,
            child,
        })
    }

    /// Fails with the last lines of the log if the program has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        if let Some(status) = self
            .child
            .try_wait()
            .with_context(|| format!("cannot look after {}", self.name))?
        {
            bail!(
                "{} ended ({status}); the end of {}:\n{}",
                self.name,
                self.log.display(),
                self.tail()
            );
        }
        Ok(())
    }

    /// Sends a signal to the program.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let sent = kill_process(Pid::from_child(&self.child), signal);
        sent.with_context(|| format!("cannot signal {}", self.name))
    }

    /// Returns the last lines of the output.
    pub(crate) fn tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// Kills a program in a node's namespaces, and waits for its `nsenter` parent, which exits after it.
    pub(crate) fn end(mut self) -> Result<()> {
        let id = self.child.id();
        let inside = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"))
            .with_context(|| format!("{} has ended", self.name))?;
        for pid in inside
            .split_whitespace()
            .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
        {
            kill_process(pid, Signal::KILL).with_context(|| format!("cannot end {}", self.name))?;
        }
        self.child
            .wait()
            .with_context(|| format!("cannot wait for {}", self.name))?;
        Ok(())
    }

    /// Reaps the child. Call this after its namespaces have ended, so that the wait is short.
    pub(crate) fn reap(mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
