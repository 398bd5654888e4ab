// SPDX-License-Identifier: Apache-2.0
//! Intervals, timeouts and retries of this crate.

use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Timing {
    /// Time after which an idle thread ends.
    pub(crate) idle_thread: Duration,
    /// First pause between two searches for a device; doubled until `device_poll_max`. New nodes and links end the
    /// pause. Polling detects sizes and other changes without an event.
    pub(crate) device_poll_first: Duration,
    /// Longest pause between two searches for a device.
    pub(crate) device_poll_max: Duration,
    /// Shortest pause between two searches, for frequent events in `/dev`.
    pub(crate) device_poll_min: Duration,
    /// Interval between rescans of a disk that is smaller than its volume.
    pub(crate) rescan_interval: Duration,
    /// Timeout of a rescan. The disk itself responds to it.
    pub(crate) rescan_timeout: Duration,
    /// Timeout of one search in sysfs and the links, which are in memory.
    pub(crate) device_search_timeout: Duration,
    /// Timeout of writing back the dirty data of a device.
    pub(crate) flush_timeout: Duration,
    /// Timeout of setting a device read-only or writable.
    pub(crate) read_only_timeout: Duration,
    /// Time to wait for a device that is in use, such as by the mkfs of an earlier process.
    pub(crate) busy_device_wait: Duration,
    /// First pause between attempts to open a device that is in use.
    pub(crate) busy_device_retry: Duration,
    /// Timeout of mkfs. Without discard and with lazy initialization it writes a few MiB for any size. The timeout is
    /// generous for slow backends.
    pub(crate) mkfs_timeout: Duration,
    /// Timeout of fsck. `e2fsck -p` replays a journal, and may check all inodes after a crash.
    pub(crate) fsck_timeout: Duration,
    /// Timeout of growing a file system, which writes only metadata. The timeout is generous for slow backends and for
    /// large ext4 file systems without lazy initialization.
    pub(crate) grow_timeout: Duration,
    /// Timeout of reading the size of a file system.
    pub(crate) superblock_timeout: Duration,
    /// Timeout of reading or writing the mark of a format.
    pub(crate) mark_timeout: Duration,
    /// Timeout of blkid. It reads a few hundred KiB, which a busy backend may delay.
    pub(crate) blkid_timeout: Duration,
    /// Timeout of reading the samples of a device, about 5 MiB.
    pub(crate) read_back_timeout: Duration,
    /// Timeout of a mount. The replay of a journal takes minutes on a large and busy file system.
    pub(crate) mount_timeout: Duration,
    /// Timeout of an unmount, which writes back dirty data.
    pub(crate) unmount_timeout: Duration,
    /// Timeout of calls that only access tables of the kernel.
    pub(crate) mount_table_timeout: Duration,
    /// Timeout of one health check. A healthy device takes milliseconds, a busy one seconds.
    pub(crate) health_timeout: Duration,
    /// Timeout of a usage request. The kubelet requests the usage of all volumes once a minute.
    pub(crate) usage_timeout: Duration,
    /// Timeout of counting disks and slots.
    pub(crate) slots_timeout: Duration,
    /// Timeout of reading the DMI tables or the network interfaces.
    pub(crate) firmware_timeout: Duration,
    /// Timeout of reading the config drive. A CD drive starts slowly.
    pub(crate) config_drive_timeout: Duration,
}

/// The values of the product, which tests use as well.
pub(crate) const TIMING: Timing = Timing {
    idle_thread: Duration::from_secs(2),
    device_poll_first: Duration::from_millis(10),
    device_poll_max: Duration::from_secs(1),
    device_poll_min: Duration::from_millis(10),
    rescan_interval: Duration::from_secs(2),
    rescan_timeout: Duration::from_secs(10),
    device_search_timeout: Duration::from_secs(10),
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
