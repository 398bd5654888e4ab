// SPDX-License-Identifier: Apache-2.0
//! Tests of devices with malicious content. The driver's own process stages each of them next to a disk of another
//! volume.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tonic::{Code, Status};

use crate::lab::{self, Lab, MIB, OTHER, VOLUME, run};
use crate::process::Driver;
use crate::program_output::craft;

/// Memory limit of the driver's process on a node.
const MOST_MEMORY: u64 = 64 << 20;
/// Log limit of one call in bytes.
const MOST_LOG: usize = 64 << 10;
/// Offset and length of the btrfs superblock; its fields follow.
const BTRFS: u64 = 64 << 10;
const BTRFS_LENGTH: usize = 4096;
const BTRFS_DEVICES: usize = 0x88;
/// Offset of the ext superblock, its feature flags, and the fields of an external journal.
const EXT: u64 = 1024;
const HAS_JOURNAL: u32 = 4;
const NEEDS_RECOVERY: u32 = 4;

/// Expected result of the first NodeStageVolume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// Staged, expanded and unstaged.
    Staged,
    /// Refused with this code.
    Refused(Code),
    /// Depends on the kernel.
    Either,
}

type Craft = fn(&Lab, &Path, &Path);

/// Images that the same process handles one after the other.
const CORPUS: [(&str, Craft, Expected); 16] = [
    ("many bad inodes", bad_inodes, Expected::Staged),
    ("garbage in the journal", bad_journal, Expected::Either),
    ("journal on another device", foreign_journal, Expected::Either),
    ("superblock of ext with garbage", bad_superblock, Expected::Either),
    (
        "xfs with an external log",
        external_log,
        Expected::Refused(Code::Internal),
    ),
    ("xfs with garbage in its trees", bad_xfs, Expected::Either),
    (
        "btrfs of two devices",
        two_devices,
        Expected::Refused(Code::FailedPrecondition),
    ),
    ("btrfs that hides its second device", hidden_device, Expected::Either),
    ("btrfs with the UUID of another", same_uuid, Expected::Either),
    (
        "btrfs with garbage in its trees",
        bad_btrfs,
        Expected::Refused(Code::Internal),
    ),
    (
        "partition table",
        partition_table,
        Expected::Refused(Code::FailedPrecondition),
    ),
    ("LUKS", luks, Expected::Refused(Code::FailedPrecondition)),
    ("LVM", lvm, Expected::Refused(Code::FailedPrecondition)),
    ("RAID", raid, Expected::Refused(Code::FailedPrecondition)),
    (
        "two signatures",
        two_signatures,
        Expected::Refused(Code::FailedPrecondition),
    ),
    ("text", text, Expected::Refused(Code::FailedPrecondition)),
];

fn blank(path: &Path) {
    File::create(path)
        .and_then(|file| file.set_len(128 * MIB))
        .expect("a sparse file");
}

fn make(program: &str, args: &[&str], path: &Path) {
    blank(path);
    lab::output(Command::new(program).args(args).arg(path));
}

fn edit(path: &Path) -> File {
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.expect("it is ours")
}

fn put(path: &Path, at: u64, bytes: &[u8]) {
    edit(path).write_all_at(bytes, at).expect("it can be written");
}

fn u32_at(path: &Path, at: u64) -> u32 {
    let mut bytes = [0; 4];
    edit(path).read_exact_at(&mut bytes, at).expect("it is that long");
    u32::from_le_bytes(bytes)
}

fn bad_inodes(_: &Lab, path: &Path, _: &Path) {
    craft(path);
}

/// Formats ext4 without checksums, so that fields can be changed.
fn plain_ext4(path: &Path) {
    make(
        "mkfs.ext4",
        &["-q", "-F", "-b", "4096", "-O", "^metadata_csum,^64bit"],
        path,
    );
}

fn bad_journal(_: &Lab, path: &Path, _: &Path) {
    plain_ext4(path);
    let block = lab::output(Command::new("debugfs").args(["-R", "bmap <8> 0"]).arg(path));
    let block: u64 = block.trim().parse().expect("the first block of the journal");
    // The header remains, followed by garbage.
    put(path, block * 4096 + 12, &[0xA5; 4000]);
    put(
        path,
        EXT + 0x60,
        &(u32_at(path, EXT + 0x60) | NEEDS_RECOVERY).to_le_bytes(),
    );
    put(path, EXT + 0x3A, &[0, 0]);
}

/// The victim's disk is a journal with changes to replay, and the volume refers to it.
fn foreign_journal(_: &Lab, path: &Path, victim: &Path) {
    make(
        "mkfs.ext4",
        &["-q", "-F", "-b", "4096", "-O", "^metadata_csum,^64bit,^has_journal"],
        path,
    );
    lab::output(
        Command::new("mke2fs")
            .args(["-q", "-F", "-b", "4096", "-O", "journal_dev"])
            .arg(victim),
    );
    let mut uuid = [0; 16];
    edit(victim).read_exact_at(&mut uuid, EXT + 0x68).expect("its UUID");
    put(path, EXT + 0xD0, &uuid);
    put(
        path,
        EXT + 0x5C,
        &(u32_at(path, EXT + 0x5C) | HAS_JOURNAL).to_le_bytes(),
    );
    put(
        path,
        EXT + 0x60,
        &(u32_at(path, EXT + 0x60) | NEEDS_RECOVERY).to_le_bytes(),
    );
    put(path, EXT + 0x3A, &[0, 0]);
}

fn bad_superblock(_: &Lab, path: &Path, _: &Path) {
    plain_ext4(path);
    for at in [0x20_u64, 0x24, 0x28, 0x54, 0xFE] {
        put(path, EXT + at, &[0xFF; 4]);
    }
}

fn external_log(_: &Lab, path: &Path, victim: &Path) {
    large(path);
    lab::output(
        Command::new("mkfs.xfs")
            .args(["-q", "-f", "-l"])
            .arg(format!("logdev={}", victim.display()))
            .arg(path),
    );
}

/// Slightly larger than the minimum size of mkfs.xfs.
fn large(path: &Path) {
    File::create(path)
        .and_then(|file| file.set_len(320 * MIB))
        .expect("a sparse file");
}

fn large_xfs(path: &Path) {
    large(path);
    lab::output(Command::new("mkfs.xfs").args(["-q", "-f"]).arg(path));
}

fn bad_xfs(_: &Lab, path: &Path, _: &Path) {
    large_xfs(path);
    // Overwrites the heads of the free space trees behind the superblock.
    put(path, 4096, &vec![0xA5; 64 << 10]);
}

fn two_devices(_: &Lab, path: &Path, victim: &Path) {
    blank(path);
    let profile = ["-q", "-f", "-d", "single", "-m", "single"];
    lab::output(Command::new("mkfs.btrfs").args(profile).arg(path).arg(victim));
}

/// Like `two_devices`, with a superblock that claims one device.
fn hidden_device(lab: &Lab, path: &Path, victim: &Path) {
    two_devices(lab, path, victim);
    let mut superblock = [0; BTRFS_LENGTH];
    edit(path).read_exact_at(&mut superblock, BTRFS).expect("a superblock");
    superblock[BTRFS_DEVICES..BTRFS_DEVICES + 8].copy_from_slice(&1_u64.to_le_bytes());
    let sum = crc32c(&superblock[32..]);
    superblock[..4].copy_from_slice(&sum.to_le_bytes());
    put(path, BTRFS, &superblock);
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0x82F6_3B78 * (sum & 1)))
    })
}

fn same_uuid(_: &Lab, path: &Path, victim: &Path) {
    make("mkfs.btrfs", &["-q", "-f"], path);
    let bytes = fs::read(path).expect("an image");
    fs::write(victim, bytes).expect("the victim's disk");
}

fn bad_btrfs(_: &Lab, path: &Path, _: &Path) {
    make("mkfs.btrfs", &["-q", "-f"], path);
    // Overwrites the areas between the superblock and its copy, and behind it.
    for start in [1, 65] {
        put(path, start * MIB, &vec![0xA5; 62 << 20]);
    }
}

fn partition_table(_: &Lab, path: &Path, _: &Path) {
    blank(path);
    put(
        path,
        446,
        &[0, 0, 2, 0, 0xEE, 0xFF, 0xFF, 0xFF, 1, 0, 0, 0, 0xFF, 0xFF, 3, 0],
    );
    put(path, 510, &[0x55, 0xAA]);
    put(path, 512, b"EFI PART");
}

fn luks(_: &Lab, path: &Path, _: &Path) {
    blank(path);
    put(path, 0, b"LUKS\xBA\xBE\x00\x01aes");
}

fn lvm(_: &Lab, path: &Path, _: &Path) {
    blank(path);
    put(path, 512, b"LABELONE\x01\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0LVM2 001");
}

fn raid(_: &Lab, path: &Path, _: &Path) {
    blank(path);
    put(path, 4096, &[0xFC, 0x4E, 0x2B, 0xA9, 1, 0, 0, 0]);
}

fn two_signatures(_: &Lab, path: &Path, _: &Path) {
    plain_ext4(path);
    let other = path.with_extension("xfs");
    large_xfs(&other);
    let mut superblock = [0; 512];
    edit(&other).read_exact_at(&mut superblock, 0).expect("a superblock");
    put(path, 0, &superblock);
}

fn text(_: &Lab, path: &Path, _: &Path) {
    blank(path);
    put(path, 77 * MIB, b"precious");
    put(path, 200, b"precious");
}

/// Stages, expands and unstages one image of the corpus. A copy is expanded at NodeStageVolume.
async fn meet(driver: &Driver<'_>, lab: &Lab, name: &str, is_copy: bool, expected: Expected) {
    let before = driver.log().len();
    let staged = driver.stage(is_copy).await;
    let log = driver.log().split_off(before);
    assert!(log.len() < MOST_LOG, "{name}: {} bytes of log", log.len());
    assert!(!log.contains(r#""message":"formatted""#), "{name}: {log}");
    let code = staged.as_ref().map_or_else(Status::code, |()| Code::Ok);
    match expected {
        Expected::Staged => assert_eq!(code, Code::Ok, "{name}: {staged:?}"),
        Expected::Refused(refusal) => assert_eq!(code, refusal, "{name}: {staged:?}"),
        Expected::Either => assert_ne!(code, Code::DeadlineExceeded, "{name}: {staged:?}"),
    }
    if staged.is_ok() {
        let before = driver.log().len();
        let grown = driver.expand(128 * MIB).await;
        let code = grown.as_ref().map_or_else(Status::code, |()| Code::Ok);
        assert_ne!(code, Code::DeadlineExceeded, "{name}: {grown:?}");
        let log = driver.log().split_off(before);
        assert!(log.len() < MOST_LOG, "{name}: {} bytes of log", log.len());
    }
    // Also after an error, because a copy that cannot be expanded is mounted.
    driver.unstage().await.expect("nothing uses it");
    let mounts = lab.host().mounts().await.expect("the list can be read");
    assert!(mounts.at(&lab.at("staging")).is_none(), "{name}");
    let memory = driver.peak_memory();
    assert!(memory < MOST_MEMORY, "{name}: the driver had {memory} bytes");
}

#[test]
fn hostile_image_affects_only_its_volume() {
    run("hostile::hostile_image_affects_only_its_volume", |lab| async move {
        let driver = Driver::start(&lab).await;
        lab.directory("staging");
        let uses = [false, true]
            .into_iter()
            .flat_map(|is_copy| CORPUS.map(|image| (is_copy, image)));
        for (number, (is_copy, (name, craft, expected))) in uses.enumerate() {
            let (image, victim): (PathBuf, PathBuf) = (
                lab.at(&format!("hostile-{number}.img")),
                lab.at(&format!("victim-{number}.img")),
            );
            blank(&victim);
            craft(&lab, &image, &victim);
            if is_copy {
                let size = fs::metadata(&image).expect("an image").len();
                edit(&image).set_len(size + 64 * MIB).expect("a sparse file");
            }
            let precious = fs::read(&victim).expect("the victim's disk");
            let content = fs::read(&image).expect("an image");
            let victims_device = lab.attach(&victim, OTHER).await;
            let device = lab.attach(&image, VOLUME).await;
            meet(&driver, &lab, name, is_copy, expected).await;
            if matches!(expected, Expected::Refused(_)) {
                assert!(lab::read_device(&device) == content, "{name}: the volume was changed");
            }
            lab.detach(&device);
            let unchanged = lab::read_device(&victims_device) == precious;
            assert!(unchanged, "{name}: the disk of another volume was changed");
            lab.detach(&victims_device);
            fs::remove_file(&image).expect("it is ours");
            fs::remove_file(&victim).expect("it is ours");
        }
    });
}

#[test]
fn crashed_probe_affects_only_its_volume() {
    crashes("hostile::crashed_probe_affects_only_its_volume", "blkid");
}

#[test]
fn crashed_check_affects_only_its_volume() {
    crashes("hostile::crashed_check_affects_only_its_volume", "e2fsck");
}

#[test]
fn crashed_format_affects_only_its_volume() {
    crashes("hostile::crashed_format_affects_only_its_volume", "mkfs.ext4");
}

/// Stages a volume with a program that crashes, and then with a working one.
fn crashes(name: &str, tool: &'static str) {
    run(name, |lab| async move {
        let device = lab.volume(VOLUME, 64 * MIB).await;
        let good = crate::Kubelet::new(&lab);
        if tool == "e2fsck" {
            good.stage(VOLUME, crate::ext4()).await.expect("it is blank");
            good.unstage(VOLUME).await.expect("nothing uses it");
        }
        let before = lab::read_device(&device);
        let dies = lab.script("dies", "kill -SEGV $$");
        let mut tools = csi_host::Tools::default();
        match tool {
            "blkid" => tools.blkid = dies,
            "e2fsck" => tools.e2fsck = dies,
            _ => tools.mkfs_ext4 = dies,
        }
        let error = crate::Kubelet::with_tools(&lab, tools)
            .stage(VOLUME, crate::ext4())
            .await;
        let error = error.expect_err("nothing is known about the device");
        assert_eq!(error.code(), Code::Internal, "{error}");
        assert!(
            error.message().contains("SIGSEGV") && error.message().contains("kernel's log"),
            "{error}"
        );
        if tool != "mkfs.ext4" {
            assert!(lab::read_device(&device) == before, "nothing was written");
        }
        good.stage(VOLUME, crate::ext4()).await.expect("the next program works");
        good.unstage(VOLUME).await.expect("nothing uses it");
    });
}
