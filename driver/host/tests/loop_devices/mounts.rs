// SPDX-License-Identifier: Apache-2.0
//! Mounts, binds and unmounts, and the kernel's messages about them.

use std::fs;
use std::process::Command;
use std::time::Duration;

use csi_host::mount::MountPointKind;
use csi_host::{DeviceError, FsType, Host, MountError, MountOptions};

use crate::lab::{ANY, Lab, MIB, OTHER, VOLUME, output, read_device, run};

/// Formats a volume and mounts it at `staging with space`.
async fn staged(lab: &Lab, options: &MountOptions) -> (Host, csi_host::Device, std::path::PathBuf) {
    let (host, device) = (lab.host(), lab.volume(VOLUME, 64 * MIB).await);
    host.prepare_filesystem(&device, ANY).await.expect("it is empty");
    let staging = lab.directory("staging with space");
    host.mount(&device, &staging, FsType::Ext4, options)
        .await
        .expect("it is a file system");
    (host, device, staging)
}

#[test]
#[ignore = "needs root"]
fn finds_mount_by_path_and_device() {
    run("mounts::finds_mount_by_path_and_device", |lab| async move {
        let options = MountOptions::parse(&["noatime,nodev", "commit=30"]).expect("all are known");
        let (host, device, staging) = staged(&lab, &options).await;
        let table = host.mounts().await.expect("the list can be read");
        let mount = table.at(&staging).expect("it is mounted");
        assert_eq!((mount.device, mount.fs_type.as_str()), (device.number, "ext4"));
        assert!(
            mount.options.contains("noatime") && mount.options.contains("nodev"),
            "{}",
            mount.options
        );
        assert!(mount.super_options.contains("commit=30"), "{}", mount.super_options);
        assert!(options.are_met_by(mount) && !MountOptions::default().read_only().are_met_by(mount));
        assert_eq!(table.of_device(&device).count(), 1);
        host.unmount(&staging).await.expect("nobody uses it");
    });
}

#[test]
#[ignore = "needs root"]
fn mount_error_includes_kernel_message() {
    run("mounts::mount_error_includes_kernel_message", |lab| async move {
        let (host, device) = (lab.host(), lab.volume(VOLUME, 64 * MIB).await);
        host.prepare_filesystem(&device, ANY).await.expect("it is empty");
        let options = MountOptions::parse(&["nosuchoption"]).expect("it may be the file system's");
        let target = lab.directory("target");
        let error = host
            .mount(&device, &target, FsType::Ext4, &options)
            .await
            .expect_err("ext4 does not know it");
        assert!(error.to_string().contains("nosuchoption"), "{error}");
        assert!(host.mounts().await.expect("the list can be read").at(&target).is_none());
    });
}

#[test]
#[ignore = "needs root"]
fn read_only_bind_does_not_affect_source() {
    run("mounts::read_only_bind_does_not_affect_source", |lab| async move {
        let options = MountOptions::parse(&["noatime", "nosuid"]).expect("all are known");
        let (host, _, staging) = staged(&lab, &options).await;
        let target = lab.directory("pod").join("mount");
        host.create_place(&target, MountPointKind::Directory, 0o750)
            .await
            .expect("it can be made");
        let read_only = MountOptions::default().read_only();
        host.bind(&staging, &target, MountPointKind::Directory, &read_only)
            .await
            .expect("it can be bound");
        assert!(fs::write(target.join("x"), "x").is_err());
        fs::write(staging.join("x"), "x").expect("the staged mount stays writable");
        assert_eq!(
            fs::read_to_string(target.join("x")).expect("it is the same file system"),
            "x"
        );
        let table = host.mounts().await.expect("the list can be read");
        let mount = table.at(&target).expect("it is mounted");
        assert!(mount.was_mounted_read_only());
        assert!(
            mount.options.contains("noatime") && mount.options.contains("nosuid"),
            "{}",
            mount.options
        );
        assert_eq!(
            fs::read_dir(lab.at("pod")).expect("it exists").count(),
            1,
            "nothing is left beside the target"
        );
        host.unmount(&target).await.expect("nobody uses it");
        host.remove_place(&target).await.expect("it is empty");
        host.unmount(&staging).await.expect("nobody uses it");
    });
}

#[test]
#[ignore = "needs root"]
fn bind_succeeds_although_draft_remains() {
    run("mounts::bind_succeeds_although_draft_remains", |lab| async move {
        let (host, _, staging) = staged(&lab, &MountOptions::default()).await;
        // Uses a file system of its own, because an append-only directory prevents removals.
        let pods = lab.volume(OTHER, 64 * MIB).await;
        host.prepare_filesystem(&pods, ANY).await.expect("it is empty");
        let pod = lab.directory("pod");
        host.mount(&pods, &pod, FsType::Ext4, &MountOptions::default())
            .await
            .expect("it is a file system");
        let target = lab.directory("pod/mount");
        output(Command::new("chattr").arg("+a").arg(&pod));
        let read_only = MountOptions::default().read_only();
        host.bind(&staging, &target, MountPointKind::Directory, &read_only)
            .await
            .expect("it is bound");
        let table = host.mounts().await.expect("the list can be read");
        assert!(table.at(&target).expect("it is mounted").was_mounted_read_only());
        let draft = lab.at("pod/mount.preparing");
        assert!(draft.exists(), "what the test is about");
        output(Command::new("chattr").arg("-a").arg(&pod));
        host.unmount(&target).await.expect("nobody uses it");
        assert!(!draft.exists(), "the next call clears it");
        for target in [&staging, &pod] {
            host.unmount(target).await.expect("nobody uses it");
        }
    });
}

#[test]
#[ignore = "needs root"]
fn unmount_removes_draft_of_interrupted_bind() {
    run("mounts::unmount_removes_draft_of_interrupted_bind", |lab| async move {
        let (host, device, staging) = staged(&lab, &MountOptions::default()).await;
        let draft = lab.directory("pod/mount.preparing");
        host.bind(&staging, &draft, MountPointKind::Directory, &MountOptions::default())
            .await
            .expect("it can be bound");
        let target = lab.at("pod/mount");
        assert!(
            !host.unmount(&target).await.expect("nothing is in the way"),
            "the target itself was not mounted"
        );
        assert!(!draft.exists());
        assert_eq!(
            host.mounts()
                .await
                .expect("the list can be read")
                .of_device(&device)
                .count(),
            1
        );
        host.unmount(&staging).await.expect("nobody uses it");
    });
}

#[test]
#[ignore = "needs root"]
fn unmount_removes_all_stacked_mounts() {
    run("mounts::unmount_removes_all_stacked_mounts", |lab| async move {
        let (host, device, staging) = staged(&lab, &MountOptions::default()).await;
        let target = lab.directory("target");
        for _ in 0..3 {
            host.bind(&staging, &target, MountPointKind::Directory, &MountOptions::default())
                .await
                .expect("it can be bound");
        }
        assert!(host.unmount(&target).await.expect("nobody uses it"));
        assert!(!host.unmount(&target).await.expect("nothing is there"));
        assert!(!host.unmount(&lab.at("nowhere")).await.expect("nothing is there"));
        assert_eq!(
            host.mounts()
                .await
                .expect("the list can be read")
                .of_device(&device)
                .count(),
            1
        );
        host.unmount(&staging).await.expect("nobody uses it");
    });
}

#[test]
#[ignore = "needs root"]
fn mount_in_use_is_busy() {
    run("mounts::mount_in_use_is_busy", |lab| async move {
        let (host, device, staging) = staged(&lab, &MountOptions::default()).await;
        let user = fs::File::create(staging.join("open")).expect("it can be written");
        let error = host.unmount(&staging).await.expect_err("a file is open");
        assert!(matches!(error, MountError::Busy { .. }), "{error}");
        let error = host
            .wait_until_idle(&device, Duration::ZERO)
            .await
            .expect_err("it is mounted");
        assert!(matches!(error, DeviceError::Busy { .. }), "{error}");
        drop(user);
        host.unmount(&staging).await.expect("nobody uses it");
        host.wait_until_idle(&device, Duration::from_secs(20))
            .await
            .expect("nobody uses it");
    });
}

#[test]
#[ignore = "needs root"]
fn never_removes_directory_with_content() {
    run("mounts::never_removes_directory_with_content", |lab| async move {
        let target = lab.directory("target");
        fs::write(target.join("data"), "written while nothing was mounted").expect("it can be written");
        let error = lab.host().remove_place(&target).await.expect_err("it is not empty");
        assert!(matches!(error, MountError::Place { .. }), "{error}");
        assert!(target.join("data").exists());
    });
}

#[test]
#[ignore = "needs root"]
fn binds_device_to_file() {
    run("mounts::binds_device_to_file", |lab| async move {
        let (host, device) = (lab.host(), lab.volume(VOLUME, 64 * MIB).await);
        let target = lab.at("pod/device");
        assert!(
            host.create_place(&target, MountPointKind::File, 0o640)
                .await
                .expect("it can be made")
        );
        assert!(
            !host
                .create_place(&target, MountPointKind::File, 0o640)
                .await
                .expect("it is there")
        );
        host.bind(
            &device.path,
            &target,
            MountPointKind::File,
            &MountOptions::default().read_only(),
        )
        .await
        .expect("it is bound");
        assert_eq!(
            host.device_number(&target).await.expect("it can be looked at"),
            Some(device.number)
        );
        assert_eq!(host.block_size(&target).await.expect("it can be opened"), 64 * MIB);
        assert_eq!(
            fs::read_dir(lab.at("pod")).expect("it exists").count(),
            1,
            "nothing is left beside the target"
        );
        host.unmount(&target).await.expect("nobody uses it");
        host.remove_place(&target).await.expect("it is a file");
        assert!(!target.exists());
    });
}

#[test]
#[ignore = "needs root"]
fn usage_includes_written_data_issue_1064() {
    run("mounts::usage_includes_written_data_issue_1064", |lab| async move {
        let (host, _, staging) = staged(&lab, &MountOptions::default()).await;
        let before = host.usage(&staging).await.expect("it is mounted");
        let data = fs::File::create(staging.join("data")).expect("it can be written");
        std::io::Write::write_all(&mut &data, &vec![1; 8 << 20]).expect("there is room");
        data.sync_all().expect("the device works");
        let after = host.usage(&staging).await.expect("it is mounted");
        assert_eq!(before.bytes_total, after.bytes_total);
        assert!(after.bytes_used >= before.bytes_used + 8 * MIB, "{before:?} {after:?}");
        assert_eq!(after.inodes_used, before.inodes_used + 1);
        drop(data);
        host.unmount(&staging).await.expect("nobody uses it");
    });
}

#[test]
#[ignore = "needs root"]
fn refuses_btrfs_of_several_devices() {
    run("mounts::refuses_btrfs_of_several_devices", |lab| async move {
        let (host, device) = (lab.host(), lab.volume(VOLUME, 128 * MIB).await);
        let other = lab.volume(OTHER, 128 * MIB).await;
        let profile = ["-q", "-f", "-d", "single", "-m", "single"];
        output(
            Command::new("mkfs.btrfs")
                .args(profile)
                .args([&device.path, &other.path]),
        );
        let before = [read_device(&device), read_device(&other)];
        let staging = lab.directory("staging");
        for options in [MountOptions::default(), MountOptions::default().read_only()] {
            let error = host.mount(&device, &staging, FsType::Btrfs, &options).await;
            let error = error.expect_err("the other device is another volume");
            assert!(
                matches!(error, MountError::SeveralDevices { devices: 2, .. }),
                "{error}"
            );
        }
        assert!(
            host.mounts()
                .await
                .expect("the list can be read")
                .at(&staging)
                .is_none()
        );
        assert!(
            [read_device(&device), read_device(&other)] == before,
            "nothing was written"
        );
    });
}
