// SPDX-License-Identifier: Apache-2.0
//! A mkfs that was killed in the middle.

use std::fs;

use csi_host::filesystem::Content;
use csi_host::{Device, FilesystemError, FsType, Host, MountOptions, Prepare, ToolError, Tools};
use rustix::process::{Pid, Signal, kill_process};

use crate::lab::{ANY, Lab, MIB, OTHER, VOLUME, everything, read_at, run, write_at};

/// A mkfs.ext4 that writes the blocks that the real one writes, but the first 2 KiB and what lies behind `blocks` of 4 KiB,
/// and is killed then. That is the order of mke2fs: the primary superblock comes last.
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

/// A mkfs.xfs that is killed before it takes off its «in progress».
fn killed_xfs(lab: &Lab) -> Tools {
    let body = "mkfs.xfs -q -f -K \"$device\"\n\
                printf '\\1' | dd of=\"$device\" bs=1 seek=126 conv=notrunc,fsync status=none; kill -9 $$";
    Tools {
        mkfs_xfs: lab.script("killed.xfs", body),
        ..Tools::default()
    }
}

async fn be_killed(host: &Host, device: &Device, wanted: Prepare) {
    let error = host
        .prepare_filesystem(device, wanted.clone())
        .await
        .expect_err("mkfs is killed");
    let killed = matches!(&error, FilesystemError::Tool(ToolError::Failed { ended, .. }) if ended.contains("SIGKILL"));
    assert!(killed, "{error}");
}

async fn is_usable(lab: &Lab, device: &Device, fs_type: FsType) {
    let target = lab.directory("usable");
    let host = lab.host();
    host.mount(device, &target, fs_type, &MountOptions::default())
        .await
        .expect("it is a file system");
    fs::write(target.join("data"), "data").expect("it can be written");
    host.unmount(&target).await.expect("nobody uses it");
}

#[test]
fn an_ext4_whose_mkfs_was_killed_is_made_anew() {
    run(
        "unfinished::an_ext4_whose_mkfs_was_killed_is_made_anew",
        |lab| async move {
            // 64 MiB has blocks of 1 KiB, 600 MiB of 4 KiB; from nothing written to everything but the superblock.
            for (volume, size) in [(VOLUME, 64 * MIB), (OTHER, 600 * MIB)] {
                let device = lab.volume(volume, size).await;
                for blocks in [0, 1, 100, size / 4096] {
                    be_killed(&lab.host_with(killed_ext4(&lab, blocks)), &device, ANY).await;
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
                    is_usable(&lab, &device, FsType::Ext4).await;
                    // An empty disk for the next round.
                    wipe(&device);
                }
            }
        },
    );
}

fn wipe(device: &Device) {
    crate::lab::output(
        std::process::Command::new("blkdiscard")
            .args(["-f", "-z"])
            .arg(&device.path),
    );
}

#[test]
fn an_xfs_whose_mkfs_was_killed_is_made_anew() {
    run(
        "unfinished::an_xfs_whose_mkfs_was_killed_is_made_anew",
        |lab| async move {
            let device = lab.volume(VOLUME, 320 * MIB).await;
            let wanted = Prepare {
                fs_type: Some(FsType::Xfs),
                ..ANY
            };
            be_killed(&lab.host_with(killed_xfs(&lab)), &device, wanted.clone()).await;
            assert_eq!(
                lab.host().probe(&device).await.expect("it can be read"),
                Content::Unfinished(FsType::Xfs)
            );
            let prepared = lab
                .host()
                .prepare_filesystem(&device, wanted.clone())
                .await
                .expect("it is made anew");
            assert!(prepared.formatted);
            is_usable(&lab, &device, FsType::Xfs).await;
        },
    );
}

#[test]
fn a_btrfs_whose_mkfs_was_killed_is_made_anew() {
    run(
        "unfinished::a_btrfs_whose_mkfs_was_killed_is_made_anew",
        |lab| async move {
            let device = lab.volume(VOLUME, 256 * MIB).await;
            let wanted = Prepare {
                fs_type: Some(FsType::Btrfs),
                ..ANY
            };
            // Before it writes the magic number of its superblock, and before it writes the superblock at all.
            for (step, content) in [("printf '!BHRfS_M'", true), ("head -c 4096 /dev/zero", false)] {
                let body = format!(
                    "mkfs.btrfs -q -f -K \"$device\"\n\
                     {step} | dd of=\"$device\" bs=1 seek=65600 conv=notrunc,fsync status=none; kill -9 $$"
                );
                let killed = lab.host_with(Tools {
                    mkfs_btrfs: lab.script("killed.btrfs", &body),
                    ..Tools::default()
                });
                be_killed(&killed, &device, wanted.clone()).await;
                let found = lab.host().probe(&device).await.expect("it can be read");
                assert_eq!(found == Content::Unfinished(FsType::Btrfs), content, "{found:?}");
                let prepared = lab
                    .host()
                    .prepare_filesystem(&device, wanted.clone())
                    .await
                    .expect("it is made anew");
                assert!(prepared.formatted);
                is_usable(&lab, &device, FsType::Btrfs).await;
                wipe(&device);
            }
        },
    );
}

#[test]
fn an_unfinished_file_system_without_our_mark_is_refused_with_the_command_that_formats_it() {
    let name = "unfinished::an_unfinished_file_system_without_our_mark_is_refused_with_the_command_that_formats_it";
    run(name, |lab| async move {
        // What mkfs writes first and completes last, and so do the programs that copy, restore or convert.
        for (volume, fs_type, at, in_progress) in [
            (VOLUME, FsType::Xfs, 126, &b"\x01"[..]),
            (OTHER, FsType::Btrfs, (64 << 10) + 0x40, b"!BHRfS_M"),
        ] {
            let device = lab.volume(volume, 320 * MIB).await;
            let wanted = Prepare {
                fs_type: Some(fs_type),
                ..ANY
            };
            // Made by hand, so that no mark of ours is on it.
            crate::lab::output(
                std::process::Command::new(format!("mkfs.{fs_type}"))
                    .args(["-q", "-f", "-K"])
                    .arg(&device.path),
            );
            write_at(&device, at, in_progress);
            let found = lab.host().probe(&device).await.expect("it can be read");
            assert_eq!(found, Content::Unfinished(fs_type));
            let before = everything(&device);
            let error = lab.host().prepare_filesystem(&device, wanted.clone()).await;
            let error = error.expect_err("it may be data");
            assert!(matches!(error, FilesystemError::Unfinished { .. }), "{error}");
            assert!(everything(&device) == before, "nothing is written to it");

            let message = error.to_string();
            let command = message.split('`').nth(1).expect("it names a command");
            crate::lab::output(std::process::Command::new("sh").args(["-c", command]));
            let prepared = lab.host().prepare_filesystem(&device, wanted).await;
            assert!(!prepared.expect("it is complete").formatted, "{command} did it");
            is_usable(&lab, &device, fs_type).await;
        }
    });
}

#[test]
fn a_copy_of_an_unfinished_volume_is_refused() {
    run(
        "unfinished::a_copy_of_an_unfinished_volume_is_refused",
        |lab| async move {
            let device = lab.volume(VOLUME, 64 * MIB).await;
            be_killed(&lab.host_with(killed_ext4(&lab, 100)), &device, ANY).await;
            let copy = lab.at("copy.img");
            fs::write(&copy, everything(&device)).expect("a copy");
            let copied = lab.attach(&copy, OTHER).await;
            let error = lab
                .host()
                .prepare_filesystem(&copied, ANY)
                .await
                .expect_err("the mark is not this volume's");
            assert!(matches!(error, FilesystemError::Foreign { .. }), "{error}");
            assert!(everything(&copied) == everything(&device));
        },
    );
}

#[test]
fn a_mark_is_no_licence_where_a_superblock_or_foreign_data_is() {
    run(
        "unfinished::a_mark_is_no_licence_where_a_superblock_or_foreign_data_is",
        |lab| async move {
            let device = lab.volume(VOLUME, 64 * MIB).await;
            be_killed(&lab.host_with(killed_ext4(&lab, 100)), &device, ANY).await;
            write_at(&device, 0, b"somebody's data");
            let error = lab
                .host()
                .prepare_filesystem(&device, ANY)
                .await
                .expect_err("mke2fs writes nothing there");
            assert!(matches!(error, FilesystemError::Foreign { .. }), "{error}");
            assert_eq!(read_at(&device, 0, 15), b"somebody's data");
        },
    );
}

#[test]
fn a_finished_format_leaves_no_mark_even_if_it_ended_without_us() {
    run(
        "unfinished::a_finished_format_leaves_no_mark_even_if_it_ended_without_us",
        |lab| async move {
            let device = lab.volume(VOLUME, 64 * MIB).await;
            // The process ends between the end of mkfs and the clearing of the mark.
            let body = "mkfs.ext4 -q -F -E nodiscard \"$device\"; kill -9 $$";
            let host = lab.host_with(Tools {
                mkfs_ext4: lab.script("late.ext4", body),
                ..Tools::default()
            });
            be_killed(&host, &device, ANY).await;
            let mark = b"cinder-csi: volume 0cf2a1d9";
            let has_mark = |device: &Device| everything(device).windows(mark.len()).any(|window| window == mark);
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
        },
    );
}

#[test]
fn no_mkfs_writes_where_the_mark_is() {
    run("unfinished::no_mkfs_writes_where_the_mark_is", |lab| async move {
        // From our smallest to a large one, with block groups and allocation groups of every size, even an odd number.
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
                let wanted = Prepare {
                    fs_type: Some(fs_type),
                    ..ANY
                };
                be_killed(&host, &device, wanted.clone()).await;
                let mark = format!("cinder-csi: volume {volume} of {size} bytes");
                let found = read_at(&device, size - from_end, mark.len());
                assert_eq!(String::from_utf8_lossy(&found), mark, "{fs_type} of {size} bytes");
                let prepared = lab
                    .host()
                    .prepare_filesystem(&device, wanted.clone())
                    .await
                    .expect("it is complete");
                assert!(!prepared.formatted);
            }
        }
    });
}

#[test]
fn a_volume_given_away_as_raw_storage_carries_no_mark() {
    run(
        "unfinished::a_volume_given_away_as_raw_storage_carries_no_mark",
        |lab| async move {
            let device = lab.volume(VOLUME, 64 * MIB).await;
            be_killed(&lab.host_with(killed_ext4(&lab, 100)), &device, ANY).await;
            let before = everything(&device);
            lab.host()
                .forget_unfinished_format(&device)
                .await
                .expect("the mark can be cleared");
            let changed = before
                .iter()
                .zip(everything(&device))
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
        },
    );
}

#[test]
fn a_mkfs_that_wakes_up_late_cannot_harm_a_mounted_file_system() {
    run(
        "unfinished::a_mkfs_that_wakes_up_late_cannot_harm_a_mounted_file_system",
        |lab| async move {
            let device = lab.volume(VOLUME, 64 * MIB).await;
            // Stops before it opens the device, as if the node had no time for it; says so through its pid file.
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
            let pid = appears(&pid).await;
            // The process that started it is killed; its mkfs is not.
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
            assert_ne!(appears(&late).await.trim(), "0", "a mounted device is claimed");
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

/// The content of a file that another process renames into place.
async fn appears(path: &std::path::Path) -> String {
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
