// SPDX-License-Identifier: Apache-2.0
//! Tests of the real host on a simulated node.

mod history;
mod swap;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use csi_host::machine::Open;
use csi_host::mount::MountPointKind;
use csi_host::tool::ToolTask;
use csi_host::{
    Device, DeviceError, FilesystemError, FilesystemRequest, FsType, Host, HostPaths, Machine, MountError,
    MountOptions, PreparedFilesystem, Tools, UsageError,
};
use rstest::rstest;
use rustix::io::Errno;
use tokio::time::{Instant, sleep, timeout};

use super::medium::Readable as _;
use super::*;

const VOLUME: &str = "0cf2a1d9-6b1c-4c3e-9d3f-5a8f2f3d7e10";
const OTHER: &str = "7b7c1f60-aaaa-4bbb-8ccc-1234567890ab";
const GIB: u64 = 1 << 30;
const LIMIT: Duration = Duration::from_mins(10);
const STAGING: &str = "/var/lib/kubelet/plugins/kubernetes.io/csi/staging";
const POD: &str = "/var/lib/kubelet/pods/1/mount";

fn node(name: &str, seed: u64, violations: &Violations) -> SimMachine {
    let start = "2026-01-02T03:04:05Z".parse().expect("a time");
    SimMachine::new(name, Hardware::Virtio, Sources::seeded(seed, start), violations.clone())
}

/// Creates a node with a blank volume of 1 GiB.
fn lab() -> (SimMachine, Arc<Medium>, Violations) {
    let violations = Violations::default();
    let machine = node("node-1", 1, &violations);
    let medium = Medium::blank();
    machine.plug(VOLUME, medium.clone(), GIB);
    (machine, medium, violations)
}

/// Creates the driver's host in the current process.
fn host(machine: &SimMachine) -> Host {
    Host::with_machine(Arc::new(machine.process()), HostPaths::default(), Tools::default())
}

async fn find(host: &Host, volume_id: &str) -> Device {
    let device = host.find_device(volume_id, None, Duration::from_secs(10)).await;
    device.expect("it is plugged in")
}

async fn prepare(host: &Host, fs_type: FsType) -> Result<PreparedFilesystem, FilesystemError> {
    let options = FilesystemRequest {
        fs_type: Some(fs_type),
        ..FilesystemRequest::default()
    };
    host.prepare_filesystem(&find(host, VOLUME).await, options).await
}

/// Mounts a volume that has a file system.
async fn mount(host: &Host, volume_id: &str, at: &str, fs_type: FsType) -> Result<(), MountError> {
    let (device, at) = (find(host, volume_id).await, Path::new(at));
    host.create_place(at, MountPointKind::Directory, 0o750).await?;
    host.mount(&device, at, fs_type, &MountOptions::default()).await
}

async fn staged(machine: &SimMachine, fs_type: FsType) -> Host {
    let host = host(machine);
    let made = prepare(&host, fs_type).await.expect("it can be made ready");
    assert_eq!(made.fs_type, fs_type);
    mount(&host, VOLUME, STAGING, fs_type).await.expect("it is mounted");
    host
}

fn keys(keys: &[u64]) -> BTreeSet<u64> {
    keys.iter().copied().collect()
}

#[rstest]
#[case(FsType::Ext4)]
#[case(FsType::Ext3)]
#[case(FsType::Ext2)]
#[case(FsType::Xfs)]
#[case(FsType::Btrfs)]
#[tokio::test(start_paused = true)]
async fn formats_blank_volume_once(#[case] fs_type: FsType) {
    let (machine, medium, violations) = lab();
    let host = host(&machine);
    let device = find(&host, VOLUME).await;
    assert_eq!((device.name.as_str(), device.size_bytes), ("vdb", GIB));
    assert_eq!(
        prepare(&host, fs_type).await.expect("it is blank"),
        PreparedFilesystem {
            fs_type,
            formatted: true,
            in_use: false
        }
    );
    mount(&host, VOLUME, STAGING, fs_type).await.expect("it is mounted");
    let (staging, pod) = (Path::new(STAGING), Path::new(POD));
    host.create_place(pod, MountPointKind::Directory, 0o750)
        .await
        .expect("a directory");
    host.bind(staging, pod, MountPointKind::Directory, &MountOptions::default())
        .await
        .expect("it is bound");
    for key in [7, 8, 7] {
        machine.write(pod, key).expect("it is writable");
    }
    let mounts = host.mounts().await.expect("every line is understood");
    let shown: Vec<&Path> = mounts.of_device(&device).map(|mount| mount.target.as_path()).collect();
    assert_eq!(shown, [staging, pod]);
    assert!(host.usage(pod).await.expect("it answers").bytes_total > 0);
    assert_eq!(host.examine(&device, &mounts).await, []);
    for place in [pod, staging] {
        assert!(host.unmount(place).await.expect("it is not open"));
    }
    host.wait_until_idle(&device, Duration::ZERO).await.expect("it is idle");

    let again = prepare(&host, fs_type).await.expect("it has a file system");
    assert!(!again.formatted);
    mount(&host, VOLUME, STAGING, fs_type).await.expect("it is mounted");
    assert_eq!(machine.read(staging).expect("it answers"), keys(&[7, 8]));
    assert!(medium.holds_data());
    assert_eq!(violations.list(), []);
}

#[rstest]
#[case::at_the_beginning(0)]
#[case::at_the_end(GIB - 4096)]
#[tokio::test(start_paused = true)]
async fn refuses_format_of_foreign_bytes(#[case] at: u64) {
    let (machine, medium, violations) = lab();
    medium.write_at(b"LVM, perhaps", at);
    let error = prepare(&host(&machine), FsType::Ext4)
        .await
        .expect_err("it is not blank");
    assert!(matches!(error, FilesystemError::Foreign { .. }), "{error}");
    assert_eq!(violations.list(), []);
}

#[tokio::test(start_paused = true)]
async fn refuses_format_of_raw_device_data() {
    let (machine, medium, violations) = lab();
    let host = host(&machine);
    let (device, target) = (find(&host, VOLUME).await, Path::new(POD));
    host.create_place(target, MountPointKind::File, 0o640)
        .await
        .expect("a file");
    host.bind(&device.path, target, MountPointKind::File, &MountOptions::default())
        .await
        .expect("it is bound");
    assert_eq!(
        host.device_number(target).await.expect("it answers"),
        Some(device.number)
    );
    machine.write(target, 5).expect("it is writable");
    assert_eq!(machine.read(target).expect("it answers"), keys(&[5]));
    assert_eq!(machine.volume_at(target).expect("it answers"), VOLUME);
    host.unmount(target).await.expect("it is not open");
    medium.write_at(b"its own beginning", 0);
    let error = prepare(&host, FsType::Ext4).await.expect_err("it is in use");
    assert!(matches!(error, FilesystemError::Foreign { .. }), "{error}");
    assert_eq!(violations.list(), []);
}

/// Waits until a mkfs has written something and has not ended.
async fn half_made(machine: &SimMachine) {
    let begins = async {
        // Each mkfs has written at one of these offsets by then, at least into the page cache.
        let is_written = |at: u64| {
            let mut bytes = [0; 128];
            let state = machine.node.state();
            state.disks.values().for_each(|disk| disk.read_at(&mut bytes, at));
            bytes != [0; 128]
        };
        while ![0, 64 << 10].into_iter().any(is_written) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LIMIT, begins).await.expect("it begins");
    assert_eq!(machine.node.state().programs.len(), 1, "it has not ended");
}

#[rstest]
#[case(FsType::Ext4)]
#[case(FsType::Xfs)]
#[case(FsType::Btrfs)]
#[tokio::test(start_paused = true)]
async fn continues_format_after_reboot(#[case] fs_type: FsType) {
    let (machine, medium, violations) = lab();
    let before = host(&machine);
    let call = tokio::spawn(async move { prepare(&before, fs_type).await });
    half_made(&machine).await;
    call.abort();
    machine.reboot();
    sleep(LIMIT).await;
    assert_eq!(
        medium.filesystem().filter(|found| !found.in_progress),
        None,
        "the program is gone"
    );
    let copy = medium.copy();
    let made = prepare(&host(&machine), fs_type).await.expect("the mark tells");
    assert!(made.formatted);
    assert_eq!(violations.list(), []);

    // The copy has the mark of the original volume.
    machine.unplug(VOLUME);
    machine.plug(OTHER, copy, GIB);
    let host = host(&machine);
    let refused = host
        .prepare_filesystem(&find(&host, OTHER).await, FilesystemRequest::default())
        .await;
    refused.expect_err("the mark is not this volume's");
}

#[tokio::test(start_paused = true)]
async fn waits_for_format_of_killed_process() {
    let (machine, _, violations) = lab();
    let before = host(&machine);
    let call = tokio::spawn(async move { prepare(&before, FsType::Ext4).await });
    half_made(&machine).await;
    machine.kill_process();
    call.abort();
    let taken = prepare(&host(&machine), FsType::Ext4).await.expect("it ends");
    assert!(!taken.formatted, "the earlier one did it");
    assert_eq!(violations.list(), []);
}

#[tokio::test(start_paused = true)]
async fn killed_process_has_no_further_effect() {
    let (machine, _, _) = lab();
    let before = host(&machine);
    let device = find(&before, VOLUME).await;
    let held = before.pin(&device).await.expect("it is there");
    let late = machine.process();
    machine.kill_process();
    assert!(machine.node.state().openings.is_empty(), "the kernel closes");
    drop(held);
    late.create_directory(Path::new(STAGING), 0o750)
        .expect_err("it is dead");
    before.mounts().await.expect_err("it is dead");
    host(&machine).mounts().await.expect("the next one lives");
}

#[rstest]
#[case(FsType::Ext4)]
#[case(FsType::Xfs)]
#[case(FsType::Btrfs)]
#[tokio::test(start_paused = true)]
async fn mounted_file_system_grows_with_volume(#[case] fs_type: FsType) {
    let (machine, _, violations) = lab();
    let host = staged(&machine, fs_type).await;
    machine.write(Path::new(STAGING), 1).expect("it is writable");
    machine.resize(VOLUME, 3 * GIB);
    let device = host
        .find_device(VOLUME, Some(3 * GIB), Duration::ZERO)
        .await
        .expect("it has grown");
    host.grow_mounted(&device, fs_type, Path::new(STAGING))
        .await
        .expect("it grows");
    assert_eq!(
        host.filesystem_size(&device, fs_type).await.expect("a superblock"),
        3 * GIB
    );
    assert_eq!(
        machine.read(Path::new(STAGING)).expect("it answers"),
        keys(&[1]),
        "it is the same file system"
    );
    assert_eq!(violations.list(), []);
}

#[tokio::test(start_paused = true)]
async fn device_in_use_excludes_other_uses() {
    let (machine, _, _) = lab();
    let host = staged(&machine, FsType::Ext4).await;
    let (device, staging) = (find(&host, VOLUME).await, Path::new(STAGING));
    let busy = host.wait_until_idle(&device, Duration::from_secs(1)).await;
    assert!(matches!(busy, Err(DeviceError::Busy { .. })), "{busy:?}");
    mount(&host, VOLUME, POD, FsType::Ext4)
        .await
        .expect("the same file system");
    let read_only = MountOptions::default().read_only();
    let refused = host.mount(&device, Path::new(POD), FsType::Ext4, &read_only).await;
    assert!(matches!(refused, Err(MountError::Mount { .. })), "{refused:?}");

    machine.hold(Path::new(POD)).expect("it is mounted");
    let busy = host.unmount(Path::new(POD)).await;
    assert!(matches!(busy, Err(MountError::Busy { .. })), "{busy:?}");
    machine.release(Path::new("/var/lib/kubelet/pods/1"));
    for place in [Path::new(POD), staging] {
        host.unmount(place).await.expect("it is not open");
    }
    let alone = machine
        .open_disk(&device.path, Open::ReadAlone)
        .expect("it is mounted nowhere");
    let refused = host
        .mount(&device, staging, FsType::Ext4, &MountOptions::default())
        .await;
    assert!(matches!(refused, Err(MountError::Mount { .. })), "{refused:?}");
    drop(alone);

    host.set_read_only(&device, true).await.expect("the kernel can");
    let refused = host
        .mount(&device, staging, FsType::Ext4, &MountOptions::default())
        .await;
    assert!(
        matches!(&refused, Err(MountError::Mount { source, .. }) if Errno::from_io_error(source) == Some(Errno::ACCESS)),
        "{refused:?}"
    );
    host.mount(&device, staging, FsType::Ext4, &read_only)
        .await
        .expect("nothing is written");
    machine.write(staging, 1).expect_err("it is read-only");
}

#[tokio::test(start_paused = true)]
async fn bind_mount_has_its_own_flags() {
    let (machine, _, _) = lab();
    let host = staged(&machine, FsType::Xfs).await;
    let (staging, pod) = (Path::new(STAGING), Path::new(POD));
    host.create_place(pod, MountPointKind::Directory, 0o750)
        .await
        .expect("a directory");
    let options = MountOptions::parse(&["noexec"]).expect("it is known").read_only();
    host.bind(staging, pod, MountPointKind::Directory, &options)
        .await
        .expect("it is bound");
    let error = machine.write(pod, 1).expect_err("it is read-only");
    assert_eq!(Errno::from_io_error(&error), Some(Errno::ROFS));
    machine.write(staging, 1).expect("the other is not");
    let mounts = host.mounts().await.expect("every line is understood");
    assert!(options.are_met_by(mounts.at(pod).expect("it is there")));
    let rest: Vec<&Path> = mounts.iter().skip(4).map(|mount| mount.target.as_path()).collect();
    assert_eq!(rest, [staging, pod], "no draft is left");
}

#[tokio::test(start_paused = true)]
async fn mounts_xfs_clone_next_to_source() {
    let (machine, medium, violations) = lab();
    let host = staged(&machine, FsType::Xfs).await;
    machine.plug(OTHER, medium.copy(), GIB);
    let device = find(&host, OTHER).await;
    let plain = machine.create_directories(Path::new(POD), 0o750);
    plain.expect("a directory");
    let refused = Machine::mount(
        &machine,
        &device.path,
        Path::new(POD),
        FsType::Xfs,
        &MountOptions::default(),
    );
    assert_eq!(refused.expect_err("the UUID is mounted").errno, Errno::INVAL);
    mount(&host, OTHER, POD, FsType::Xfs)
        .await
        .expect("the driver knows the way");
    machine.write(Path::new(POD), 1).expect("it is writable");
    assert_eq!(
        machine.read(Path::new(STAGING)).expect("it answers"),
        keys(&[]),
        "it is a copy"
    );
    assert_eq!(violations.list(), []);
}

#[tokio::test(start_paused = true)]
async fn number_of_dead_mount_is_not_reused() {
    let (machine, _, _) = lab();
    let host = staged(&machine, FsType::Ext4).await;
    let staging = Path::new(STAGING);
    machine.unplug(VOLUME);
    let dead = host.usage(staging).await.expect_err("its disk is gone");
    assert!(
        matches!(&dead, UsageError::Stat { source, .. } if Errno::from_io_error(source) == Some(Errno::IO)),
        "{dead}"
    );
    machine.read(staging).expect_err("its disk is gone");
    let missing = host.find_device(VOLUME, None, Duration::ZERO).await;
    assert!(matches!(missing, Err(DeviceError::NotFound { .. })), "{missing:?}");
    machine.plug(OTHER, Medium::blank(), GIB);
    assert_eq!(find(&host, OTHER).await.name, "vdc");
    assert!(host.unmount(staging).await.expect("a dead mount can go"));
    machine.plug(VOLUME, Medium::blank(), GIB);
    assert_eq!(find(&host, VOLUME).await.name, "vdb", "it is not open");
}

#[tokio::test(start_paused = true)]
async fn udev_updates_links_with_delay() {
    let (machine, _, _) = lab();
    let (by_id, link) = (
        Path::new("/dev/disk/by-id"),
        Path::new("/dev/disk/by-id/virtio-0cf2a1d9-6b1c-4c3e-9"),
    );
    assert_eq!(machine.list(by_id).expect("a directory"), Vec::<&str>::new());
    sleep(LIMIT).await;
    assert_eq!(
        machine.canonicalize(link).expect("it leads there"),
        Path::new("/dev/vdb")
    );
    machine.set_faults(Faults {
        stale_link: 1_000_000,
        ..Faults::default()
    });
    machine.unplug(VOLUME);
    sleep(LIMIT).await;
    assert_eq!(machine.list(by_id).expect("a directory").len(), 1);
    machine.canonicalize(link).expect_err("it dangles");
    machine.plug(OTHER, Medium::blank(), GIB);
    let error = host(&machine).find_device(VOLUME, None, Duration::ZERO).await;
    assert!(matches!(error, Err(DeviceError::Stale { .. })), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn volume_limit_counts_pci_slots() {
    let (machine, _, _) = lab();
    let free = host(&machine).volume_slots().await.expect("it answers");
    assert_eq!((free.attached, free.volumes()), (1, 27));
}

#[tokio::test(start_paused = true)]
async fn reports_second_writer_as_violation() {
    let (machine, medium, violations) = lab();
    let host = staged(&machine, FsType::Ext4).await;
    let second = node("node-2", 2, &violations);
    second.plug(VOLUME, medium.clone(), GIB);
    mount(&self::host(&second), VOLUME, STAGING, FsType::Ext4)
        .await
        .expect("the kernel does not know");
    let seen = violations.list();
    assert!(
        matches!(seen.as_slice(), [one] if one.node == "node-2" && one.volume == VOLUME && one.what.contains("node-1")),
        "{seen:?}"
    );
    second.reboot();
    let device = find(&host, VOLUME).await;
    host.unmount(Path::new(STAGING)).await.expect("it is not open");
    mount(&self::host(&second), VOLUME, STAGING, FsType::Ext4)
        .await
        .expect("it is mounted");
    assert_eq!(violations.list().len(), 1, "one after the other is fine");

    let disk = machine
        .open_disk(&device.path, Open::WriteAlone)
        .expect("it is mounted elsewhere only");
    disk.write_all_at(&[1], 0).expect("it is written");
    drop(disk);
    let mkfs = Path::new("mkfs.xfs");
    machine
        .run(mkfs, &["-f"], &device.path, LIMIT, ToolTask::Format)
        .await
        .expect("it ends");
    let seen: Vec<String> = violations.list().iter().map(ToString::to_string).collect();
    assert!(
        seen.get(1).is_some_and(|text| text.contains("1 bytes are written")),
        "{seen:?}"
    );
    assert!(
        seen.get(2).is_some_and(|text| text.contains("mkfs makes an xfs")),
        "{seen:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn unplugged_disk_is_mountable_on_other_node() {
    let (machine, medium, violations) = lab();
    let _host = staged(&machine, FsType::Btrfs).await;
    machine.unplug(VOLUME);
    let second = node("node-2", 2, &violations);
    second.plug(VOLUME, medium, GIB);
    mount(&host(&second), VOLUME, STAGING, FsType::Btrfs)
        .await
        .expect("it is mounted");
    assert_eq!(violations.list(), []);
}

#[tokio::test(start_paused = true)]
async fn unplug_loses_unwritten_data_but_unmount_writes_back() {
    let (machine, medium, _) = lab();
    let (host, staging) = (staged(&machine, FsType::Ext4).await, Path::new(STAGING));
    machine.write_cached(staging, 1).expect("it is writable");
    assert_eq!(machine.read(staging).expect("it answers"), keys(&[1]));
    sleep(Duration::from_mins(2)).await;
    machine.write_cached(staging, 2).expect("it is writable");
    machine.unplug(VOLUME);
    assert_eq!(machine.places(VOLUME), [staging]);
    host.unmount(staging).await.expect("a dead mount can go");
    machine.plug(VOLUME, medium, GIB);
    mount(&host, VOLUME, STAGING, FsType::Ext4)
        .await
        .expect("it is mounted");
    assert_eq!(machine.read(staging).expect("it answers"), keys(&[1]));

    machine.write_cached(staging, 3).expect("it is writable");
    machine.hold_elsewhere(VOLUME, Holder::Mounts);
    host.unmount(staging).await.expect("no pod has it open");
    assert_eq!(machine.places(VOLUME), [""; 0].map(Path::new));
    let busy = host.wait_until_idle(&find(&host, VOLUME).await, Duration::ZERO).await;
    assert!(matches!(busy, Err(DeviceError::Busy { .. })), "{busy:?}");
    machine.release_elsewhere(VOLUME);
    mount(&host, VOLUME, STAGING, FsType::Ext4)
        .await
        .expect("it is mounted");
    assert_eq!(machine.read(staging).expect("it answers"), keys(&[1, 3]));
    machine.write_cached(staging, 4).expect("it is writable");
    machine.reboot();
    mount(&self::host(&machine), VOLUME, STAGING, FsType::Ext4)
        .await
        .expect("it is mounted");
    assert_eq!(machine.read(staging).expect("it answers"), keys(&[1, 3]));
}

#[tokio::test(start_paused = true)]
async fn written_data_survive_unplug_with_foreign_mount() {
    let (machine, medium, _) = lab();
    let (host, staging) = (staged(&machine, FsType::Ext4).await, Path::new(STAGING));
    machine.hold_elsewhere(VOLUME, Holder::Mounts);
    machine.write_cached(staging, 1).expect("it is writable");
    assert!(host.write_back(staging).await.expect("the disk works"));
    machine.write_cached(staging, 2).expect("it is writable");
    host.unmount(staging).await.expect("no pod has it open");
    machine.unplug(VOLUME);
    assert!(!host.write_back(staging).await.expect("nothing is mounted"));

    let other = node("node-2", 2, &Violations::default());
    other.plug(VOLUME, medium, GIB);
    mount(&self::host(&other), VOLUME, STAGING, FsType::Ext4)
        .await
        .expect("it is mounted");
    assert_eq!(other.read(staging).expect("it answers"), keys(&[1]));
    other.unplug(VOLUME);
    let dead = self::host(&other).write_back(staging).await;
    assert!(matches!(dead, Err(MountError::Place { .. })), "{dead:?}");
}

#[tokio::test(start_paused = true)]
async fn reports_format_of_partially_visible_disk() {
    let (machine, _, violations) = lab();
    machine.set_faults(Faults {
        late_size: 1_000_000,
        ..Faults::default()
    });
    let host = host(&machine);
    let mut seen = false;
    for index in 0..8 {
        let volume_id = format!("{index}{}", &OTHER[1..]);
        machine.plug(&volume_id, Medium::blank(), 2 * GIB);
        let whole = host.find_device(&volume_id, Some(2 * GIB), Duration::ZERO).await;
        let early = host.find_device(&volume_id, None, Duration::ZERO).await;
        match (whole, early) {
            // The kernel shows the previous size.
            (Err(DeviceError::TooSmall { .. }), Ok(device)) => {
                host.prepare_filesystem(&device, FilesystemRequest::default())
                    .await
                    .expect("it is blank");
                seen = true;
            }
            (Err(DeviceError::NoSize { .. }), Err(DeviceError::NoSize { .. })) => {}
            other => panic!("{other:?}"),
        }
        let device = host.find_device(&volume_id, Some(2 * GIB), LIMIT).await;
        assert_eq!(device.expect("it is whole in the end").size_bytes, 2 * GIB);
    }
    assert!(seen);
    let seen = violations.list();
    assert!(
        !seen.is_empty() && seen.iter().all(|one| one.what.contains("on a part of the disk")),
        "{seen:?}"
    );
}
