// SPDX-License-Identifier: Apache-2.0
//! Discovery of devices on machines that exist as directories.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rstest::rstest;
use tempfile::TempDir;

use super::*;
use crate::{HostPaths, Linux, Machine as _};

const VOLUME: &str = "0cf2a1d9-6b1c-4c3e-9d3f-5a8f2f3d7e10";
const OTHER: &str = "7b7c1f60-aaaa-4bbb-8ccc-1234567890ab";
const AT_ONCE: Duration = Duration::ZERO;

/// A machine in a directory, with `sys` and `dev` as the kernel and udev would create them.
struct Machine {
    dir: TempDir,
}

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir_all(dir.path().join("sys/block")).expect("a directory");
        fs::create_dir_all(dir.path().join("dev/disk/by-id")).expect("a directory");
        Self { dir }
    }

    fn host(&self) -> Host {
        let at = |name| self.dir.path().join(name);
        Host::new(HostPaths {
            sys: at("sys"),
            dev: at("dev"),
            proc: "/proc".into(),
        })
    }

    fn disk(&self, name: &str, gib: u64) -> &Self {
        self.file(&format!("sys/block/{name}/size"), format!("{}\n", gib << 21));
        self.file(&format!("sys/block/{name}/dev"), "252:16\n");
        self.file(&format!("sys/block/{name}/ro"), "0\n");
        self.file(&format!("dev/{name}"), "");
        self
    }

    fn file(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().expect("it has a parent")).expect("a directory");
        fs::write(path, content).expect("a file");
        self
    }

    fn link(&self, name: &str, disk: &str) -> &Self {
        symlink(
            Path::new("../..").join(disk),
            self.dir.path().join("dev/disk/by-id").join(name),
        )
        .expect("a link");
        self
    }

    async fn find(&self) -> Result<Device, DeviceError> {
        self.host().find_device(VOLUME, None, AT_ONCE).await
    }
}

#[rstest]
#[case::virtio("block/vdb/serial", &VOLUME.as_bytes()[..20])]
#[case::nvme("block/vdb/device/serial", b"0cf2a1d9-6b1c-4c3e-9\n")]
#[case::scsi("block/vdb/device/vpd_pg80", b"\x00\x80\x00\x240cf2a1d9-6b1c-4c3e-9d3f-5a8f2f3d7e10")]
#[case::nvme_namespace("block/vdb/uuid", b"0cf2a1d9-6b1c-4c3e-9d3f-5a8f2f3d7e10\n")]
#[case::nvme_name("block/vdb/wwid", b"uuid.0cf2a1d9-6b1c-4c3e-9d3f-5a8f2f3d7e10\n")]
#[case::esxi_name("block/vdb/device/wwid", b"naa.0cf2a1d96b1c4c3e9d3f5a8f2f3d7e10\n")]
#[case::t10_name("block/vdb/device/wwid", b"t10.QEMU    QEMU HARDDISK   0cf2a1d9-6b1c-4c3e-9\n")]
#[case::without_dashes("block/vdb/device/vpd_pg80", b"\x00\x80\x00\x200cf2a1d96b1c4c3e9d3f5a8f2f3d7e10\0")]
#[tokio::test]
async fn finds_disk_by_sysfs_serial_issue_852(#[case] file: &str, #[case] serial: &[u8]) {
    let machine = Machine::new();
    machine.disk("vda", 8).file("sys/block/vda/serial", OTHER);
    machine.disk("vdb", 4).file(&format!("sys/{file}"), serial);
    let device = machine.find().await.expect("it is there");
    assert_eq!(
        (device.name.as_str(), device.size_bytes, device.number),
        ("vdb", 4 << 30, (252, 16))
    );
    assert!(device.path.ends_with("dev/vdb"), "{device:?}");
}

#[rstest]
#[case("virtio-0cf2a1d9-6b1c-4c3e-9")]
#[case("virtio-0cf2a1d9-6b1c-4c3e-9d3f-5a8f2f3d7e10")]
#[case("scsi-0QEMU_QEMU_HARDDISK_0cf2a1d9-6b1c-4c3e-9")]
#[case("scsi-0QEMU_QEMU_HARDDISK_0cf2a1d9-6b1c-4c3e-9d3f-5a8f2f3d7e10")]
#[case("scsi-SQEMU_QEMU_HARDDISK_0cf2a1d9-6b1c-4c3e-9d3f-5a8f2f3d7e10")]
#[case("wwn-0x0cf2a1d96b1c4c3e9d3f5a8f2f3d7e10")]
#[case("nvme-QEMU_NVMe_Ctrl_0cf2a1d9-6b1c-4c3e-9")]
#[case("nvme-QEMU_NVMe_Ctrl_0cf2a1d9-6b1c-4c3e-9_1")]
#[case("nvme-uuid.0cf2a1d9-6b1c-4c3e-9d3f-5a8f2f3d7e10")]
#[case("scsi-30cf2a1d96b1c4c3e9d3f5a8f2f3d7e10")]
#[case("ata-QEMU_HARDDISK_0cf2a1d9-6b1c-4c3e-9")]
#[case("scsi-0Msft_Virtual_Disk_0cf2a1d9-6b1c-4c3e-9d3f-5a8f2f3d7e10")]
#[tokio::test]
async fn finds_disk_by_link_issue_1192(#[case] link: &str) {
    let machine = Machine::new();
    machine.disk("sdb", 1).link(link, "sdb");
    assert_eq!(machine.find().await.expect("it is there").name, "sdb");
}

#[rstest]
#[case::of_a_partition("virtio-0cf2a1d9-6b1c-4c3e-9-part1")]
#[case::longer_serial("virtio-0cf2a1d9-6b1c-4c3e-9d")]
#[case::invalid_namespace("nvme-QEMU_NVMe_Ctrl_0cf2a1d9-6b1c-4c3e-9_part")]
#[case::similar_suffix("scsi-0X_7b0cf2a1d9-6b1c-4c3e-9d3f-5a8f2f3d7e10")]
#[tokio::test]
async fn ignores_link_of_similar_id(#[case] link: &str) {
    let machine = Machine::new();
    machine.disk("sdb", 1).link(link, "sdb");
    let error = machine.find().await.expect_err("it is another's");
    assert!(matches!(error, DeviceError::NotFound { looked_at: 1, .. }), "{error}");
}

#[rstest]
#[case::raid("md127", "md-name-any:x_0cf2a1d9-6b1c-4c3e-9d3f-5a8f2f3d7e10", "", false)]
#[case::logical_volume("dm-3", "dm-name-x-0cf2a1d9-6b1c-4c3e-9d3f-5a8f2f3d7e10", "LVM-f3Ct", false)]
#[case::multipath("dm-3", "wwn-0x0cf2a1d96b1c4c3e9d3f5a8f2f3d7e10", "mpath-30cf2a1d96b1c", true)]
#[tokio::test]
async fn assembled_device_with_name_of_volume_is_ignored(
    #[case] name: &str,
    #[case] link: &str,
    #[case] dm_uuid: &str,
    #[case] is_found: bool,
) {
    let machine = Machine::new();
    machine
        .disk(name, 1)
        .file(&format!("sys/block/{name}/dm/uuid"), dm_uuid);
    machine.link(link, name);
    assert_eq!(machine.find().await.is_ok(), is_found);
    machine.disk("vdb", 1).file("sys/block/vdb/serial", &VOLUME[..20]);
    assert_eq!(
        machine.find().await.is_ok(),
        !is_found,
        "another device would be ambiguous"
    );
}

#[rstest]
#[case::another_volume(Some(("serial", "volume-2")), None)]
// The root disk of a server that boots from an image.
#[case::empty_serial(Some(("serial", "")), None)]
#[case::scsi_without_serial(Some(("device/vpd_pg83", "QEMU")), None)]
#[case::config_drive(Some(("removable", "1\n")), None)]
#[case::unreadable(None, Some("sdc"))]
#[tokio::test]
async fn stale_link_is_refused_issue_2115(#[case] attribute: Option<(&str, &str)>, #[case] expected: Option<&str>) {
    let machine = Machine::new();
    machine
        .disk("vdb", 1)
        .file("sys/block/vdb/serial", &OTHER[..20])
        .link("virtio-0cf2a1d9-6b1c-4c3e-9", "vdb");
    machine.disk("sdc", 8);
    if let Some((file, content)) = attribute {
        machine.file(&format!("sys/block/sdc/{file}"), content);
    }
    let error = machine.find().await.expect_err("the link is stale");
    let DeviceError::Stale {
        serial, unidentified, ..
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!((serial.as_str(), unidentified.as_deref()), (&OTHER[..20], expected));
    assert_eq!(error.to_string().contains("sdc"), expected.is_some(), "{error}");
}

#[tokio::test]
async fn prefers_serial_to_stale_link() {
    let machine = Machine::new();
    machine
        .disk("vdb", 1)
        .file("sys/block/vdb/serial", &OTHER[..20])
        .link("virtio-0cf2a1d9-6b1c-4c3e-9", "vdb");
    machine.disk("vdc", 1).file("sys/block/vdc/serial", &VOLUME[..20]);
    assert_eq!(machine.find().await.expect("its serial tells").name, "vdc");
}

#[tokio::test]
async fn prefers_valid_link_to_stale_link() {
    let machine = Machine::new();
    machine
        .disk("vdb", 1)
        .file("sys/block/vdb/serial", &OTHER[..20])
        .link("virtio-0cf2a1d9-6b1c-4c3e-9", "vdb");
    // The kernel shows no serial of this disk.
    machine
        .disk("sdc", 1)
        .link("scsi-30cf2a1d96b1c4c3e9d3f5a8f2f3d7e10", "sdc");
    assert_eq!(machine.find().await.expect("its link tells").name, "sdc");
}

#[tokio::test]
async fn refuses_two_disks_with_one_identity() {
    let machine = Machine::new();
    machine.disk("vdb", 1).file("sys/block/vdb/serial", &VOLUME[..20]);
    machine
        .disk("sdc", 1)
        .link("wwn-0x0cf2a1d96b1c4c3e9d3f5a8f2f3d7e10", "sdc");
    let error = machine.find().await.expect_err("one of them is not the volume");
    assert!(
        matches!(&error, DeviceError::Ambiguous { candidates, .. } if candidates.len() == 2),
        "{error}"
    );
}

#[tokio::test]
async fn accepts_serial_and_links_of_one_disk() {
    let machine = Machine::new();
    machine.disk("vdb", 1).file("sys/block/vdb/serial", &VOLUME[..20]);
    machine
        .link("virtio-0cf2a1d9-6b1c-4c3e-9", "vdb")
        .link("wwn-0x0cf2a1d96b1c4c3e9d3f5a8f2f3d7e10", "vdb");
    assert_eq!(machine.find().await.expect("they agree").name, "vdb");
}

#[tokio::test]
async fn multipath_paths_are_one_disk() {
    let machine = Machine::new();
    for path in ["sda", "sdb"] {
        machine
            .disk(path, 1)
            .file(&format!("sys/block/{path}/device/serial"), VOLUME);
        machine.file(&format!("sys/block/{path}/holders/dm-0/name"), "");
    }
    machine.disk("dm-0", 1).file("sys/block/dm-0/dm/uuid", "mpath-0QEMU");
    assert_eq!(machine.find().await.expect("the paths agree").name, "dm-0");
}

#[tokio::test]
async fn link_to_map_of_other_volume_is_stale() {
    let machine = Machine::new();
    machine
        .disk("sda", 1)
        .file("sys/block/sda/device/serial", "7b7c1f60-aaaa-4bbb-8ccc-1234567890ab");
    machine.file("sys/block/sda/holders/dm-0/name", "");
    machine.disk("dm-0", 1).file("sys/block/dm-0/dm/uuid", "mpath-0QEMU");
    machine.file("sys/block/dm-0/slaves/sda/size", "");
    machine.link(&format!("scsi-3{}", VOLUME.replace('-', "")), "dm-0");
    let error = machine.find().await.expect_err("the map is another volume");
    assert!(matches!(error, DeviceError::Stale { .. }), "{error}");
}

#[tokio::test]
async fn refuses_disk_smaller_than_volume_issue_2071() {
    let machine = Machine::new();
    machine.disk("vdb", 1).file("sys/block/vdb/serial", &VOLUME[..20]);
    let error = machine
        .host()
        .find_device(VOLUME, Some(2 << 30), AT_ONCE)
        .await
        .expect_err("it is too small");
    assert!(
        matches!(
            error,
            DeviceError::TooSmall {
                actual: 1_073_741_824,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn waits_for_disk_without_size() {
    let machine = Machine::new();
    machine.disk("vdb", 0).file("sys/block/vdb/serial", &VOLUME[..20]);
    let host = machine.host();
    let search = tokio::spawn(async move { host.find_device(VOLUME, None, Duration::from_mins(1)).await });
    machine.file("sys/block/vdb/size", "2048\n");
    assert_eq!(search.await.expect("no panic").expect("it appears").size_bytes, 1 << 20);
}

#[tokio::test]
async fn missing_disk_error_names_remedy() {
    let error = Machine::new().find().await.expect_err("there is none");
    let text = error.to_string();
    assert!(
        text.contains(VOLUME) && text.contains("by-id") && text.contains("Nova"),
        "{text}"
    );
}

#[tokio::test]
async fn open_rejects_wrong_device_node() {
    let machine = Machine::new();
    machine.disk("vdb", 1).file("sys/block/vdb/serial", &VOLUME[..20]);
    let device = machine.find().await.expect("it is there");
    let error = device
        .open(&Linux::default(), Open::Read)
        .expect_err("the node is an ordinary file");
    assert!(
        matches!(
            error,
            DeviceError::WrongNode {
                expected: (252, 16),
                ..
            }
        ),
        "{error}"
    );
}

#[rstest]
#[case::scsi("sys/block/sdb/device/rescan")]
#[case::nvme("sys/block/sdb/device/rescan_controller")]
#[tokio::test]
async fn rescans_only_the_small_disk_issue_2588(#[case] file: &str) {
    let machine = Machine::new();
    machine.disk("sda", 1).file("sys/block/sda/device/rescan", "");
    machine
        .disk("sdb", 1)
        .file("sys/block/sdb/serial", &VOLUME[..20])
        .file(file, "");
    let error = machine
        .host()
        .find_device(VOLUME, Some(2 << 30), AT_ONCE)
        .await
        .expect_err("the kernel of this machine is made of files");
    assert!(matches!(error, DeviceError::TooSmall { .. }), "{error}");
    let read = |file: &str| fs::read_to_string(machine.dir.path().join(file)).expect("it is there");
    assert_eq!(
        (read(file).as_str(), read("sys/block/sda/device/rescan").as_str()),
        ("1", "")
    );
    machine.disk("sdb", 2);
    let device = machine.host().find_device(VOLUME, Some(2 << 30), AT_ONCE).await;
    assert_eq!(device.expect("it has grown").size_bytes, 2 << 30);
}

#[tokio::test]
async fn watch_reports_link_in_new_directory() {
    let machine = Machine::new();
    machine.disk("sdb", 1);
    fs::remove_dir_all(machine.dir.path().join("dev/disk")).expect("udev has not made it yet");
    let device_watch = Linux::default()
        .device_watch(machine.host().paths())
        .expect("this kernel has inotify");
    let happens = async || {
        tokio::time::timeout(Duration::from_secs(10), device_watch.happen())
            .await
            .expect("it is noticed")
            .expect("it can be read");
    };
    fs::create_dir_all(machine.dir.path().join("dev/disk/by-id")).expect("a directory");
    happens().await;
    machine.link("virtio-0cf2a1d9-6b1c-4c3e-9", "sdb");
    happens().await;
    assert_eq!(machine.find().await.expect("it is there").name, "sdb");
}
