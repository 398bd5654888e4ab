// SPDX-License-Identifier: Apache-2.0
//! A mkfs that is killed before its end.

use std::fs;

use csi_host::filesystem::Content;
use csi_host::{Device, FilesystemError, FilesystemRequest, FsType, Host, MountOptions, ToolError, Tools};
use rustix::process::{Pid, Signal, kill_process};

use crate::lab::{ANY, Lab, MIB, OTHER, VOLUME, read_at, read_device, run, write_at};

/// Builds a mkfs.ext4 that is killed before it writes everything.
///
/// It writes the same blocks as the real one, except the first 2 KiB and the blocks of 4 KiB after `blocks`. mke2fs has
/// this order: it writes the primary superblock last.
fn killed_ext4(lab: &Lab, blocks: u64) -> Tools {
    let body = format!(
        "made={}; truncate -s $(blockdev --getsize64 \"$device\") \"$made\"; mkfs.ext4 -q -F -E nodiscard \"$made\"\n\
         dd if=\"$made\" of=\"$device\" bs=2048 skip=1 seek=1 count={} conv=notrunc,fsync,sparse status=none\n\
         rm \"$made\"; kill -9 $$",
        lab.at("made.img").display(),
        blocks * 2
    );
    Tools {
        mkfs_ext4: lab.script("killed.ext4", &body),
        ..Tools::default()
    }
}

/// Builds a mkfs.xfs that is killed before it clears the state «in progress».
fn killed_xfs(lab: &Lab) -> Tools {
    let body = "mkfs.xfs -q -f -K \"$device\"\n\
                printf '\\1' | dd of=\"$device\" bs=1 seek=126 conv=notrunc,fsync status=none; kill -9 $$";
    Tools {
        mkfs_xfs: lab.script("killed.xfs", body),
        ..Tools::default()
    }
}

async fn assert_killed(host: &Host, device: &Device, requirements: FilesystemRequest) {
    let error = host
        .prepare_filesystem(device, requirements.clone())
        .await
        .expect_err("mkfs is killed");
    let killed = matches!(&error, FilesystemError::Tool(ToolError::Failed { ended, .. }) if ended.contains("SIGKILL"));
    assert!(killed, "{error}");
}

async fn assert_usable(lab: &Lab, device: &Device, fs_type: FsType) {
    let target = lab.directory("usable");
    let host = lab.host();
    host.mount(device, &target, fs_type, &MountOptions::default())
        .await
        .expect("it is a file system");
    fs::write(target.join("data"), "data").expect("it can be written");
    host.unmount(&target).await.expect("nobody uses it");
}

#[test]
#[ignore = "needs root"]
fn formats_ext4_again_after_killed_mkfs() {
    run("unfinished::formats_ext4_again_after_killed_mkfs", |lab| async move {
        // 64 MiB has blocks of 1 KiB, 600 MiB of 4 KiB. The cases range from no blocks to all blocks except the
        // superblock.
        for (volume, size) in [(VOLUME, 64 * MIB), (OTHER, 600 * MIB)] {
            let device = lab.volume(volume, size).await;
            for blocks in [0, 1, 100, size / 4096] {
                assert_killed(&lab.host_with(killed_ext4(&lab, blocks)), &device, ANY).await;
                let content = lab.host().probe(&device).await.expect("it can be read");
                let unknown = matches!(
                    content,
                    Content::Unknown {
                        superblock_is_zero: true,
                        ..
                    }
                );
                assert!(
                    unknown || (blocks == 0 && content == Content::Blank),
                    "{blocks} blocks: {content:?}"
                );
                let prepared = lab
                    .host()
                    .prepare_filesystem(&device, ANY)
                    .await
                    .expect("it is made anew");
                assert!(prepared.formatted, "{blocks} blocks");
                assert_usable(&lab, &device, FsType::Ext4).await;
                // Provides an empty disk for the next iteration.
                wipe(&device);
            }
        }
    });
}

fn wipe(device: &Device) {
    crate::lab::output(
        std::process::Command::new("blkdiscard")
            .args(["-f", "-z"])
            .arg(&device.path),
    );
}

#[test]
#[ignore = "needs root"]
fn formats_xfs_again_after_killed_mkfs() {
    run("unfinished::formats_xfs_again_after_killed_mkfs", |lab| async move {
        let device = lab.volume(VOLUME, 320 * MIB).await;
        let requirements = FilesystemRequest {
            fs_type: Some(FsType::Xfs),
            ..ANY
        };
        assert_killed(&lab.host_with(killed_xfs(&lab)), &device, requirements.clone()).await;
        assert_eq!(
            lab.host().probe(&device).await.expect("it can be read"),
            Content::Unfinished(FsType::Xfs)
        );
        let prepared = lab
            .host()
            .prepare_filesystem(&device, requirements.clone())
            .await
            .expect("it is made anew");
        assert!(prepared.formatted);
        assert_usable(&lab, &device, FsType::Xfs).await;
    });
}

#[test]
#[ignore = "needs root"]
fn formats_btrfs_again_after_killed_mkfs() {
    run("unfinished::formats_btrfs_again_after_killed_mkfs", |lab| async move {
        let device = lab.volume(VOLUME, 256 * MIB).await;
        let requirements = FilesystemRequest {
            fs_type: Some(FsType::Btrfs),
            ..ANY
        };
        // Before mkfs writes the magic number of its superblock, and before it writes the superblock at all.
        for (step, content) in [("printf '!BHRfS_M'", true), ("head -c 4096 /dev/zero", false)] {
            let body = format!(
                "mkfs.btrfs -q -f -K \"$device\"\n\
                     {step} | dd of=\"$device\" bs=1 seek=65600 conv=notrunc,fsync status=none; kill -9 $$"
            );
            let killed = lab.host_with(Tools {
                mkfs_btrfs: lab.script("killed.btrfs", &body),
                ..Tools::default()
            });
            assert_killed(&killed, &device, requirements.clone()).await;
            let probed = lab.host().probe(&device).await.expect("it can be read");
            assert_eq!(probed == Content::Unfinished(FsType::Btrfs), content, "{probed:?}");
            let prepared = lab
                .host()
                .prepare_filesystem(&device, requirements.clone())
                .await
                .expect("it is made anew");
            assert!(prepared.formatted);
            assert_usable(&lab, &device, FsType::Btrfs).await;
            wipe(&device);
        }
    });
}

#[test]
#[ignore = "needs root"]
fn refuses_unfinished_file_system_without_mark() {
    let name = "unfinished::refuses_unfinished_file_system_without_mark";
    run(name, |lab| async move {
        // A state that mkfs writes first and completes last. Programs that copy, restore or convert write it too.
        for (volume, fs_type, at, in_progress) in [
            (VOLUME, FsType::Xfs, 126, &b"\x01"[..]),
            (OTHER, FsType::Btrfs, (64 << 10) + 0x40, b"!BHRfS_M"),
        ] {
            let device = lab.volume(volume, 320 * MIB).await;
            let requirements = FilesystemRequest {
                fs_type: Some(fs_type),
                ..ANY
            };
            // Runs mkfs directly, so that the device has no mark of the driver.
            crate::lab::output(
                std::process::Command::new(format!("mkfs.{fs_type}"))
                    .args(["-q", "-f", "-K"])
                    .arg(&device.path),
            );
            write_at(&device, at, in_progress);
            let probed = lab.host().probe(&device).await.expect("it can be read");
            assert_eq!(probed, Content::Unfinished(fs_type));
            let before = read_device(&device);
            let error = lab.host().prepare_filesystem(&device, requirements.clone()).await;
            let error = error.expect_err("it may be data");
            assert!(matches!(error, FilesystemError::Unfinished { .. }), "{error}");
            assert!(read_device(&device) == before, "nothing is written to it");

            let message = error.to_string();
            let command = message.split('`').nth(1).expect("it names a command");
            crate::lab::output(std::process::Command::new("sh").args(["-c", command]));
            let prepared = lab.host().prepare_filesystem(&device, requirements).await;
            assert!(!prepared.expect("it is complete").formatted, "{command} did it");
            assert_usable(&lab, &device, fs_type).await;
        }
    });
}

#[test]
#[ignore = "needs root"]
fn refuses_copy_of_unfinished_volume() {
    run("unfinished::refuses_copy_of_unfinished_volume", |lab| async move {
        let device = lab.volume(VOLUME, 64 * MIB).await;
        assert_killed(&lab.host_with(killed_ext4(&lab, 100)), &device, ANY).await;
        let copy = lab.at("copy.img");
        fs::write(&copy, read_device(&device)).expect("a copy");
        let copied = lab.attach(&copy, OTHER).await;
        let error = lab
            .host()
            .prepare_filesystem(&copied, ANY)
            .await
            .expect_err("the mark is not this volume's");
        assert!(matches!(error, FilesystemError::Foreign { .. }), "{error}");
        assert!(read_device(&copied) == read_device(&device));
    });
}

#[test]
#[ignore = "needs root"]
fn mark_does_not_permit_overwriting_data() {
    run("unfinished::mark_does_not_permit_overwriting_data", |lab| async move {
        let device = lab.volume(VOLUME, 64 * MIB).await;
        assert_killed(&lab.host_with(killed_ext4(&lab, 100)), &device, ANY).await;
        write_at(&device, 0, b"somebody's data");
        let error = lab
            .host()
            .prepare_filesystem(&device, ANY)
            .await
            .expect_err("mke2fs writes nothing there");
        assert!(matches!(error, FilesystemError::Foreign { .. }), "{error}");
        assert_eq!(read_at(&device, 0, 15), b"somebody's data");
    });
}

#[test]
#[ignore = "needs root"]
fn clears_mark_of_finished_format() {
    run("unfinished::clears_mark_of_finished_format", |lab| async move {
        let device = lab.volume(VOLUME, 64 * MIB).await;
        // The process ends after mkfs and before the mark is cleared.
        let body = "mkfs.ext4 -q -F -E nodiscard \"$device\"; kill -9 $$";
        let host = lab.host_with(Tools {
            mkfs_ext4: lab.script("late.ext4", body),
            ..Tools::default()
        });
        assert_killed(&host, &device, ANY).await;
        let mark = b"cinder-csi: volume 0cf2a1d9";
        let has_mark = |device: &Device| read_device(device).windows(mark.len()).any(|window| window == mark);
        assert!(has_mark(&device), "mkfs leaves the mark alone");
        let prepared = lab
            .host()
            .prepare_filesystem(&device, ANY)
            .await
            .expect("it is complete");
        assert!(!prepared.formatted, "a complete file system is used");
        assert!(
            !has_mark(&device),
            "and from its first mount on nothing says that it holds no data"
        );
    });
}

#[test]
#[ignore = "needs root"]
fn mkfs_does_not_overwrite_mark() {
    run("unfinished::mkfs_does_not_overwrite_mark", |lab| async move {
        // From the smallest device with a mark to a large one, with block groups and allocation groups of every size,
        // even odd numbers.
        let sizes = [16, 64, 511, 512, 1024, 1025, 10 * 1024, 1024 * 1024].map(|mib| mib * MIB);
        for (index, size) in sizes.into_iter().enumerate() {
            for (fs_type, smallest, from_end) in [
                (FsType::Ext4, 0, 256 << 10),
                (FsType::Xfs, 300 * MIB, 256 << 10),
                (FsType::Btrfs, 128 * MIB, 4 * MIB),
            ] {
                if size < smallest {
                    continue;
                }
                let volume = format!("{index:08}-{fs_type}-0000-0000-000000000000");
                let device = lab.volume(&volume, size).await;
                let body = format!("mkfs.{fs_type} \"$@\"; kill -9 $$");
                let killed = lab.script("late.mkfs", &body);
                let host = lab.host_with(Tools {
                    mkfs_ext4: killed.clone(),
                    mkfs_xfs: killed.clone(),
                    mkfs_btrfs: killed,
                    ..Tools::default()
                });
                let requirements = FilesystemRequest {
                    fs_type: Some(fs_type),
                    ..ANY
                };
                assert_killed(&host, &device, requirements.clone()).await;
                let mark = format!("cinder-csi: volume {volume} of {size} bytes");
                let probed = read_at(&device, size - from_end, mark.len());
                assert_eq!(String::from_utf8_lossy(&probed), mark, "{fs_type} of {size} bytes");
                let prepared = lab
                    .host()
                    .prepare_filesystem(&device, requirements.clone())
                    .await
                    .expect("it is complete");
                assert!(!prepared.formatted);
            }
        }
    });
}

#[test]
#[ignore = "needs root"]
fn clears_mark_of_raw_volume() {
    run("unfinished::clears_mark_of_raw_volume", |lab| async move {
        let device = lab.volume(VOLUME, 64 * MIB).await;
        assert_killed(&lab.host_with(killed_ext4(&lab, 100)), &device, ANY).await;
        let before = read_device(&device);
        lab.host()
            .forget_unfinished_format(&device)
            .await
            .expect("the mark can be cleared");
        let changed = before
            .iter()
            .zip(read_device(&device))
            .filter(|(old, new)| *old != new)
            .count();
        assert!(
            changed > 0 && changed <= 4096,
            "the mark and nothing else: {changed} bytes"
        );
        let error = lab
            .host()
            .prepare_filesystem(&device, ANY)
            .await
            .expect_err("it may be raw data now");
        assert!(matches!(error, FilesystemError::Foreign { .. }), "{error}");
    });
}

#[test]
#[ignore = "needs root"]
fn late_mkfs_cannot_damage_mounted_file_system() {
    run(
        "unfinished::late_mkfs_cannot_damage_mounted_file_system",
        |lab| async move {
            let device = lab.volume(VOLUME, 64 * MIB).await;
            // Stops before it opens the device, as if the node had no time for it. Reports this through its pid file.
            let (pid, late) = (lab.at("pid"), lab.at("late"));
            let body = format!(
                "echo $$ > {0}.new; mv {0}.new {0}; kill -STOP $$; code=0; mkfs.ext4 \"$@\" || code=$?; \
             echo $code > {1}.new; mv {1}.new {1}",
                pid.display(),
                late.display()
            );
            let host = lab.host_with(Tools {
                mkfs_ext4: lab.script("stopped.ext4", &body),
                ..Tools::default()
            });
            let stopped = device.clone();
            let call = tokio::spawn(async move { host.prepare_filesystem(&stopped, ANY).await });
            let pid = wait_for_file(&pid).await;
            // The process that started mkfs is killed, and mkfs is not.
            call.abort();
            let prepared = lab
                .host()
                .prepare_filesystem(&device, ANY)
                .await
                .expect("the device is free");
            assert!(prepared.formatted);
            let target = lab.directory("mounted");
            lab.host()
                .mount(&device, &target, FsType::Ext4, &MountOptions::default())
                .await
                .expect("it is a file system");
            fs::write(target.join("data"), "data").expect("it can be written");
            let stopped = pid.trim().parse().ok().and_then(Pid::from_raw);
            kill_process(stopped.expect("it wrote its id"), Signal::CONT).expect("it lives");
            assert_ne!(wait_for_file(&late).await.trim(), "0", "a mounted device is claimed");
            lab.host().unmount(&target).await.expect("nobody uses it");
            lab.host()
                .mount(&device, &target, FsType::Ext4, &MountOptions::default())
                .await
                .expect("it is whole");
            assert_eq!(fs::read_to_string(target.join("data")).expect("it is there"), "data");
            lab.host().unmount(&target).await.expect("nobody uses it");
        },
    );
}

/// Returns the content of a file that another process renames into place.
async fn wait_for_file(path: &std::path::Path) -> String {
    let written = async {
        loop {
            match fs::read_to_string(path) {
                Ok(content) => return content,
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_mins(1), written)
        .await
        .expect("it appears")
}
