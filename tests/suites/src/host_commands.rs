// SPDX-License-Identifier: Apache-2.0
//! The host commands of a node, one of which can be made to stand still.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::lab::Lab;
use crate::mkfs::find_program;

/// Every program of the distribution that the driver may run.
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

/// Whether something stands still before it takes effect or after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Nothing is done yet.
    Before,
    /// All is done, and who asked for it does not know.
    After,
}

impl When {
    /// As the simulator's faults call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
        }
    }
}

/// A directory with programs of the names that a node runs. Each runs the system's own, and the one that [`HostCommands::hold`]
/// chose stands still. It ends with the process that started it, as it would with a container.
#[derive(Debug)]
pub struct HostCommands {
    directory: PathBuf,
}

impl HostCommands {
    /// Programs for all that this machine has.
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

    /// The directory, for the beginning of a driver's `PATH`.
    pub fn programs(&self) -> &Path {
        &self.directory
    }

    /// From now on counted from 1: lets the commands before `number` pass, and holds that one.
    pub fn hold(&self, number: usize, when: When) -> Result<()> {
        self.let_pass()?;
        self.write("when", when.name())?;
        self.write("at", &number.to_string())
    }

    /// Holds none. One that is held stays so.
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

    /// Whether a command is held.
    pub fn holds_one(&self) -> bool {
        self.directory.join("held").exists()
    }

    /// The commands since the last call of [`HostCommands::hold`] or [`HostCommands::let_pass`], by name.
    pub fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn write(&self, name: &str, content: &str) -> Result<()> {
        let path = self.directory.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
    }
}
