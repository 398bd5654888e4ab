//! Programs that run for as long as the cluster does.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context, Result, bail};

use crate::run::OwnProcessGroup;

/// A program in the background, its output in a file.
#[derive(Debug)]
pub(crate) struct Daemon {
    name: String,
    log: PathBuf,
    child: Child,
}

impl Daemon {
    /// Starts `command` with its output appended to `NAME.log` in `logs`.
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

    /// An error with the end of its log when the program has ended.
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

    /// The last lines that it printed.
    pub(crate) fn tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// Collects the ended child. Called after its namespaces are gone, so that it does not wait for long.
    pub(crate) fn reap(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
