// SPDX-License-Identifier: Apache-2.0
//! A process with a mount namespace of its own, as an agent has with `hostPath: /`.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// It keeps the mounts of the moment at which it starts, and ends with this value.
pub(crate) struct Agent(Child);

impl Agent {
    /// An agent that only has the mounts.
    pub(crate) fn with_mounts() -> Self {
        Self::start(":", &[])
    }

    /// An agent that has a file open, by its own copy of the mount.
    pub(crate) fn with_file(file: &Path) -> Self {
        Self::start("exec 3<\"$1\"", &[file])
    }

    /// An agent with this working directory, by its own copy of the mount.
    pub(crate) fn with_directory(directory: &Path) -> Self {
        Self::start("cd \"$1\"", &[directory])
    }

    /// An agent that has the mount at another place as well.
    pub(crate) fn with_bind(from: &Path, to: &Path) -> Self {
        Self::start("mount --bind \"$1\" \"$2\"", &[from, to])
    }

    /// A program that has this file as its standard input, in the namespace of the test.
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

    /// Whether something is mounted at this path for the agent.
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
