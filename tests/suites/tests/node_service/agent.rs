// SPDX-License-Identifier: Apache-2.0
//! A process with a private mount namespace, like an agent with `hostPath: /`.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The process has a copy of the mounts at its start. It is killed on drop.
pub(crate) struct Agent(Child);

impl Agent {
    /// Starts an agent that only copies the mounts.
    pub(crate) fn with_mounts() -> Self {
        Self::start(":", &[])
    }

    /// Starts an agent that opens a file through its copy of the mount.
    pub(crate) fn with_file(file: &Path) -> Self {
        Self::start("exec 3<\"$1\"", &[file])
    }

    /// Starts an agent whose working directory is in its copy of the mount.
    pub(crate) fn with_directory(directory: &Path) -> Self {
        Self::start("cd \"$1\"", &[directory])
    }

    /// Starts an agent that binds the mount to another path.
    pub(crate) fn with_bind(from: &Path, to: &Path) -> Self {
        Self::start("mount --bind \"$1\" \"$2\"", &[from, to])
    }

    /// Starts a program whose standard input is this file, in the namespace of the test.
    pub(crate) fn with_input(input: File) -> Self {
        let program = Command::new("sleep").arg("infinity").stdin(Stdio::from(input)).spawn();
        Self(program.expect("coreutils are installed"))
    }

    fn start(act: &str, places: &[&Path]) -> Self {
        let script = format!("set -e; {act}; echo ready; exec sleep infinity");
        let mut agent = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", &script, "agent"])
            .args(places)
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare (util-linux) is installed");
        let mut line = String::new();
        let stdout = agent.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("the agent reports");
        assert_eq!(line, "ready\n");
        Self(agent)
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Whether the agent has a mount at this path.
    pub(crate) fn sees(&self, path: &Path) -> bool {
        let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", self.id())).expect("the agent runs");
        let path = path.display().to_string();
        mounts.lines().any(|line| line.split(' ').nth(4) == Some(path.as_str()))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
