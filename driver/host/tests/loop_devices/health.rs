// SPDX-License-Identifier: Apache-2.0
//! Reports about disks and file systems with problems.

use std::fs::{self, File};
use std::process::Command;
use std::time::Duration;

use csi_host::health::Trouble;
use csi_host::{Device, FilesystemRequest, FsType, Host, MountOptions, Tools};

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
    let wanted = FilesystemRequest {
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
#[ignore = "needs root"]
fn healthy_volume_has_no_findings() {
    run("health::healthy_volume_has_no_findings", |lab| async move {
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
#[ignore = "needs root"]
fn reports_failed_disk_and_file_system() {
    run("health::reports_failed_disk_and_file_system", |lab| async move {
        let (device, flaky) = lab.flaky(VOLUME, 64 * MIB).await;
        let host = lab.host();
        let target = mounted(&lab, &device, FsType::Ext4, &["errors=remount-ro"]).await;
        assert_eq!(troubles(&host, &device).await, []);
        flaky.set_mood(Mood::Failing);
        assert_eq!(troubles(&host, &device).await, [Trouble::ReadError]);
        // The journal cannot be written, so that the kernel makes the file system read-only.
        let file = File::create(target.join("data"));
        drop(file.and_then(|file| file.sync_all()));
        flaky.set_mood(Mood::Healthy);
        let findings = troubles(&host, &device).await;
        assert!(findings.contains(&Trouble::ReadOnlyByKernel), "{findings:?}");
        host.unmount(&target).await.expect("nobody uses it");
    });
}

#[test]
#[ignore = "needs root"]
fn reports_recorded_errors_of_ext4() {
    run("health::reports_recorded_errors_of_ext4", |lab| async move {
        let (host, device) = (lab.host(), lab.volume(VOLUME, 64 * MIB).await);
        let target = mounted(&lab, &device, FsType::Ext4, &["errors=continue"]).await;
        // A trigger of the kernel for tests.
        fs::write(format!("/sys/fs/ext4/{}/trigger_fs_error", device.name), "of a test").expect("root may");
        assert_eq!(troubles(&host, &device).await, [Trouble::FilesystemErrors]);
        host.unmount(&target).await.expect("nobody uses it");
    });
}

#[test]
#[ignore = "needs root"]
fn reports_file_system_shutdown() {
    run("health::reports_file_system_shutdown", |lab| async move {
        let (host, device) = (lab.host(), lab.volume(VOLUME, 320 * MIB).await);
        let target = mounted(&lab, &device, FsType::Xfs, &[]).await;
        output(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(&target));
        assert_eq!(troubles(&host, &device).await, [Trouble::FilesystemShutDown]);
        host.unmount(&target).await.expect("nobody uses it");
    });
}

#[test]
#[ignore = "needs root"]
fn reports_disk_smaller_than_file_system() {
    run("health::reports_disk_smaller_than_file_system", |lab| async move {
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
    });
}

#[test]
#[ignore = "needs root"]
fn hung_disk_delays_no_other_check() {
    run("health::hung_disk_delays_no_other_check", |lab| async move {
        let (device, flaky) = lab.flaky(VOLUME, 64 * MIB).await;
        let healthy = lab.volume(OTHER, 64 * MIB).await;
        let host = lab.host();
        flaky.set_mood(Mood::Hanging);
        let start = tokio::time::Instant::now();
        let hung = tokio::spawn({
            let (host, device) = (host.clone(), device.clone());
            async move { troubles(&host, &device).await }
        });
        assert_eq!(troubles(&host, &healthy).await, []);
        let target = mounted(&lab, &healthy, FsType::Ext4, &[]).await;
        host.usage(&target).await.expect("the other one works");
        assert!(!hung.is_finished(), "all of this went on meanwhile");
        assert_eq!(hung.await.expect("no panic"), [Trouble::ReadTimedOut]);
        let first = start.elapsed();
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
        flaky.set_mood(Mood::Healthy);
        let recovers = async {
            while !troubles(&host, &device).await.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), recovers)
            .await
            .expect("and when it comes back it is well");
        host.unmount(&target).await.expect("nobody uses it");
    });
}

#[test]
#[ignore = "needs root"]
fn format_continues_after_disk_recovers() {
    run("health::format_continues_after_disk_recovers", |lab| async move {
        let (device, flaky) = lab.flaky(VOLUME, 64 * MIB).await;
        let host = lab.host();
        flaky.set_mood(Mood::Hanging);
        let call = tokio::spawn({
            let (host, device) = (host.clone(), device.clone());
            async move { host.prepare_filesystem(&device, ANY).await }
        });
        flaky.wait_for_hung_request().await;
        flaky.set_mood(Mood::Healthy);
        let prepared = call.await.expect("no panic").expect("it is made");
        assert!(prepared.formatted);
    });
}

#[test]
#[ignore = "needs root"]
fn starts_no_program_on_hung_disk() {
    run("health::starts_no_program_on_hung_disk", |lab| async move {
        let (device, flaky) = lab.flaky(VOLUME, 64 * MIB).await;
        let ran = lab.at("blkid.ran");
        let blkid = lab.script("blkid", &format!(": > {}\nexec blkid \"$@\"", ran.display()));
        let host = lab.host_with(Tools {
            blkid,
            ..Tools::default()
        });
        flaky.set_mood(Mood::Hanging);
        tokio::select! {
            prepared = host.prepare_filesystem(&device, ANY) => panic!("the disk hangs: {prepared:?}"),
            () = flaky.wait_for_hung_request() => {}
        }
        let was_run = ran.exists();
        flaky.set_mood(Mood::Healthy);
        assert!(!was_run, "nothing could have ended it");
        let prepared = host.prepare_filesystem(&device, ANY).await.expect("the disk answers");
        assert!(prepared.formatted && ran.exists());
    });
}
