// SPDX-License-Identifier: Apache-2.0
//! Host commands of a node, one of which can be suspended.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::lab::Lab;
use crate::mkfs::find_program;

/// All distribution programs that the driver may run.
const PROGRAMS: [&str; 12] = [
    "blkid",
    "mkfs.ext4",
    "mkfs.xfs",
    "mkfs.btrfs",
    "e2fsck",
    "fsck.xfs",
    "xfs_repair",
    "resize2fs",
    "xfs_growfs",
    "btrfs",
    "dumpe2fs",
    "xfs_io",
];

/// Whether a command is suspended before or after its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// The command has not started.
    Before,
    /// The command has finished, but its caller does not know.
    After,
}

impl When {
    /// Returns the name in the simulator's fault rules.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
        }
    }
}

/// A directory with wrappers for the programs of a node. Each wrapper runs the system's program; [`HostCommands::hold`]
/// selects one to suspend. A wrapper ends with the process that started it, as in a container.
#[derive(Debug)]
pub struct HostCommands {
    directory: PathBuf,
}

impl HostCommands {
    /// Creates wrappers for all programs that exist on this machine.
    pub fn new(lab: &Lab) -> Result<Self> {
        let directory = lab.path("host-commands");
        fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let commands = Self { directory };
        for name in PROGRAMS {
            let Ok(real) = find_program(name) else { continue };
            let script = format!(
                "#!/bin/sh\ncd {state}\necho {name} >> log\nif [ \"$(wc -l < log)\" = \"$(cat at)\" ]; then\n\
                 [ \"$(cat when)\" = before ] || {real} \"$@\"\n\
                 exec setpriv --pdeathsig KILL sh -c 'touch held; exec sleep infinity'\nfi\nexec {real} \"$@\"\n",
                state = commands.directory.display(),
                real = real.display(),
            );
            let path = commands.directory.join(name);
            fs::write(&path, script)
                .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        commands.let_pass()?;
        Ok(commands)
    }

    /// Returns the directory, for the start of a driver's `PATH`.
    pub fn programs(&self) -> &Path {
        &self.directory
    }

    /// Suspends command `number`, counted from 1 from now on.
    pub fn hold(&self, number: usize, when: When) -> Result<()> {
        self.let_pass()?;
        self.write("when", when.name())?;
        self.write("at", &number.to_string())
    }

    /// Suspends no further command. A suspended command stays so.
    pub fn let_pass(&self) -> Result<()> {
        self.write("at", "none")?;
        self.write("log", "")?;
        match fs::remove_file(self.directory.join("held")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).context("cannot forget what was held")
            }
            _ => Ok(()),
        }
    }

    /// Whether a command is suspended.
    pub fn holds_one(&self) -> bool {
        self.directory.join("held").exists()
    }

    /// Returns the names of the commands since the last [`HostCommands::hold`] or [`HostCommands::let_pass`].
    pub fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn write(&self, name: &str, content: &str) -> Result<()> {
        let path = self.directory.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
    }
}
