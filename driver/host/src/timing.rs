// SPDX-License-Identifier: Apache-2.0
//! Every interval, timeout and retry of this crate.

use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Timing {
    /// How long a thread waits for the next blocking call.
    pub(crate) idle_thread: Duration,
    /// Between the first looks for a device; doubled until `device_look_max`. New nodes and links wake at once; this is for
    /// sizes and for what no event tells.
    pub(crate) device_look_first: Duration,
    /// The longest pause between looks for a device.
    pub(crate) device_look_max: Duration,
    /// Between looks, whatever happens in `/dev`.
    pub(crate) device_look_min: Duration,
    /// Between two rescans of a disk that is smaller than it should be.
    pub(crate) rescan_interval: Duration,
    /// How long a rescan may take: the disk answers it itself.
    pub(crate) rescan_timeout: Duration,
    /// How long one look at sysfs and the links may take. They are in memory.
    pub(crate) device_look_timeout: Duration,
    /// How long it may take to write back what is dirty of a device.
    pub(crate) flush_timeout: Duration,
    /// How long it may take to set a device read-only or back.
    pub(crate) read_only_timeout: Duration,
    /// How long a device that somebody else holds is waited for: a mkfs that an earlier process started.
    pub(crate) busy_device_wait: Duration,
    /// Between attempts to open a device that somebody else holds.
    pub(crate) busy_device_retry: Duration,
    /// mkfs without discard and with lazy initialisation writes a few MiB, whatever the size; a slow backend gets plenty.
    pub(crate) mkfs_timeout: Duration,
    /// `e2fsck -p` replays a journal, and after a crash may walk all inodes.
    pub(crate) fsck_timeout: Duration,
    /// Growing writes metadata alone; a slow backend and a large ext4 without lazy initialisation get plenty.
    pub(crate) grow_timeout: Duration,
    /// How long reading a file system's own size may take.
    pub(crate) superblock_timeout: Duration,
    /// How long reading or writing the mark of a format may take.
    pub(crate) mark_timeout: Duration,
    /// A probe reads a few hundred KiB; a busy backend may take its time for them.
    pub(crate) blkid_timeout: Duration,
    /// Reading back about 5 MiB.
    pub(crate) read_back_timeout: Duration,
    /// A mount replays the journal, which takes minutes on a large and busy file system.
    pub(crate) mount_timeout: Duration,
    /// An unmount writes back what is dirty.
    pub(crate) unmount_timeout: Duration,
    /// What only touches the kernel's tables.
    pub(crate) mount_table_timeout: Duration,
    /// How long one question may take. A healthy device takes milliseconds, a busy one seconds.
    pub(crate) health_timeout: Duration,
    /// How long one question to the kernel may take. The kubelet asks for all volumes once a minute.
    pub(crate) usage_timeout: Duration,
    /// How long counting disks and slots may take.
    pub(crate) slots_timeout: Duration,
    /// How long reading what the firmware says may take.
    pub(crate) firmware_timeout: Duration,
    /// How long reading the config drive may take: a CD drive takes its time to start.
    pub(crate) config_drive_timeout: Duration,
}

/// What holds in the product and in tests alike.
pub(crate) const TIMING: Timing = Timing {
    idle_thread: Duration::from_secs(2),
    device_look_first: Duration::from_millis(10),
    device_look_max: Duration::from_secs(1),
    device_look_min: Duration::from_millis(10),
    rescan_interval: Duration::from_secs(2),
    rescan_timeout: Duration::from_secs(10),
    device_look_timeout: Duration::from_secs(10),
    flush_timeout: Duration::from_mins(10),
    read_only_timeout: Duration::from_secs(30),
    busy_device_wait: Duration::from_mins(1),
    busy_device_retry: Duration::from_millis(100),
    mkfs_timeout: Duration::from_mins(30),
    fsck_timeout: Duration::from_hours(2),
    grow_timeout: Duration::from_mins(30),
    superblock_timeout: Duration::from_secs(30),
    mark_timeout: Duration::from_mins(1),
    blkid_timeout: Duration::from_mins(1),
    read_back_timeout: Duration::from_mins(2),
    mount_timeout: Duration::from_mins(10),
    unmount_timeout: Duration::from_mins(10),
    mount_table_timeout: Duration::from_secs(10),
    health_timeout: Duration::from_secs(5),
    usage_timeout: Duration::from_secs(10),
    slots_timeout: Duration::from_secs(10),
    firmware_timeout: Duration::from_secs(5),
    config_drive_timeout: Duration::from_secs(20),
};
