// SPDX-License-Identifier: Apache-2.0
//! What is said about disks and file systems that are not well.

use std::fs::{self, File};
use std::process::Command;
use std::time::Duration;

use csi_host::health::Trouble;
use csi_host::{Device, FsType, Host, MountOptions, Prepare, Tools};

use crate::flaky::Mood;
use crate::lab::{ANY, Lab, MIB, OTHER, VOLUME, output, run, write_at};

async fn troubles(host: &Host, device: &Device) -> Vec<Trouble> {
    let mounts = host.mounts().await.expect("the list can be read");
    let findings = host.examine(device, &mounts).await;
    for finding in &findings {
        println!("{finding:?}");
    }
    findings.into_iter().map(|finding| finding.trouble).collect()
}

async fn mounted(lab: &Lab, device: &Device, fs_type: FsType, options: &[&str]) -> std::path::PathBuf {
    let wanted = Prepare {
        fs_type: Some(fs_type),
        ..ANY
    };
    lab.host()
        .prepare_filesystem(device, wanted)
        .await
        .expect("it is empty");
    let target = lab.directory(&format!("mount of {}", device.name));
    let options = MountOptions::parse(options).expect("all are known");
    lab.host()
        .mount(device, &target, fs_type, &options)
        .await
        .expect("it is a file system");
    target
}

#[test]
fn a_healthy_volume_has_no_trouble_in_any_use() {
    run("health::a_healthy_volume_has_no_trouble_in_any_use", |lab| async move {
        let raw = lab.volume(OTHER, 64 * MIB).await;
        assert_eq!(troubles(&lab.host(), &raw).await, []);
        for fs_type in [FsType::Ext4, FsType::Xfs, FsType::Btrfs] {
            let device = lab.volume(VOLUME, 320 * MIB).await;
            for options in [&[][..], &["ro"]] {
                let target = mounted(&lab, &device, fs_type, options).await;
                assert_eq!(troubles(&lab.host(), &device).await, [], "{fs_type} {options:?}");
                lab.host().unmount(&target).await.expect("nobody uses it");
            }
            lab.detach(&device);
        }
    });
}

#[test]
fn a_disk_that_fails_and_its_stopped_file_system_are_named() {
    run(
        "health::a_disk_that_fails_and_its_stopped_file_system_are_named",
        |lab| async move {
            let (device, flaky) = lab.flaky(VOLUME, 64 * MIB).await;
            let host = lab.host();
            let target = mounted(&lab, &device, FsType::Ext4, &["errors=remount-ro"]).await;
            assert_eq!(troubles(&host, &device).await, []);
            flaky.be(Mood::Failing);
            assert_eq!(troubles(&host, &device).await, [Trouble::ReadError]);
            // The journal cannot be written, so the kernel stops writing.
            let file = File::create(target.join("data"));
            drop(file.and_then(|file| file.sync_all()));
            flaky.be(Mood::Well);
            let found = troubles(&host, &device).await;
            assert!(found.contains(&Trouble::ReadOnlyByKernel), "{found:?}");
            host.unmount(&target).await.expect("nobody uses it");
        },
    );
}

#[test]
fn errors_that_ext4_has_recorded_are_counted() {
    run("health::errors_that_ext4_has_recorded_are_counted", |lab| async move {
        let (host, device) = (lab.host(), lab.volume(VOLUME, 64 * MIB).await);
        let target = mounted(&lab, &device, FsType::Ext4, &["errors=continue"]).await;
        // A trigger of the kernel's own, for tests like this one.
        fs::write(format!("/sys/fs/ext4/{}/trigger_fs_error", device.name), "of a test").expect("root may");
        assert_eq!(troubles(&host, &device).await, [Trouble::FilesystemErrors]);
        host.unmount(&target).await.expect("nobody uses it");
    });
}

#[test]
fn a_file_system_that_was_shut_down_is_named() {
    run("health::a_file_system_that_was_shut_down_is_named", |lab| async move {
        let (host, device) = (lab.host(), lab.volume(VOLUME, 320 * MIB).await);
        let target = mounted(&lab, &device, FsType::Xfs, &[]).await;
        output(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(&target));
        assert_eq!(troubles(&host, &device).await, [Trouble::FilesystemShutDown]);
        host.unmount(&target).await.expect("nobody uses it");
    });
}

#[test]
fn a_disk_smaller_than_its_file_system_has_lost_data() {
    run(
        "health::a_disk_smaller_than_its_file_system_has_lost_data",
        |lab| async move {
            let (host, device) = (lab.host(), lab.volume(VOLUME, 64 * MIB).await);
            host.prepare_filesystem(&device, ANY).await.expect("it is empty");
            let image = lab.at(&format!("{VOLUME}.img"));
            lab.detach(&device);
            let file = File::options().write(true).open(&image).expect("the backing file");
            file.set_len(32 * MIB).expect("it can be cut");
            let device = lab.attach(&image, VOLUME).await;
            assert_eq!(troubles(&host, &device).await, [Trouble::DeviceShrunk]);
            write_at(&device, 1024 + 0x38, &[0, 0]);
            assert_eq!(troubles(&host, &device).await, [], "no superblock, no size");
        },
    );
}

#[test]
fn a_disk_that_hangs_is_named_and_holds_up_no_other_and_no_second_question() {
    run(
        "health::a_disk_that_hangs_is_named_and_holds_up_no_other_and_no_second_question",
        |lab| async move {
            let (device, flaky) = lab.flaky(VOLUME, 64 * MIB).await;
            let healthy = lab.volume(OTHER, 64 * MIB).await;
            let host = lab.host();
            flaky.be(Mood::Hanging);
            let asked = tokio::time::Instant::now();
            let hung = tokio::spawn({
                let (host, device) = (host.clone(), device.clone());
                async move { troubles(&host, &device).await }
            });
            assert_eq!(troubles(&host, &healthy).await, []);
            let target = mounted(&lab, &healthy, FsType::Ext4, &[]).await;
            host.usage(&target).await.expect("the other one works");
            assert!(!hung.is_finished(), "all of this went on meanwhile");
            assert_eq!(hung.await.expect("no panic"), [Trouble::ReadTimedOut]);
            let first = asked.elapsed();
            let again = tokio::time::Instant::now();
            assert_eq!(troubles(&host, &device).await, [Trouble::ReadTimedOut]);
            assert!(
                again.elapsed() < Duration::from_secs(4),
                "the second question is answered at once"
            );
            assert!(
                first >= Duration::from_secs(4),
                "the first was given its time: {first:?}"
            );
            flaky.be(Mood::Well);
            let recovers = async {
                while !troubles(&host, &device).await.is_empty() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(20), recovers)
                .await
                .expect("and when it comes back it is well");
            host.unmount(&target).await.expect("nobody uses it");
        },
    );
}

#[test]
fn a_mkfs_on_a_disk_that_hangs_is_joined_when_it_comes_back() {
    run(
        "health::a_mkfs_on_a_disk_that_hangs_is_joined_when_it_comes_back",
        |lab| async move {
            let (device, flaky) = lab.flaky(VOLUME, 64 * MIB).await;
            let host = lab.host();
            flaky.be(Mood::Hanging);
            let call = tokio::spawn({
                let (host, device) = (host.clone(), device.clone());
                async move { host.prepare_filesystem(&device, ANY).await }
            });
            flaky.keeps_somebody_waiting().await;
            flaky.be(Mood::Well);
            let prepared = call.await.expect("no panic").expect("it is made");
            assert!(prepared.formatted);
        },
    );
}

#[test]
fn no_program_is_left_behind_on_a_disk_that_hangs() {
    run(
        "health::no_program_is_left_behind_on_a_disk_that_hangs",
        |lab| async move {
            let (device, flaky) = lab.flaky(VOLUME, 64 * MIB).await;
            let ran = lab.at("blkid.ran");
            let blkid = lab.script("blkid", &format!(": > {}\nexec blkid \"$@\"", ran.display()));
            let host = lab.host_with(Tools {
                blkid,
                ..Tools::default()
            });
            flaky.be(Mood::Hanging);
            tokio::select! {
                prepared = host.prepare_filesystem(&device, ANY) => panic!("the disk hangs: {prepared:?}"),
                () = flaky.keeps_somebody_waiting() => {}
            }
            let was_run = ran.exists();
            flaky.be(Mood::Well);
            assert!(!was_run, "nothing could have ended it");
            let prepared = host.prepare_filesystem(&device, ANY).await.expect("the disk answers");
            assert!(prepared.formatted && ran.exists());
        },
    );
}
