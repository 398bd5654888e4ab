// SPDX-License-Identifier: Apache-2.0
//! Devices that the driver formats, and devices that it refuses.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

use csi_host::filesystem::Content;
use csi_host::{DeviceError, FilesystemError, FilesystemRequest, FsType, MountOptions, ToolError, Tools};

use crate::lab::{ANY, MIB, VOLUME, open_exclusively, output, read_at, read_device, run, write_at};

#[test]
#[ignore = "needs root"]
fn formats_empty_volume_once() {
    let name = "format::formats_empty_volume_once";
    run(name, |lab| async move {
        for (volume, fs_type, size) in [
            (VOLUME, FsType::Ext4, 64 * MIB),
            (crate::lab::OTHER, FsType::Xfs, 320 * MIB),
        ] {
            let (host, device) = (lab.host(), lab.volume(volume, size).await);
            let requirements = FilesystemRequest {
                fs_type: Some(fs_type),
                ..ANY
            };
            let prepared = host
                .prepare_filesystem(&device, requirements.clone())
                .await
                .expect("it is empty");
            assert!(prepared.formatted && prepared.fs_type == fs_type);
            assert_eq!(
                host.probe(&device).await.expect("it can be read"),
                Content::Filesystem(fs_type)
            );

            let target = lab.directory(volume);
            host.mount(&device, &target, fs_type, &MountOptions::default())
                .await
                .expect("it is a file system");
            fs::write(target.join("data"), volume).expect("it can be written");
            assert!(host.unmount(&target).await.expect("nobody uses it"));

            let again = host
                .prepare_filesystem(&device, requirements.clone())
                .await
                .expect("it is a file system");
            assert!(!again.formatted);
            host.mount(&device, &target, fs_type, &MountOptions::default())
                .await
                .expect("it is a file system");
            assert_eq!(
                fs::read_to_string(target.join("data")).expect("it is still there"),
                volume
            );
            host.unmount(&target).await.expect("nobody uses it");
        }
    });
}

/// The incompatible and read-only features that Linux 5.10 supports (`XFS_SB_FEAT_INCOMPAT_*`,
/// `XFS_SB_FEAT_RO_COMPAT_*` of its `xfs_format.h`).
const XFS_INCOMPATIBLE: u32 = 0b1111;
const XFS_READ_ONLY: u32 = 0b1111;

#[test]
#[ignore = "needs root"]
fn new_xfs_mounts_on_linux_5_10() {
    run("format::new_xfs_mounts_on_linux_5_10", |lab| async move {
        let (host, device) = (lab.host(), lab.volume(VOLUME, 320 * MIB).await);
        let requirements = FilesystemRequest {
            fs_type: Some(FsType::Xfs),
            ..ANY
        };
        host.prepare_filesystem(&device, requirements)
            .await
            .expect("it is empty");
        let features = |offset| {
            let bytes = read_at(&device, offset, 4).try_into().expect("four bytes");
            u32::from_be_bytes(bytes)
        };
        // `sb_features_ro_compat` and `sb_features_incompat` of the superblock.
        let (read_only, incompatible) = (features(212), features(216));
        assert_eq!(
            (read_only & !XFS_READ_ONLY, incompatible & !XFS_INCOMPATIBLE),
            (0, 0),
            "{read_only:#b} {incompatible:#b}"
        );
    });
}

#[test]
#[ignore = "needs root"]
fn never_formats_unknown_bytes() {
    let name = "format::never_formats_unknown_bytes";
    run(name, |lab| async move {
        let (host, device) = (lab.host(), lab.volume(VOLUME, 64 * MIB).await);
        // The last offset is in one of the samples between the ends.
        let step = (60 * MIB) / 63;
        for offset in [
            0,
            1024,
            40_000,
            2 * MIB - 1,
            62 * MIB,
            64 * MIB - 1,
            (2 * MIB + 30 * step) >> 14 << 14,
        ] {
            write_at(&device, offset, b"x");
            let before = read_device(&device);
            let error = host.prepare_filesystem(&device, ANY).await.expect_err("it may be data");
            assert!(matches!(error, FilesystemError::Foreign { .. }), "at {offset}: {error}");
            assert!(
                read_device(&device) == before,
                "the device was changed for a byte at {offset}"
            );
            write_at(&device, offset, &[0]);
        }
        host.prepare_filesystem(&device, ANY).await.expect("it is empty now");
    });
}

#[test]
#[ignore = "needs root"]
fn never_formats_foreign_signatures() {
    let name = "format::never_formats_foreign_signatures";
    run(name, |lab| async move {
        let (host, device) = (lab.host(), lab.volume(VOLUME, 64 * MIB).await);
        let mut luks = b"LUKS\xba\xbe\x00\x01".to_vec();
        luks.resize(512, 0);
        let mut table = vec![0; 512];
        // One Linux partition from sector 2048, and the signature of a boot sector.
        table[446..462].copy_from_slice(&[0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 0x80, 0, 0]);
        table[510..].copy_from_slice(&[0x55, 0xaa]);
        for (what, first_sector) in [("crypto_LUKS", luks), ("dos partition table", table)] {
            write_at(&device, 0, &first_sector);
            let error = host.prepare_filesystem(&device, ANY).await.expect_err("it may be data");
            assert!(
                matches!(&error, FilesystemError::Foreign { found, .. } if found.contains(what)),
                "{error}"
            );
            assert_eq!(read_at(&device, 0, 512), first_sector);
            write_at(&device, 0, &[0; 512]);
        }
        output(Command::new("mkswap").arg(&device.path));
        let error = host
            .prepare_filesystem(&device, ANY)
            .await
            .expect_err("it is in use as swap elsewhere, perhaps");
        assert!(matches!(error, FilesystemError::Foreign { .. }), "{error}");
    });
}

#[test]
#[ignore = "needs root"]
fn refuses_file_system_of_other_type() {
    let name = "format::refuses_file_system_of_other_type";
    run(name, |lab| async move {
        let (host, device) = (lab.host(), lab.volume(VOLUME, 64 * MIB).await);
        host.prepare_filesystem(&device, ANY).await.expect("it is empty");
        let before = read_device(&device);
        let requirements = FilesystemRequest {
            fs_type: Some(FsType::Xfs),
            ..ANY
        };
        let error = host
            .prepare_filesystem(&device, requirements.clone())
            .await
            .expect_err("it is an ext4");
        assert!(
            matches!(
                error,
                FilesystemError::OtherType {
                    found: FsType::Ext4,
                    ..
                }
            ),
            "{error}"
        );
        assert!(read_device(&device) == before);
    });
}

#[test]
#[ignore = "needs root"]
fn ext3_volume_fulfills_ext4_request() {
    let name = "format::ext3_volume_fulfills_ext4_request";
    run(name, |lab| async move {
        let (host, device) = (lab.host(), lab.volume(VOLUME, 64 * MIB).await);
        output(Command::new("mkfs.ext3").args(["-F", "-q"]).arg(&device.path));
        let requirements = FilesystemRequest {
            fs_type: Some(FsType::Ext4),
            ..ANY
        };
        let prepared = host
            .prepare_filesystem(&device, requirements.clone())
            .await
            .expect("the kernel's ext4 mounts it");
        assert_eq!((prepared.fs_type, prepared.formatted), (FsType::Ext3, false));
    });
}

#[test]
#[ignore = "needs root"]
fn read_only_request_writes_nothing() {
    let name = "format::read_only_request_writes_nothing";
    run(name, |lab| async move {
        let device = lab.volume(VOLUME, 64 * MIB).await;
        let requirements = FilesystemRequest { read_only: true, ..ANY };
        let error = lab
            .host()
            .prepare_filesystem(&device, requirements.clone())
            .await
            .expect_err("it is empty");
        assert!(matches!(error, FilesystemError::EmptyReadOnly { .. }), "{error}");
        assert!(read_device(&device).iter().all(|byte| *byte == 0));

        lab.host().prepare_filesystem(&device, ANY).await.expect("it is empty");
        let before = read_device(&device);
        // A check would fail, because its program is missing.
        let host = lab.host_with(Tools {
            e2fsck: PathBuf::from("/nonexistent"),
            ..Tools::default()
        });
        host.prepare_filesystem(&device, requirements.clone())
            .await
            .expect("it is a file system");
        assert!(read_device(&device) == before);
    });
}

#[test]
#[ignore = "needs root"]
fn waits_for_running_mkfs() {
    let name = "format::waits_for_running_mkfs";
    run(name, |lab| async move {
        let (host, device) = (lab.host(), lab.volume(VOLUME, 64 * MIB).await);
        // A mkfs whose process was killed: it has the device open, and half of its work is done.
        let mkfs = open_exclusively(&device);
        let image_path = lab.at("made.img");
        output(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image_path).arg("64M"));
        let image = fs::read(&image_path).expect("it was made");
        write_at(&device, 4096, &image[4096..]);
        let (waiting, waited_for) = (host.clone(), device.clone());
        let mut prepare = tokio::spawn(async move { waiting.prepare_filesystem(&waited_for, ANY).await });
        let early = tokio::time::timeout(std::time::Duration::from_millis(300), &mut prepare).await;
        assert!(
            early.is_err(),
            "nothing may be decided while somebody writes: {early:?}"
        );
        write_at(&device, 0, &image[..4096]);
        drop(mkfs);
        let prepared = prepare.await.expect("no panic").expect("it is complete");
        assert!(!prepared.formatted, "the other's file system is taken");
    });
}

#[test]
#[ignore = "needs root"]
fn missing_mkfs_does_not_damage_volume() {
    let name = "format::missing_mkfs_does_not_damage_volume";
    run(name, |lab| async move {
        let device = lab.volume(VOLUME, 64 * MIB).await;
        let host = lab.host_with(Tools {
            mkfs_ext4: PathBuf::from("mkfs.missing"),
            ..Tools::default()
        });
        let error = host
            .prepare_filesystem(&device, ANY)
            .await
            .expect_err("there is no such program");
        assert!(
            matches!(error, FilesystemError::Tool(ToolError::Missing { .. })),
            "{error}"
        );
        let prepared = lab
            .host()
            .prepare_filesystem(&device, ANY)
            .await
            .expect("with the program it works");
        assert!(prepared.formatted);
    });
}

#[test]
#[ignore = "needs root"]
fn repairs_or_refuses_damaged_file_system() {
    let name = "format::repairs_or_refuses_damaged_file_system";
    run(name, |lab| async move {
        let device = lab.volume(VOLUME, 64 * MIB).await;
        lab.host().prepare_filesystem(&device, ANY).await.expect("it is empty");
        // A wrong count, as after a power failure. e2fsck -p corrects it.
        let count = ["-w", "-R", "set_super_value free_blocks_count 1"];
        output(Command::new("debugfs").args(count).arg(&device.path));
        output(
            Command::new("debugfs")
                .args(["-w", "-R", "set_super_value state 0"])
                .arg(&device.path),
        );
        lab.host()
            .prepare_filesystem(&device, ANY)
            .await
            .expect("it can be repaired");
        let check = Command::new("e2fsck")
            .args(["-f", "-n"])
            .arg(&device.path)
            .output()
            .expect("it is installed");
        assert_eq!(
            check.status.code(),
            Some(0),
            "{}",
            String::from_utf8_lossy(&check.stdout)
        );

        // An invalid root directory, which requires a decision of an administrator.
        output(Command::new("debugfs").args(["-w", "-R", "clri <2>"]).arg(&device.path));
        output(
            Command::new("debugfs")
                .args(["-w", "-R", "set_super_value state 0"])
                .arg(&device.path),
        );
        let before = fs::read(&device.path).expect("it can be read");
        let error = lab
            .host()
            .prepare_filesystem(&device, ANY)
            .await
            .expect_err("it is damaged");
        assert!(matches!(error, FilesystemError::Damaged { .. }), "{error}");
        assert_eq!(before.len(), read_device(&device).len());
    });
}

#[test]
#[ignore = "needs root"]
fn detached_device_is_an_error() {
    let name = "format::detached_device_is_an_error";
    run(name, |lab| async move {
        let device = lab.volume(VOLUME, 64 * MIB).await;
        // A loop device whose file is empty has no size. A detach would free it for another test.
        let node = fs::canonicalize(&device.path).expect("a node");
        let backing = File::options().write(true).open(lab.at(&format!("{VOLUME}.img")));
        backing.and_then(|file| file.set_len(0)).expect("a file");
        output(Command::new("losetup").arg("--set-capacity").arg(node));
        let error = lab
            .host()
            .prepare_filesystem(&device, ANY)
            .await
            .expect_err("it has gone");
        assert!(
            matches!(
                error,
                FilesystemError::Device(DeviceError::Access { .. } | DeviceError::TooSmall { .. })
            ),
            "{error}"
        );
    });
}
