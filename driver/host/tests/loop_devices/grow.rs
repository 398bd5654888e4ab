// SPDX-License-Identifier: Apache-2.0
//! File systems that grow while they are mounted and unmounted.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use csi_host::{Device, FilesystemError, FilesystemRequest, FsType, Host, MkfsOptions, MountOptions};

use crate::lab::{ANY, Lab, MIB, VOLUME, output, run};

async fn formatted(lab: &Lab, fs_type: FsType, mib: u64) -> Device {
    let device = lab.volume(VOLUME, mib * MIB).await;
    let requirements = FilesystemRequest {
        fs_type: Some(fs_type),
        ..ANY
    };
    let prepared = lab
        .host()
        .prepare_filesystem(&device, requirements)
        .await
        .expect("it is empty");
    assert_eq!((prepared.fs_type, prepared.formatted), (fs_type, true));
    device
}

/// Extends the backing file and the loop device, as Cinder and the hypervisor do.
async fn extend(lab: &Lab, device: &Device, mib: u64) -> Device {
    let backing = File::options().write(true).open(lab.at(&format!("{VOLUME}.img")));
    backing.and_then(|file| file.set_len(mib * MIB)).expect("a sparse file");
    output(
        Command::new("losetup")
            .arg("--set-capacity")
            .arg(Path::new("/dev").join(&device.name)),
    );
    lab.host()
        .find_device(VOLUME, Some(mib * MIB), Duration::from_secs(10))
        .await
        .expect("the kernel has seen it grow")
}

#[test]
#[ignore = "needs root"]
fn grows_mounted_xfs_and_btrfs_twice() {
    run("grow::grows_mounted_xfs_and_btrfs_twice", |lab| async move {
        for fs_type in [FsType::Xfs, FsType::Btrfs] {
            let (host, device) = (lab.host(), formatted(&lab, fs_type, 320).await);
            assert_eq!(
                host.filesystem_size(&device, fs_type)
                    .await
                    .expect("it has a superblock"),
                320 * MIB
            );
            let target = lab.directory("mount with space");
            host.mount(&device, &target, fs_type, &MountOptions::default())
                .await
                .expect("it is a file system");
            fs::write(target.join("data"), "data").expect("it can be written");
            let device = extend(&lab, &device, 640).await;
            let before = host.usage(&target).await.expect("it is mounted").bytes_total;
            for _ in 0..2 {
                host.grow_mounted(&device, fs_type, &target).await.expect("it grows");
            }
            let after = host.usage(&target).await.expect("it is mounted").bytes_total;
            assert!(after >= before + 300 * MIB, "{fs_type}: {before} to {after}");
            assert_eq!(fs::read_to_string(target.join("data")).expect("it is there"), "data");
            host.unmount(&target).await.expect("nobody uses it");
            assert_eq!(
                host.filesystem_size(&device, fs_type)
                    .await
                    .expect("it has a superblock"),
                640 * MIB
            );
            lab.detach(&device);
        }
    });
}

#[test]
#[ignore = "needs root"]
fn grows_ext4_unmounted_or_with_capability() {
    run("grow::grows_ext4_unmounted_or_with_capability", |lab| async move {
        let (host, device) = (lab.host(), formatted(&lab, FsType::Ext4, 64).await);
        let target = lab.directory("mounted");
        host.mount(&device, &target, FsType::Ext4, &MountOptions::default())
            .await
            .expect("it is a file system");
        fs::write(target.join("data"), "data").expect("it can be written");
        let device = extend(&lab, &device, 128).await;
        match host.grow_mounted(&device, FsType::Ext4, &target).await {
            Ok(()) => assert!(host.may_grow_mounted_ext()),
            Err(error) => {
                assert!(!host.may_grow_mounted_ext(), "{error}");
                assert!(matches!(error, FilesystemError::NotOnline { .. }), "{error}");
                assert!(error.to_string().contains("CAP_SYS_RESOURCE"), "{error}");
            }
        }
        host.unmount(&target).await.expect("nobody uses it");
        for _ in 0..2 {
            host.grow_unmounted_ext(&device, FsType::Ext4).await.expect("it grows");
        }
        assert_eq!(
            host.filesystem_size(&device, FsType::Ext4)
                .await
                .expect("it has a superblock"),
            128 * MIB
        );
        host.mount(&device, &target, FsType::Ext4, &MountOptions::default())
            .await
            .expect("it is whole");
        assert_eq!(fs::read_to_string(target.join("data")).expect("it is there"), "data");
        host.unmount(&target).await.expect("nobody uses it");
    });
}

#[test]
#[ignore = "needs root"]
fn passes_only_allowed_options_to_mkfs() {
    run("grow::passes_only_allowed_options_to_mkfs", |lab| async move {
        let (host, device) = (lab.host(), lab.volume(VOLUME, 64 * MIB).await);
        let with = |options: &str| FilesystemRequest {
            mkfs_options: MkfsOptions::parse(options),
            ..ANY
        };
        let error = host
            .prepare_filesystem(&device, with("-E offset=8192"))
            .await
            .expect_err("it leads off the beginning");
        assert!(matches!(error, FilesystemError::MkfsOption(_)), "{error}");
        assert!(
            crate::lab::read_device(&device).iter().all(|byte| *byte == 0),
            "nothing was begun"
        );
        host.prepare_filesystem(&device, with("-b 4096,-O ^has_journal,-E stride=16,stripe_width=32"))
            .await
            .expect("it is made so");
        let report = output(Command::new("dumpe2fs").arg("-h").arg(&device.path));
        let has = |line: &str| report.split_whitespace().collect::<Vec<_>>().join(" ").contains(line);
        assert!(
            has("Block size: 4096") && has("RAID stride: 16") && !has("has_journal"),
            "{report}"
        );
    });
}

#[test]
#[ignore = "needs root"]
fn mount_without_recovery_writes_nothing() {
    run("grow::mount_without_recovery_writes_nothing", |lab| async move {
        for fs_type in [FsType::Ext4, FsType::Xfs, FsType::Btrfs] {
            let (host, device): (Host, _) = (lab.host(), formatted(&lab, fs_type, 320).await);
            let target = lab.directory("mount");
            host.mount(&device, &target, fs_type, &MountOptions::default())
                .await
                .expect("it is a file system");
            fs::write(target.join("data"), "data").expect("it can be written");
            let file = File::open(target.join("data")).expect("it is there");
            file.sync_all().expect("the device works");
            drop(file);
            // The state of a volume after its server has died: synced data is in the journal, but not yet in its
            // final location.
            let copy = lab.at(&format!("{fs_type}.copy"));
            fs::copy(lab.at(&format!("{VOLUME}.img")), &copy).expect("a copy");
            host.unmount(&target).await.expect("nobody uses it");
            lab.detach(&device);
            let crashed = lab.attach(&copy, VOLUME).await;
            let before = crate::lab::read_device(&crashed);
            let option = fs_type.without_recovery().expect("it has a journal");
            let options = MountOptions::default().read_only().with(option);
            host.mount(&crashed, &target, fs_type, &options)
                .await
                .expect("it can be read");
            host.unmount(&target).await.expect("nobody uses it");
            assert!(crate::lab::read_device(&crashed) == before, "{fs_type} was written to");
            lab.detach(&crashed);
        }
    });
}
