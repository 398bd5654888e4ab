// SPDX-License-Identifier: Apache-2.0
//! Mounting, binding, unmounting, and what the kernel says about them.

use std::fs;
use std::process::Command;
use std::time::Duration;

use csi_host::mount::Place;
use csi_host::{DeviceError, FsType, Host, MountError, MountOptions};

use crate::lab::{ANY, Lab, MIB, OTHER, VOLUME, everything, output, run};

/// A host with a formatted volume mounted at `staging with space`.
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
fn a_mount_is_found_by_path_and_by_device_with_its_options() {
    run(
        "mounts::a_mount_is_found_by_path_and_by_device_with_its_options",
        |lab| async move {
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
        },
    );
}

#[test]
fn the_kernels_own_words_are_in_the_error() {
    run("mounts::the_kernels_own_words_are_in_the_error", |lab| async move {
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
fn a_read_only_bind_refuses_writes_and_leaves_the_other_writable() {
    run(
        "mounts::a_read_only_bind_refuses_writes_and_leaves_the_other_writable",
        |lab| async move {
            let options = MountOptions::parse(&["noatime", "nosuid"]).expect("all are known");
            let (host, _, staging) = staged(&lab, &options).await;
            let target = lab.directory("pod").join("mount");
            host.create_place(&target, Place::Directory, 0o750)
                .await
                .expect("it can be made");
            let read_only = MountOptions::default().read_only();
            host.bind(&staging, &target, Place::Directory, &read_only)
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
        },
    );
}

#[test]
fn a_draft_that_cannot_be_removed_takes_nothing_away_from_a_good_bind() {
    run(
        "mounts::a_draft_that_cannot_be_removed_takes_nothing_away_from_a_good_bind",
        |lab| async move {
            let (host, _, staging) = staged(&lab, &MountOptions::default()).await;
            // On a file system of the test's own: in a directory that only grows, nothing can be removed.
            let pods = lab.volume(OTHER, 64 * MIB).await;
            host.prepare_filesystem(&pods, ANY).await.expect("it is empty");
            let pod = lab.directory("pod");
            host.mount(&pods, &pod, FsType::Ext4, &MountOptions::default())
                .await
                .expect("it is a file system");
            let target = lab.directory("pod/mount");
            output(Command::new("chattr").arg("+a").arg(&pod));
            let read_only = MountOptions::default().read_only();
            host.bind(&staging, &target, Place::Directory, &read_only)
                .await
                .expect("it is bound");
            let table = host.mounts().await.expect("the list can be read");
            assert!(table.at(&target).expect("it is mounted").was_mounted_read_only());
            let draft = lab.at("pod/mount.preparing");
            assert!(draft.exists(), "what the test is about");
            output(Command::new("chattr").arg("-a").arg(&pod));
            host.unmount(&target).await.expect("nobody uses it");
            assert!(!draft.exists(), "the next call clears it");
            for place in [&staging, &pod] {
                host.unmount(place).await.expect("nobody uses it");
            }
        },
    );
}

#[test]
fn what_an_interrupted_bind_left_is_cleared_away() {
    run(
        "mounts::what_an_interrupted_bind_left_is_cleared_away",
        |lab| async move {
            let (host, device, staging) = staged(&lab, &MountOptions::default()).await;
            let draft = lab.directory("pod/mount.preparing");
            host.bind(&staging, &draft, Place::Directory, &MountOptions::default())
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
        },
    );
}

#[test]
fn unmounting_takes_off_every_layer_and_is_fine_with_none() {
    run(
        "mounts::unmounting_takes_off_every_layer_and_is_fine_with_none",
        |lab| async move {
            let (host, device, staging) = staged(&lab, &MountOptions::default()).await;
            let target = lab.directory("target");
            for _ in 0..3 {
                host.bind(&staging, &target, Place::Directory, &MountOptions::default())
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
        },
    );
}

#[test]
fn a_mount_in_use_is_busy_and_its_device_is_not_idle() {
    run(
        "mounts::a_mount_in_use_is_busy_and_its_device_is_not_idle",
        |lab| async move {
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
        },
    );
}

#[test]
fn a_directory_with_content_is_never_removed() {
    run("mounts::a_directory_with_content_is_never_removed", |lab| async move {
        let target = lab.directory("target");
        fs::write(target.join("data"), "written while nothing was mounted").expect("it can be written");
        let error = lab.host().remove_place(&target).await.expect_err("it is not empty");
        assert!(matches!(error, MountError::Place { .. }), "{error}");
        assert!(target.join("data").exists());
    });
}

#[test]
fn a_device_is_bound_to_a_file_and_keeps_its_number() {
    run(
        "mounts::a_device_is_bound_to_a_file_and_keeps_its_number",
        |lab| async move {
            let (host, device) = (lab.host(), lab.volume(VOLUME, 64 * MIB).await);
            let target = lab.at("pod/device");
            assert!(
                host.create_place(&target, Place::File, 0o640)
                    .await
                    .expect("it can be made")
            );
            assert!(
                !host
                    .create_place(&target, Place::File, 0o640)
                    .await
                    .expect("it is there")
            );
            host.bind(&device.path, &target, Place::File, &MountOptions::default().read_only())
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
        },
    );
}

#[test]
fn the_usage_follows_what_is_written_issue_1064() {
    run(
        "mounts::the_usage_follows_what_is_written_issue_1064",
        |lab| async move {
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
        },
    );
}

#[test]
fn btrfs_of_several_devices_is_refused() {
    run("mounts::btrfs_of_several_devices_is_refused", |lab| async move {
        let (host, device) = (lab.host(), lab.volume(VOLUME, 128 * MIB).await);
        let other = lab.volume(OTHER, 128 * MIB).await;
        let profile = ["-q", "-f", "-d", "single", "-m", "single"];
        output(
            Command::new("mkfs.btrfs")
                .args(profile)
                .args([&device.path, &other.path]),
        );
        let before = [everything(&device), everything(&other)];
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
            [everything(&device), everything(&other)] == before,
            "nothing was written"
        );
    });
}
