// SPDX-License-Identifier: Apache-2.0
//! The config drive: a small disk with the label `config-2` on which Nova writes what the metadata service would say.
//!
//! It is read without being mounted: an iso9660 by the few lines in [`iso9660`], so that a kernel without that file system
//! does; a vfat through a mount that has no place in the tree, which ends with its last file.
//!
//! A volume is never taken for one, whatever it holds: what is on a volume was written by whoever uses it, who would name
//! this node.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "who this machine is is asked once, before there are volumes: no test needs it on another machine"
)]

mod iso9660;

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
};

use crate::timing::TIMING;
use crate::{Host, HostPaths, Machine, OffloadError, slots};

/// What Nova calls it.
const LABEL: &str = "config-2";
const DOCUMENT: [&str; 3] = ["openstack", "latest", "meta_data.json"];
/// Nova's drives have at most 64 MiB; larger disks are not looked at.
const LARGEST: u64 = 128 << 20;
/// No document is larger.
const LARGEST_DOCUMENT: usize = 1 << 20;

/// Why there is no document from a config drive.
#[derive(Debug, thiserror::Error)]
pub enum ConfigDriveError {
    /// No disk has the label.
    #[error("no disk of this node is a config drive (label config-2)")]
    Absent,
    /// The drive is there and the document is not, or it cannot be read.
    #[error("the config drive {} cannot be used: {source}", device.display())]
    Read { device: PathBuf, source: io::Error },
    /// The drive gave no answer.
    #[error(transparent)]
    NoAnswer(#[from] OffloadError),
}

impl Host {
    /// The text of `openstack/latest/meta_data.json` of this instance's config drive. Nothing is mounted or written.
    /// Bounded by 20 s.
    pub async fn config_drive(&self) -> Result<Vec<u8>, ConfigDriveError> {
        let (machine, paths) = (self.inner.machine.clone(), self.inner.paths.clone());
        self.inner
            .calls
            .run("looking for the config drive", TIMING.config_drive_timeout, move || {
                find(&*machine, &paths)
            })
            .await?
    }
}

fn find(machine: &dyn Machine, paths: &HostPaths) -> Result<Vec<u8>, ConfigDriveError> {
    let labelled = [LABEL, "CONFIG-2"].map(|label| paths.dev.join("disk/by-label").join(label));
    let labelled = labelled
        .into_iter()
        .filter(|link| link.exists() && !is_on_a_volume(machine, &paths.sys, link));
    // Where nobody makes links: every disk that is small enough says itself whether it is one.
    let unlabelled = small_disks(machine, &paths.sys)
        .into_iter()
        .map(|name| paths.dev.join(name));
    let mut problem = ConfigDriveError::Absent;
    for device in labelled.chain(unlabelled) {
        match read(&device) {
            Ok(Some(document)) => return Ok(document),
            Ok(None) => {}
            Err(source) => problem = ConfigDriveError::Read { device, source },
        }
    }
    Err(problem)
}

/// Disks that are no larger than a config drive. Not those that the machine makes itself.
fn small_disks(machine: &dyn Machine, sys: &Path) -> Vec<String> {
    const OWN: [&str; 6] = ["loop", "zram", "ram", "dm-", "md", "nbd"];
    let block = sys.join("block");
    let mut names: Vec<String> = fs::read_dir(&block)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !OWN.iter().any(|own| name.starts_with(own)) && !slots::is_volume(machine, sys, name))
        .filter(|name| {
            let sectors = fs::read_to_string(block.join(name).join("size"));
            let sectors: Option<u64> = sectors.ok().and_then(|text| text.trim().parse().ok());
            sectors.is_some_and(|sectors| sectors > 0 && sectors * 512 <= LARGEST)
        })
        .collect();
    names.sort_unstable();
    names
}

/// Whether a device, or the disk that it is a partition of, is a volume.
fn is_on_a_volume(machine: &dyn Machine, sys: &Path, device: &Path) -> bool {
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let Some(own) = fs::canonicalize(device).ok().and_then(|node| name(&node)) else {
        return true;
    };
    let entry = sys.join("class/block").join(&own);
    let disk = if entry.join("partition").exists() {
        let parent = fs::canonicalize(&entry).ok();
        parent.as_deref().and_then(Path::parent).and_then(name)
    } else {
        Some(own)
    };
    disk.is_none_or(|disk| slots::is_volume(machine, sys, &disk))
}

/// The document; nothing if the disk has another label.
fn read(device: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(device) {
        // A drive without a disk in it.
        Err(error) if rustix::io::Errno::from_io_error(&error) == Some(rustix::io::Errno::NOMEDIUM) => return Ok(None),
        opened => opened?,
    };
    let at = |offset: u64, buffer: &mut [u8]| file.read_exact_at(buffer, offset);
    if let Some(volume) = iso9660::Volume::open(&at)? {
        return if volume.label().eq_ignore_ascii_case(LABEL) {
            volume.read(&at, &DOCUMENT, LARGEST_DOCUMENT).map(Some)
        } else {
            Ok(None)
        };
    }
    let mut boot = [0; 512];
    match at(0, &mut boot) {
        Ok(()) if is_labelled_fat(&boot) => read_fat(device).map(Some),
        Ok(()) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a boot sector is that of a FAT12, FAT16 or FAT32 with our label.
fn is_labelled_fat(boot: &[u8; 512]) -> bool {
    let [small, large] = [43..54, 71..82].map(|place| boot.get(place).unwrap_or_default());
    let is_ours =
        |label: &[u8]| std::str::from_utf8(label).is_ok_and(|label| label.trim_end().eq_ignore_ascii_case(LABEL));
    boot.ends_with(&[0x55, 0xAA]) && (is_ours(small) || is_ours(large))
}

/// Reads the document through a mount that nobody else sees.
fn read_fat(device: &Path) -> io::Result<Vec<u8>> {
    let context = fsopen("vfat", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), "source", device)?;
    fsconfig_set_flag(context.as_fd(), "ro")?;
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let root = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let document = rustix::fs::openat(&root, DOCUMENT.join("/"), flags, Mode::empty())?;
    let mut text = Vec::new();
    File::from(document)
        .take(LARGEST_DOCUMENT as u64)
        .read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fat_is_known_by_its_label_wherever_its_kind_keeps_it() {
        let boot = |place: usize, label: &[u8; 11]| {
            let mut boot = [0; 512];
            boot[place..place + 11].copy_from_slice(label);
            boot[510..].copy_from_slice(&[0x55, 0xAA]);
            boot
        };
        assert!(is_labelled_fat(&boot(43, b"config-2   ")));
        assert!(is_labelled_fat(&boot(71, b"CONFIG-2   ")));
        assert!(!is_labelled_fat(&boot(43, b"config-20  ")));
        assert!(!is_labelled_fat(&[0; 512]));
    }

    #[tokio::test]
    async fn a_config_drive_is_read_without_a_mount_and_found_by_what_it_says_itself() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| dir.path().join(name);
        let host = Host::new(HostPaths {
            sys: at("sys"),
            dev: at("dev"),
            proc: "/proc".into(),
        });
        for (name, content) in [
            ("sr0", iso9660::tests::image("config-2", "{}")),
            ("vda", vec![0; 1 << 20]),
        ] {
            fs::create_dir_all(at("sys/block").join(name)).expect("a directory");
            fs::create_dir_all(at("dev")).expect("a directory");
            let sectors = (content.len() / 512).to_string();
            fs::write(at("sys/block").join(name).join("size"), sectors).expect("a file");
            fs::write(at("dev").join(name), content).expect("a file");
        }
        assert_eq!(host.config_drive().await.expect("it is there"), b"{}");
        fs::write(at("dev/sr0"), iso9660::tests::image("cidata", "{}")).expect("a file");
        let error = host.config_drive().await.expect_err("it is another disk");
        assert!(matches!(error, ConfigDriveError::Absent), "{error}");
        let cut = iso9660::tests::image("config-2", "{}");
        fs::write(at("dev/sr0"), &cut[..40 << 10]).expect("a file");
        let error = host.config_drive().await.expect_err("it is cut");
        assert!(matches!(error, ConfigDriveError::Read { .. }), "{error}");
    }
    #[tokio::test]
    async fn a_volume_that_says_it_is_the_config_drive_is_not_believed() {
        use std::os::unix::fs::symlink;

        let dir = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| dir.path().join(name);
        for directory in ["sys/block/vdb/vdb1", "sys/class/block", "dev/disk/by-label"] {
            fs::create_dir_all(at(directory)).expect("a directory");
        }
        let image = iso9660::tests::image("config-2", "{}");
        let sectors = (image.len() / 512).to_string();
        for (file, content) in [
            ("sys/block/vdb/size", sectors.as_bytes()),
            ("sys/block/vdb/vdb1/partition", b"1"),
            ("dev/vdb", image.as_slice()),
            ("dev/vdb1", image.as_slice()),
        ] {
            fs::write(at(file), content).expect("a file");
        }
        symlink(at("sys/block/vdb"), at("sys/class/block/vdb")).expect("a link");
        symlink(at("sys/block/vdb/vdb1"), at("sys/class/block/vdb1")).expect("a link");
        let host = Host::new(HostPaths {
            sys: at("sys"),
            dev: at("dev"),
            proc: "/proc".into(),
        });
        let link = at("dev/disk/by-label/config-2");
        for labelled in ["../../vdb", "../../vdb1"] {
            symlink(labelled, &link).expect("a link");
            fs::write(at("sys/block/vdb/serial"), "").expect("a file");
            assert_eq!(host.config_drive().await.expect("it is no volume"), b"{}");
            fs::write(at("sys/block/vdb/serial"), "0cf2a1d9-6b1c-4c3e-9").expect("a file");
            let error = host.config_drive().await.expect_err("it is a volume");
            assert!(matches!(error, ConfigDriveError::Absent), "{error}");
            fs::remove_file(&link).expect("it is there");
        }
    }
}
