// SPDX-License-Identifier: Apache-2.0
//! Config drives and disks of tenants on a machine in a directory.

use std::fs;
use std::os::unix::fs::symlink;

use rstest::rstest;
use tempfile::TempDir;

use super::*;

const CINDER_SERIAL: &str = "0cf2a1d9-6b1c-4c3e-9";

/// A directory with block devices.
struct Disks(TempDir);

impl Disks {
    fn new() -> Self {
        let disks = Self(tempfile::tempdir().expect("a temporary directory"));
        for directory in ["sys/block", "dev/disk/by-label"] {
            fs::create_dir_all(disks.path(directory)).expect("a directory");
        }
        disks
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn file(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("it has a parent")).expect("a directory");
        fs::write(path, content).expect("a file");
        self
    }

    /// Adds a device with a config drive on it. `entry` is its directory below `sys/block`.
    fn drive(&self, entry: &str, document: &str) -> &Self {
        let image = iso9660::tests::image(LABEL, document);
        let name = Path::new(entry).file_name().expect("a name").to_str().expect("text");
        self.file(&format!("sys/block/{entry}/size"), (image.len() / 512).to_string());
        self.file(&format!("dev/{name}"), image)
    }

    fn label(&self, name: &str) -> &Self {
        symlink(format!("../../{name}"), self.path("dev/disk/by-label/config-2")).expect("a link");
        self
    }

    /// Reads the drives as pairs of device and document.
    async fn read(&self) -> Result<Vec<(String, String)>, ConfigDriveError> {
        let host = Host::new(HostPaths {
            sys: self.path("sys"),
            dev: self.path("dev"),
            proc: "/proc".into(),
        });
        let drives = host.config_drives().await?;
        let pairs = drives.into_iter().map(|drive| {
            let device = drive.device.file_name().expect("a name").to_string_lossy().into_owned();
            (device, String::from_utf8(drive.document).expect("text"))
        });
        Ok(pairs.collect())
    }

    async fn assert_absent(&self) {
        let answer = self.read().await;
        assert!(matches!(answer, Err(ConfigDriveError::Absent)), "{answer:?}");
    }
}

fn pair(device: &str, document: &str) -> (String, String) {
    (device.to_owned(), document.to_owned())
}

#[test]
fn fat_is_recognized_by_either_label_field() {
    let boot = |offset: usize, label: &[u8; 11]| {
        let mut boot = [0; 512];
        boot[offset..offset + 11].copy_from_slice(label);
        boot[510..].copy_from_slice(&[0x55, 0xAA]);
        boot
    };
    assert!(is_labelled_fat(&boot(43, b"config-2   ")));
    assert!(is_labelled_fat(&boot(71, b"CONFIG-2   ")));
    assert!(!is_labelled_fat(&boot(43, b"config-20  ")));
    assert!(!is_labelled_fat(&[0; 512]));
}

#[tokio::test]
async fn drive_is_recognized_without_udev() {
    let disks = Disks::new();
    disks.drive("sr0", "{}").file("sys/block/vda/size", "2048");
    disks.file("dev/vda", vec![0; 1 << 20]);
    assert_eq!(disks.read().await.expect("a drive"), [pair("sr0", "{}")]);
    disks.file("dev/sr0", iso9660::tests::image("cidata", "{}"));
    disks.assert_absent().await;
    let image = iso9660::tests::image(LABEL, "{}");
    disks.file("dev/sr0", &image[..40 << 10]);
    let error = disks.read().await.expect_err("the image is cut");
    assert!(matches!(error, ConfigDriveError::Read { .. }), "{error}");
}

#[rstest]
#[case::logical_volume("dm-0")]
#[case::raid("md127")]
#[case::loop_device("loop0")]
#[case::network_block_device("nbd0")]
#[case::ceph("rbd0")]
#[case::drbd("drbd0")]
#[case::bcache("bcache0")]
#[case::compressed_memory("zram0")]
#[case::partition_of_raid("md0/md0p1")]
#[tokio::test]
async fn ignores_assembled_and_network_devices(#[case] entry: &str, #[values(false, true)] is_labelled: bool) {
    let disks = Disks::new();
    // The tenant's disk has a serial of Cinder. The device that the node assembles from it has no serial.
    disks.drive("vdb", "{}").file("sys/block/vdb/serial", CINDER_SERIAL);
    disks.file("sys/block/vdb/holders/dm-0", "");
    disks.drive(entry, r#"{"uuid":"of-the-tenant"}"#);
    disks.file("sys/block/md0/md0p1/partition", "1");
    if is_labelled {
        disks.label(entry.rsplit('/').next().expect("a name"));
    }
    disks.assert_absent().await;
}

#[rstest]
#[case::plain_disk("vdb", "")]
#[case::partition("vdb/vdb1", "sys/block/vdb/vdb1/partition")]
#[tokio::test]
async fn plain_disk_or_partition_is_read(#[case] entry: &str, #[case] file: &str) {
    let disks = Disks::new();
    disks.drive(entry, "{}");
    fs::create_dir_all(disks.path("sys/block/vdb/holders")).expect("a directory");
    if !file.is_empty() {
        disks.file(file, "1");
    }
    let name = entry.rsplit('/').next().expect("a name");
    assert_eq!(disks.read().await.expect("a drive"), [pair(name, "{}")]);
}

#[rstest]
#[case::holder("vdb", "sys/block/vdb/holders/dm-0", "")]
#[case::holder_of_partition("vdb/vdb1", "sys/block/vdb/vdb1/holders/md0", "")]
#[case::holder_of_the_whole_disk("vdb/vdb1", "sys/block/vdb/holders/dm-0", "")]
#[case::volume("vdb", "sys/block/vdb/serial", CINDER_SERIAL)]
#[case::partition_of_a_volume("vdb/vdb1", "sys/block/vdb/serial", CINDER_SERIAL)]
#[case::hidden_path("vdb", "sys/block/vdb/hidden", "1")]
#[case::nvme_over_tcp("nvme0n1", "sys/block/nvme0n1/device/transport", "tcp")]
#[case::nvme_of_unknown_transport("nvme0n1", "sys/block/nvme0n1/size", "64")]
#[tokio::test]
async fn refuses_disk_that_tenants_can_write(
    #[case] entry: &str,
    #[case] file: &str,
    #[case] content: &str,
    #[values(false, true)] is_labelled: bool,
) {
    let disks = Disks::new();
    disks.drive(entry, "{}").file(file, content);
    disks.file("sys/block/vdb/vdb1/partition", "1");
    if is_labelled {
        disks.label(entry.rsplit('/').next().expect("a name"));
    }
    disks.assert_absent().await;
}

#[rstest]
#[case::iscsi("platform/host3/session1/target3:0:0/3:0:0:1", false)]
#[case::fibre_channel("pci0000:00/host1/rport-1:0-0/target1:0:0/1:0:0:1", false)]
#[case::virtio("pci0000:00/virtio2/host0/target0:0:0/0:0:0:0", true)]
#[tokio::test]
async fn scsi_disk_over_storage_network_is_refused(#[case] address: &str, #[case] is_read: bool) {
    let disks = Disks::new();
    disks.drive("sdb", "{}").label("sdb");
    let entry = disks.path("sys/devices").join(address).join("block/sdb");
    fs::create_dir_all(entry.parent().expect("it has a parent")).expect("a directory");
    fs::rename(disks.path("sys/block/sdb"), &entry).expect("a directory");
    symlink(&entry, disks.path("sys/block/sdb")).expect("a link");
    if is_read {
        assert_eq!(disks.read().await.expect("a drive"), [pair("sdb", "{}")]);
    } else {
        disks.assert_absent().await;
    }
}

#[rstest]
#[case::one_path("nvme0n1/device/transport")]
#[case::several_paths("nvme0n1/device/nvme0/transport")]
#[tokio::test]
async fn nvme_disk_in_pci_slot_is_read(#[case] transport: &str) {
    let disks = Disks::new();
    disks
        .drive("nvme0n1", "{}")
        .file(&format!("sys/block/{transport}"), "pcie\n");
    assert_eq!(disks.read().await.expect("a drive"), [pair("nvme0n1", "{}")]);
}

#[tokio::test]
async fn cd_rom_takes_precedence_over_plain_disks() {
    let disks = Disks::new();
    disks.drive("vdb", "other").label("vdb").drive("sr0", "{}");
    assert_eq!(disks.read().await.expect("a drive"), [pair("sr0", "{}")]);
}

#[tokio::test]
async fn every_plain_config_drive_is_reported() {
    let disks = Disks::new();
    disks.drive("vdb", "one").drive("vdc", "other").label("vdb");
    let drives = disks.read().await.expect("drives");
    assert_eq!(drives, [pair("vdb", "one"), pair("vdc", "other")]);
}

#[tokio::test]
async fn large_disk_is_read_if_labelled() {
    let disks = Disks::new();
    disks.drive("vdb", "{}").file("sys/block/vdb/size", "4194304");
    disks.assert_absent().await;
    disks.label("vdb");
    assert_eq!(disks.read().await.expect("a drive"), [pair("vdb", "{}")]);
}
