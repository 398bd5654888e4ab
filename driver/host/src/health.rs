// SPDX-License-Identifier: Apache-2.0
//! Detects problems of a volume on this node, from the kernel and from the device.
//!
//! Every check has its own thread and time limit. A device that hangs is reported as hung and does not delay other
//! volumes.

use std::io;
use std::path::Path;

use rustix::io::Errno;

use crate::filesystem::size;
use crate::machine::Open;
use crate::timing::TIMING;
use crate::{Device, FsType, Host, Machine, MountTable, OffloadError};

/// Alignment of direct reads. It is at least the sector size of the device.
const ALIGNMENT: usize = 4096;

/// Problem of a volume on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// The kernel turned the file system read-only after an error.
    ReadOnlyByKernel,
    /// The file system has recorded errors and continues to work.
    FilesystemErrors,
    /// The file system has shut down: it returns input/output errors.
    FilesystemShutDown,
    /// The device has disappeared, or the kernel has given it up.
    DeviceGone,
    /// The device returns an error for a read.
    ReadError,
    /// The device does not respond to a read.
    ReadTimedOut,
    /// The device is smaller than the file system on it.
    DeviceShrunk,
}

/// A problem that a check has detected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub trouble: Trouble,
    /// Description with the remedy, for the user.
    pub message: String,
}

impl Host {
    /// Returns the problems of `device` and of its file system, each at most once.
    ///
    /// Checks the file system only if `mounts` lists it. Bounded by about 15 s; returns at once if an earlier check
    /// hangs. Dropping the future changes nothing.
    pub async fn examine(&self, device: &Device, mounts: &MountTable) -> Vec<Finding> {
        let mut findings = Vec::new();
        let head = self.read_head(device).await;
        let answers = head.is_ok();
        match head {
            Ok(head) => findings.extend(check_size(device, &head)),
            Err(finding) => findings.extend(finding),
        }
        findings.extend(self.check_state(device).await);
        let path = device.path.display();
        for mount in mounts.of_device(device) {
            if mount.was_turned_read_only() {
                findings.push(Finding {
                    trouble: Trouble::ReadOnlyByKernel,
                    message: format!(
                        "the kernel made the {} on {path} read-only after an error; see its log. Snapshot the volume, end \
                         its pods, and let it be checked when it is staged again",
                        mount.fs_type
                    ),
                });
            }
        }
        // A mount of a device that does not respond would hang as well, and its finding would add nothing.
        if answers && let Some(mount) = mounts.of_device(device).next() {
            findings.extend(self.check_mount(&mount.target, &mount.fs_type).await);
            if FsType::from_name(&mount.fs_type).is_some_and(FsType::is_ext) {
                findings.extend(self.check_recorded_errors(device).await);
            }
        }
        findings.sort_by_key(|finding| finding.trouble);
        findings.dedup_by_key(|finding| finding.trouble);
        findings
    }

    /// Whether the kernel still has a block device with this number.
    pub async fn has_device(&self, number: (u32, u32)) -> Result<bool, OffloadError> {
        let entry = self
            .inner
            .paths
            .sys
            .join(format!("dev/block/{}:{}", number.0, number.1));
        let what = format!("looking for device {}:{}", number.0, number.1);
        let machine = self.inner.machine.clone();
        self.inner
            .calls
            .run_local(what, TIMING.health_timeout, move || machine.exists(&entry))
            .await
    }

    /// Reads the beginning of the device past every cache.
    ///
    /// Returns `Err(None)` if this node has no capacity for the read, because that is not a finding about the device.
    async fn read_head(&self, device: &Device) -> Result<Vec<u8>, Option<Finding>> {
        let path = device.path.display();
        let (machine, read) = (self.inner.machine.clone(), device.path.clone());
        let what = format!("a read of {path}");
        let is_unplugged = |error: &io::Error| {
            matches!(
                Errno::from_io_error(error),
                Some(Errno::NXIO | Errno::NODEV | Errno::NOENT)
            )
        };
        match self
            .inner
            .calls
            .run(what, TIMING.health_timeout, move || read_directly(&*machine, &read))
            .await
        {
            Ok(Ok(head)) => Ok(head),
            Ok(Err(error)) if is_unplugged(&error) => Err(Some(Finding {
                trouble: Trouble::DeviceGone,
                message: format!("{path} is gone ({error}); is the volume still attached to this server?"),
            })),
            Ok(Err(error)) => Err(Some(Finding {
                trouble: Trouble::ReadError,
                message: format!(
                    "{path} cannot be read ({error}); see the kernel's log of this node and the volume in Cinder"
                ),
            })),
            Err(error) => Err(error.is_hang().then(|| Finding {
                trouble: Trouble::ReadTimedOut,
                message: error.to_string(),
            })),
        }
    }

    /// Reports a device that the SCSI or NVMe layer has given up.
    async fn check_state(&self, device: &Device) -> Option<Finding> {
        let file = self
            .inner
            .paths
            .sys
            .join("block")
            .join(&device.name)
            .join("device/state");
        let machine = self.inner.machine.clone();
        let what = format!("reading the state of {}", device.name);
        let state = self
            .inner
            .calls
            .run_local(what, TIMING.health_timeout, move || machine.read_to_string(&file))
            .await;
        let state = state.ok()?.ok()?;
        let state = state.trim();
        let given_up = ["offline", "transport-offline", "deleting", "dead", "cancel", "blocked"].contains(&state);
        given_up.then(|| Finding {
            trouble: Trouble::DeviceGone,
            message: format!(
                "the kernel has given {} up: its state is {state}; see the kernel's log",
                device.name
            ),
        })
    }

    /// Reports a mounted file system that does not respond or has shut down.
    async fn check_mount(&self, target: &Path, fs_type: &str) -> Option<Finding> {
        let (machine, directory) = (self.inner.machine.clone(), target.to_owned());
        let what = format!("listing {}", target.display());
        let call = move || {
            machine.statvfs(&directory)?;
            // statfs can succeed from memory after the file system has shut down. Reading a directory cannot.
            machine.touch_directory(&directory)
        };
        match self.inner.calls.run(what, TIMING.health_timeout, call).await {
            Ok(Err(error)) if matches!(Errno::from_io_error(&error), Some(Errno::IO | Errno::UCLEAN)) => {
                Some(Finding {
                    trouble: Trouble::FilesystemShutDown,
                    message: format!(
                        "the {fs_type} at {} has stopped ({error}); see the kernel's log. End the pods that use it; it is \
                     checked when it is staged again",
                        target.display()
                    ),
                })
            }
            Ok(_) => None,
            Err(error) => error.is_hang().then(|| Finding {
                trouble: Trouble::ReadTimedOut,
                message: error.to_string(),
            }),
        }
    }

    /// Reports the errors that ext has written into its superblock.
    async fn check_recorded_errors(&self, device: &Device) -> Option<Finding> {
        let dir = self.inner.paths.sys.join("fs/ext4").join(&device.name);
        let machine = self.inner.machine.clone();
        let what = format!("reading the errors of {}", device.name);
        let read = move || {
            let read = |file: &str| {
                machine
                    .read_to_string(&dir.join(file))
                    .map(|text| text.trim().to_owned())
            };
            Ok::<_, io::Error>((read("errors_count")?, read("last_error_func").unwrap_or_default()))
        };
        let (count, function) = self
            .inner
            .calls
            .run_local(what, TIMING.health_timeout, read)
            .await
            .ok()?
            .ok()?;
        let count: u64 = count.parse().ok().filter(|count| *count > 0)?;
        Some(Finding {
            trouble: Trouble::FilesystemErrors,
            message: format!(
                "the file system on {} has met {count} errors, the last in {function}; see the kernel's log. A check when it \
                 is staged again repairs what can be repaired",
                device.path.display()
            ),
        })
    }
}

fn check_size(device: &Device, head: &[u8]) -> Option<Finding> {
    let (fs_type, size) = [FsType::Ext4, FsType::Xfs, FsType::Btrfs]
        .into_iter()
        .find_map(|fs_type| Some((fs_type, size::from_superblock(fs_type, head)?)))?;
    (size > device.size_bytes).then(|| Finding {
        trouble: Trouble::DeviceShrunk,
        message: format!(
            "{} has {} bytes and its {fs_type} needs {size}: the end is missing; stop writing, and see the volume in Cinder",
            device.path.display(),
            device.size_bytes
        ),
    })
}

/// Reads up to [`size::HEAD`] bytes from the beginning of the device, past the page cache.
fn read_directly(machine: &dyn Machine, path: &Path) -> io::Result<Vec<u8>> {
    let disk = machine.open_disk(path, Open::ReadDirectly)?;
    let mut slots = vec![0; size::HEAD + ALIGNMENT];
    let start = slots.as_ptr().align_offset(ALIGNMENT);
    let buffer = slots
        .get_mut(start..start + size::HEAD)
        .ok_or(io::ErrorKind::OutOfMemory)?;
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match disk.read_at(rest, filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if filled == 0 {
        // An unplugged disk returns no bytes.
        return Err(Errno::NXIO.into());
    }
    Ok(buffer.to_vec())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::future::ready;
    use std::sync::mpsc;

    use super::*;
    use crate::HostPaths;
    use crate::offload::MOST_THREADS;

    #[tokio::test(start_paused = true)]
    async fn saturated_node_reports_no_finding() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let host = Host::new(HostPaths {
            sys: dir.path().into(),
            dev: dir.path().into(),
            ..HostPaths::default()
        });
        let mut held = Vec::new();
        for index in 0..MOST_THREADS {
            let (release, hung) = mpsc::channel::<()>();
            held.push(release);
            let call = host
                .inner
                .calls
                .run(format!("call {index}"), TIMING.health_timeout, move || hung.recv());
            // Starts the call and abandons it.
            tokio::select! {
                biased;
                _ = tokio::task::unconstrained(call) => {}
                () = ready(()) => {}
            }
        }
        let device = Device {
            path: dir.path().join("vdb"),
            name: "vdb".into(),
            size_bytes: 1 << 20,
            number: (254, 16),
            read_only: false,
            volume_id: "volume-1".into(),
        };
        fs::write(&device.path, vec![0; 1 << 20]).expect("a file");
        let findings = host.examine(&device, &MountTable::default()).await;
        assert_eq!(findings, []);
        drop(held);
    }
}
