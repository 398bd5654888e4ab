// SPDX-License-Identifier: Apache-2.0
//! One Linux node in memory: its disks, mounts and programs, below the real [`csi_host::Host`].
//!
//! ```text
//! Host ── calls ── SimMachine ──┬── State: disks, openings, mounts, directories ── Medium, shared by nodes
//!                               ├── programs: tasks of the node, with tokio's time
//!                               └── pods: write and read what is mounted
//! ```
//!
//! One lock guards a node, and each call is atomic, so only whole calls interleave. Random numbers come from `sources`,
//! and time from tokio's clock: on a paused clock in a single-threaded runtime, the same seed gives the same run.

mod cache;
mod damage;
mod disks;
mod filesystem;
mod hardware;
mod holders;
mod kernel;
mod medium;
mod mounts;
mod options;
mod pods;
mod programs;
mod rest;
mod state;
mod sysfs;
mod trap;
mod violation;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use csi_sources::Sources;
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use tokio::time::Instant;

pub use hardware::Hardware;
pub use holders::Holder;
pub use medium::Medium;
pub use options::ShownMount;
pub use trap::{Moment, StoppedDriver};
pub use violation::{Observer, Violation, Violations};

use state::{Opener, State};

/// Probabilities of faults in a million tries. Zero by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// A call hangs for up to [`Faults::hang_limit`].
    pub hang: u64,
    /// Maximum duration of a hang.
    pub hang_limit: Duration,
    /// A read, write or sync of an open device fails with `EIO`.
    pub io_error: u64,
    /// An unmount is refused with `EBUSY`.
    pub unmount_busy: u64,
    /// udev takes up to a minute to create or remove a link.
    pub slow_udev: u64,
    /// udev creates no link for a new disk.
    pub missing_link: u64,
    /// udev does not remove the link of an unplugged disk.
    pub stale_link: u64,
    /// mkfs fails after a part of its work.
    pub mkfs_fails: u64,
    /// The kernel reports a new or resized disk with a smaller size for up to half a minute.
    pub late_size: u64,
    /// A blank disk is smaller than its volume until it is detached.
    pub short_disk: u64,
    /// A blank volume has foreign content.
    pub foreign: u64,
    /// A crash, or an unplugged disk, damages an ext file system.
    pub damage: u64,
    /// An e2fsck fails without a result.
    pub fsck_fails: u64,
    /// An agent opens a new disk and does not close it.
    pub watched_disk: u64,
}

impl Faults {
    /// Draws the faults of a seed by `draw`, which returns a number up to its argument.
    pub fn draw(draw: impl Fn(u64) -> u64, hang_limit: Duration) -> Self {
        Self {
            hang: draw(300),
            hang_limit,
            io_error: draw(300),
            unmount_busy: draw(20_000),
            slow_udev: draw(50_000),
            missing_link: draw(50_000),
            stale_link: draw(50_000),
            mkfs_fails: draw(50_000),
            late_size: draw(50_000),
            short_disk: draw(10_000),
            foreign: draw(20_000),
            damage: draw(100_000),
            fsck_fails: draw(20_000),
            watched_disk: draw(100_000),
        }
    }
}

/// A node, as observed by one process of the driver or from outside. Clones are the same node.
#[derive(Debug, Clone)]
pub struct SimMachine {
    node: Arc<Node>,
    /// The observing process; `None` for the outside, which is never killed.
    process: Option<u64>,
}

/// State that all views share.
#[derive(Debug)]
struct Node {
    name: String,
    sources: Sources,
    violations: Violations,
    began: Instant,
    state: Mutex<State>,
}

impl SimMachine {
    /// Creates a booted node with its root disk and the kubelet's directories. All nodes share `violations`.
    pub fn new(name: impl Into<String>, hardware: Hardware, sources: Sources, violations: Violations) -> Self {
        let node = Node {
            name: name.into(),
            sources,
            violations,
            began: Instant::now(),
            state: Mutex::new(State::booted(hardware)),
        };
        Self {
            node: Arc::new(node),
            process: None,
        }
    }

    /// Returns the view of the driver's current process. After [`SimMachine::kill_process`] or [`SimMachine::reboot`],
    /// each call through it fails, and the next process needs a new view.
    #[must_use]
    pub fn process(&self) -> Self {
        Self {
            node: self.node.clone(),
            process: Some(self.node.state().process),
        }
    }

    /// Returns the name of the node.
    pub fn name(&self) -> &str {
        &self.node.name
    }

    /// Sets the faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.node.state().faults = faults;
    }

    /// Kills the driver's process: closes its open files, and drops its pending calls. Child programs that write
    /// continue to run.
    pub fn kill_process(&self) {
        let mut state = self.node.state();
        let killed = state.process;
        self.node.note(|| "the driver's process is killed".into());
        state.process += 1;
        state.close_all(|by| by == Opener::Process(killed));
    }

    /// Reboots the node at any time. Mounts, open files and programs end; disks and directories remain.
    pub fn reboot(&self) {
        let mut state = self.node.state();
        self.node.note(|| "the node reboots".into());
        state.process += 1;
        for (_, program) in std::mem::take(&mut state.programs) {
            program.abort();
        }
        for disk in state.disks.keys().copied().collect::<Vec<u64>>() {
            self.node.lose(&mut state, disk);
        }
        state.close_all(|_| true);
        self.node.unmount_everything(&mut state);
        for disk in state.disks.values_mut() {
            disk.read_only = false;
            disk.has_layer = false;
            disk.late = None;
            disk.bytes = disk.storage_bytes;
            disk.path_bytes = [disk.storage_bytes; 2];
        }
        state.write_unused();
        state.links.clear();
        for disk in state.disks.keys().copied().collect::<Vec<u64>>() {
            self.node.link(&mut state, disk);
        }
    }

    fn check_alive(&self, state: &State) -> io::Result<()> {
        match self.process {
            Some(process) if process != state.process => Err(io::Error::other("the process was killed")),
            _ => Ok(()),
        }
    }
}

impl Node {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Draws an event with a probability of `millionths` in a million.
    fn happens(&self, millionths: u64) -> bool {
        millionths > 0 && self.sources.random() % 1_000_000 < millionths
    }

    /// Draws a duration up to `limit`.
    fn draw(&self, limit: Duration) -> Duration {
        let micros = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.sources.random() % micros.max(1))
    }

    fn note(&self, what: impl FnOnce() -> String) {
        self.violations.note(&self.name, what);
    }

    fn report(&self, volume: &str, what: String) {
        self.violations.report(Violation {
            at: self.began.elapsed(),
            node: self.name.clone(),
            volume: volume.to_owned(),
            what,
        });
    }
}

/// Returns an error of the kernel.
fn fail<T>(errno: Errno) -> io::Result<T> {
    Err(errno.into())
}

/// Locks a mutex that is never poisoned; every critical section maintains its invariants.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
