// SPDX-License-Identifier: Apache-2.0
//! Runs programs to completion with a timeout.

use std::ffi::{OsStr, OsString};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncWriteExt;

const DEFAULT_TIMEOUT: Duration = Duration::from_mins(1);

/// A program, its arguments and its timeout (default 60 s).
#[derive(Debug, Clone)]
pub struct Command {
    words: Vec<OsString>,
    /// A display name for the first arguments, if these mean nothing to the reader of an error.
    prefix: Option<(String, usize)>,
    environment: Vec<(OsString, OsString)>,
    removed: Vec<OsString>,
    directory: Option<OsString>,
    stdin: Option<Vec<u8>>,
    timeout: Duration,
}

/// The result of a completed program.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Command {
    /// Creates a command for `program`.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            words: vec![program.as_ref().to_owned()],
            prefix: None,
            environment: Vec::new(),
            removed: Vec::new(),
            directory: None,
            stdin: None,
            timeout: DEFAULT_TIMEOUT,
        }
    }

    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.words.push(argument.as_ref().to_owned());
        self
    }

    #[must_use]
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.words
            .extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Removes these environment variables.
    #[must_use]
    pub fn without_env(mut self, names: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.removed
            .extend(names.into_iter().map(|name| name.as_ref().to_owned()));
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn directory(mut self, directory: impl AsRef<OsStr>) -> Self {
        self.directory = Some(directory.as_ref().to_owned());
        self
    }

    /// Sets the standard input, which is empty by default.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// Sets the timeout. A program that exceeds it is killed, and its run is an error.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Errors show this name instead of the arguments so far.
    #[must_use]
    pub fn known_as(mut self, name: &str) -> Self {
        self.prefix = Some((name.to_owned(), self.words.len()));
        self
    }

    fn describe(&self) -> String {
        let (name, hidden) = self
            .prefix
            .as_ref()
            .map_or((None, 0), |(name, count)| (Some(name.as_str()), *count));
        let words = self.words.iter().skip(hidden).map(|word| word.to_string_lossy());
        let words: Vec<_> = name.map(Into::into).into_iter().chain(words).collect();
        words.join(" ")
    }

    fn prepare(&self) -> Result<tokio::process::Command> {
        let (program, arguments) = self.words.split_first().context("a command without a program")?;
        let mut command = tokio::process::Command::new(program);
        command
            .args(arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        for name in &self.removed {
            command.env_remove(name);
        }
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        // An interrupt at the terminal is for the harness alone, which then stops its programs.
        command.process_group(0).kill_on_drop(true);
        Ok(command)
    }

    /// Runs the program and returns its standard output. A failure contains the command, its status and its standard
    /// error.
    pub async fn output(&self) -> Result<String> {
        let Answer { status, stdout, stderr } = self.answer().await?;
        if status.success() {
            return Ok(stdout);
        }
        let details = if stderr.trim().is_empty() {
            stdout.trim()
        } else {
            stderr.trim()
        };
        bail!("`{}` failed ({status}): {details}", self.describe())
    }

    /// Runs the program and returns its status and output.
    pub async fn answer(&self) -> Result<Answer> {
        let mut command = self.prepare()?;
        command.stdin(if self.stdin.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let run = async {
            let mut child = command
                .spawn()
                .with_context(|| format!("cannot start `{}`", self.describe()))?;
            let mut group = Group::for_child(&child);
            if let (Some(bytes), Some(mut stdin)) = (self.stdin.clone(), child.stdin.take()) {
                // A program that exits before it has read all input closes the pipe. Its status is more useful than
                // that error.
                tokio::spawn(async move { stdin.write_all(&bytes).await });
            }
            let output = child.wait_with_output().await;
            group.ended();
            output.with_context(|| format!("cannot read from `{}`", self.describe()))
        };
        let output = tokio::time::timeout(self.timeout, run).await.map_err(|_| {
            anyhow!(
                "`{}` was stopped: it had not ended after {:?}",
                self.describe(),
                self.timeout
            )
        })??;
        Ok(Answer {
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Runs the program with its output on the harness's standard error, for long work with visible progress.
    pub async fn run_visibly(&self) -> Result<()> {
        let mut command = self.prepare()?;
        command
            .stdin(Stdio::null())
            .stdout(std::io::stderr())
            .stderr(Stdio::inherit());
        let run = async {
            let mut child = command
                .spawn()
                .with_context(|| format!("cannot start `{}`", self.describe()))?;
            let mut group = Group::for_child(&child);
            let status = child.wait().await;
            group.ended();
            status.with_context(|| format!("cannot wait for `{}`", self.describe()))
        };
        let status = tokio::time::timeout(self.timeout, run).await.map_err(|_| {
            anyhow!(
                "`{}` was stopped: it had not ended after {:?}",
                self.describe(),
                self.timeout
            )
        })??;
        if !status.success() {
            bail!("`{}` failed ({status}); what it printed is above", self.describe());
        }
        Ok(())
    }
}

/// The process group of a running command. Killed on cancellation, including all child processes.
struct Group(Option<Pid>);

impl Group {
    fn for_child(child: &tokio::process::Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    fn ended(&mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0.take() {
            // The group may have ended already.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn command_passes_input_and_returns_output() {
        assert_eq!(
            Command::new("cat").stdin("three words here").output().await.unwrap(),
            "three words here"
        );
    }

    #[tokio::test]
    async fn failure_names_command_status_and_stderr() {
        let error = Command::new("sh")
            .args(["-c", "echo oh no >&2; exit 3"])
            .output()
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("sh -c") && error.contains("exit status: 3") && error.contains("oh no"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn display_name_replaces_first_arguments() {
        let command = Command::new("env")
            .args(["X=1", "sh"])
            .known_as("shell")
            .args(["-c", "exit 1"]);
        let error = command.output().await.unwrap_err().to_string();
        assert!(error.starts_with("`shell -c exit 1` failed"), "{error}");
    }

    #[tokio::test]
    async fn cancellation_kills_child_processes() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", file.display());
        let command = Command::new("sh")
            .args(["-c", &script])
            .timeout(Duration::from_millis(500));
        command.output().await.unwrap_err();
        let pid = std::fs::read_to_string(&file).unwrap();
        let stat = format!("/proc/{}/stat", pid.trim());
        crate::wait_for("the end of the grandchild", Duration::from_secs(5), async || {
            // The adopting process may not have reaped it yet.
            match std::fs::read_to_string(&stat) {
                Ok(text) if !text.contains(") Z ") => bail!("it runs: {text}"),
                _ => Ok(()),
            }
        })
        .await
        .unwrap();
    }

    #[tokio::test]
    async fn timeout_kills_program_and_names_it() {
        let command = Command::new("sleep").arg("600").timeout(Duration::from_millis(20));
        let error = command.output().await.unwrap_err().to_string();
        assert!(error.contains("sleep 600") && error.contains("20ms"), "{error}");
    }
}
