// SPDX-License-Identifier: Apache-2.0
//! Tests of file systems whose check prints more than the driver may store.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use csi_host::Tools;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use tonic::Code;

use crate::lab::{self, Lab, MIB, VOLUME, run};
use crate::{Kubelet, expect_refusal, ext4, mount};

/// Memory limit of the driver on a node, including this test.
const MOST_MEMORY: u64 = 64 << 20;
/// Memory growth limit of one call, far less than the output of the check.
const MOST_GROWTH: u64 = 16 << 20;
/// The first inode that is neither reserved nor `lost+found`.
const FIRST_INODE: u64 = 12;

/// An image with accessors for little-endian numbers.
struct Image(File);

impl Image {
    fn u32(&self, at: u64) -> u64 {
        let mut bytes = [0; 4];
        self.0.read_exact_at(&mut bytes, at).expect("it is that long");
        u32::from_le_bytes(bytes).into()
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.0.write_all_at(bytes, at).expect("it can be written");
    }
}

/// Formats an image of 64 MiB with 260,000 inodes, each of a file with a wrong size and block count that is in no
/// directory. The file system is marked as unclean, so `e2fsck -p` prints two lines for each.
pub(crate) fn craft(path: &Path) -> u64 {
    File::create(path)
        .and_then(|file| file.set_len(64 * MIB))
        .expect("a sparse file");
    let features = "^metadata_csum,^uninit_bg,^64bit,^resize_inode,^has_journal";
    let geometry = ["-b", "1024", "-g", "2048", "-I", "128", "-N", "262144"];
    let mkfs = ["-q", "-F", "-E", "lazy_itable_init=0", "-O", features];
    lab::output(Command::new("mkfs.ext4").args(mkfs).args(geometry).arg(path));
    let image = Image(
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .expect("it is ours"),
    );
    let superblock = 1024;
    let (inodes, per_group) = (image.u32(superblock), image.u32(superblock + 40));
    // With blocks of 1 KiB, the group descriptors are in block 2.
    let table = |group: u64| image.u32(2048 + group * 32 + 8) * 1024;
    let mut inode = [0_u8; 128];
    inode[0..2].copy_from_slice(&0x8180_u16.to_le_bytes());
    inode[4..8].copy_from_slice(&4096_u32.to_le_bytes());
    inode[26..28].copy_from_slice(&1_u16.to_le_bytes());
    inode[28..32].copy_from_slice(&8_u32.to_le_bytes());
    for group in 0..inodes / per_group {
        let first = if group == 0 { FIRST_INODE - 1 } else { 0 };
        let count = usize::try_from(per_group - first).expect("a small group");
        image.put(table(group) + first * 128, &inode.repeat(count));
    }
    // Neither clean nor known to have errors.
    image.put(superblock + 58, &0_u16.to_le_bytes());
    inodes
}

/// Returns the peak memory of this process in bytes.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .expect("the line");
    let number = line
        .split_whitespace()
        .next()
        .and_then(|number| number.parse::<u64>().ok());
    number.expect("a number of KiB") * 1024
}

/// Returns a check program that also counts the bytes of its output.
fn counting_check(lab: &Lab) -> Tools {
    let script = "e2fsck \"$@\" | tee >(wc -c > \"$(dirname \"$0\")/bytes\"); exit \"${PIPESTATUS[0]}\"";
    Tools {
        e2fsck: lab.script("check", script),
        ..Tools::default()
    }
}

#[test]
fn crafted_file_system_is_checked_in_bounded_memory() {
    run(
        "program_output::crafted_file_system_is_checked_in_bounded_memory",
        |lab| async move {
            let image = lab.at("crafted.img");
            let inodes = craft(&image);
            assert!(inodes > 200_000, "{inodes}");
            lab.attach(&image, VOLUME).await;
            let kubelet = Kubelet::with_tools(&lab, counting_check(&lab));
            let before = peak_memory();
            kubelet.must_stage(ext4()).await;
            let peak = peak_memory();
            kubelet.must_unstage().await;
            let printed = fs::read_to_string(lab.at("bytes")).expect("it was checked");
            let printed: u64 = printed.trim().parse().expect("a number");
            assert!(printed > 20 << 20, "the check has printed {printed} bytes only");
            assert!(peak < MOST_MEMORY, "the driver had {peak} bytes");
            assert!(
                peak - before < MOST_GROWTH,
                "the driver grew by {} bytes",
                peak - before
            );
        },
    );
}

#[test]
fn damage_report_is_short_and_escaped() {
    run("program_output::damage_report_is_short_and_escaped", |lab| async move {
        lab.volume(VOLUME, 64 * MIB).await;
        let kubelet = Kubelet::new(&lab);
        kubelet.must_stage(ext4()).await;
        kubelet.must_unstage().await;
        let noise = "printf 'first\\e[2J\\n'; head -c 200M /dev/zero; printf 'last'; exit 4";
        let tools = Tools {
            e2fsck: lab.script("noise", noise),
            ..Tools::default()
        };
        let error = Kubelet::with_tools(&lab, tools).stage(VOLUME, ext4()).await;
        let error = error.expect_err("it is damaged");
        assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
        assert!(error.message().contains(r"first\u{1b}[2J; \u{0}"), "{error}");
        assert!(error.message().contains(r"\u{0}last"), "{error}");
        assert!(error.message().len() < 2_500, "{}", error.message().len());
        assert!(peak_memory() < MOST_MEMORY);
    });
}

#[test]
fn long_probe_output_is_refused() {
    run("program_output::long_probe_output_is_refused", |lab| async move {
        let device = lab.volume(VOLUME, 64 * MIB).await;
        let probe = "echo TYPE=ext4; echo USAGE=filesystem; head -c 1M /dev/zero";
        let tools = Tools {
            blkid: lab.script("probe", probe),
            ..Tools::default()
        };
        let kubelet = Kubelet::with_tools(&lab, tools);
        let error = kubelet.stage(VOLUME, mount("", Mode::SingleNodeWriter)).await;
        let error = error.expect_err("a part of the output is not parsed");
        expect_refusal(&error, Code::Internal, &["more than the driver parses"]);
        assert!(
            lab::read_device(&device).iter().all(|byte| *byte == 0),
            "nothing was written"
        );
    });
}
