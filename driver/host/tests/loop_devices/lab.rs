// SPDX-License-Identifier: Apache-2.0
//! A machine for one test: loop devices with by-id links, and a private mount namespace.

use std::cell::RefCell;
use std::env;
use std::fs::{self, File};
use std::future::Future;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use csi_host::{Device, FilesystemRequest, Host, HostPaths, MkfsOptions, Tools};
use tempfile::TempDir;

/// Environment variable of the process inside the namespace.
const INSIDE: &str = "CSI_HOST_TEST_INSIDE";

pub(crate) const VOLUME: &str = "0cf2a1d9-6b1c-4c3e-9d3f-5a8f2f3d7e10";
pub(crate) const OTHER: &str = "7b7c1f60-aaaa-4bbb-8ccc-1234567890ab";
pub(crate) const MIB: u64 = 1 << 20;
/// O_EXCL of Linux, which opens a block device exclusively.
const O_EXCL: i32 = 0o200;

/// Requirements of a volume without any restriction.
pub(crate) const ANY: FilesystemRequest = FilesystemRequest {
    fs_type: None,
    read_only: false,
    mkfs_options: MkfsOptions::NONE,
    size: None,
};

/// Ends a test that hangs. The slowest test takes about one minute on an idle machine with two processors.
const HANG_LIMIT: Duration = Duration::from_mins(10);

pub(crate) struct Lab {
    dir: TempDir,
    loops: RefCell<Vec<String>>,
}

/// Runs a test by its name inside its own mount namespace. Other processes do not see its mounts, which end with it.
pub(crate) fn run<F: Future<Output = ()>>(name: &str, test: impl FnOnce(Lab) -> F) {
    if env::var_os(INSIDE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        return runtime.block_on(async {
            tokio::time::timeout(HANG_LIMIT, test(Lab::new()))
                .await
                .expect("it ends in time");
        });
    }
    assert!(
        rustix::process::geteuid().is_root(),
        "THIS TEST NEEDS ROOT: it mounts loop devices. Run `make test` as root."
    );
    let own = env::current_exe().expect("the test's own program");
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private"])
        .arg(own)
        .args(["--exact", name, "--include-ignored", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare (util-linux) is installed");
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    // A misspelt name runs no test, and its process succeeds.
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{stdout}\n{stderr}"
    );
}

impl Lab {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir_all(dir.path().join("dev/disk/by-id")).expect("a directory");
        Self {
            dir,
            loops: RefCell::default(),
        }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().expect("it exists").join(name)
    }

    pub(crate) fn host(&self) -> Host {
        self.host_with(Tools::default())
    }

    pub(crate) fn host_with(&self, tools: Tools) -> Host {
        let paths = HostPaths {
            sys: "/sys".into(),
            dev: self.at("dev"),
            proc: "/proc".into(),
        };
        Host::with_tools(paths, tools)
    }

    /// Attaches a disk of `size` bytes that is `volume`, with a by-id link like udev's.
    pub(crate) async fn volume(&self, volume: &str, size: u64) -> Device {
        let backing = self.at(&format!("{volume}.img"));
        File::create(&backing)
            .and_then(|file| file.set_len(size))
            .expect("a sparse file");
        self.attach(&backing, volume).await
    }

    pub(crate) async fn attach(&self, backing: &Path, volume: &str) -> Device {
        let node = output(Command::new("losetup").args(["--find", "--show"]).arg(backing));
        self.loops.borrow_mut().push(node.clone());
        let name = node.strip_prefix("/dev/").expect("losetup names a node in /dev");
        symlink(&node, self.at("dev").join(name)).expect("a link");
        let link = self
            .at("dev/disk/by-id")
            .join(format!("virtio-{}", volume.get(..20).unwrap_or(volume)));
        symlink(Path::new("../..").join(name), link).expect("a link");
        self.host()
            .find_device(volume, None, Duration::from_secs(10))
            .await
            .expect("the device is found")
    }

    /// Detaches a disk and removes its link.
    pub(crate) fn detach(&self, device: &Device) {
        let node = Path::new("/dev").join(&device.name).display().to_string();
        output(Command::new("losetup").args(["--detach", &node]));
        self.loops.borrow_mut().retain(|known| *known != node);
        let cut = device.volume_id.get(..20).unwrap_or(&device.volume_id);
        fs::remove_file(self.at("dev/disk/by-id").join(format!("virtio-{cut}"))).expect("its link");
        fs::remove_file(&device.path).expect("its node");
    }

    /// Writes a script that replaces another program.
    pub(crate) fn script(&self, name: &str, body: &str) -> PathBuf {
        let path = self.at(name);
        fs::write(&path, format!("#!/bin/bash\nset -eu\ndevice=\"${{@: -1}}\"\n{body}\n")).expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        path
    }

    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(&path).expect("a directory");
        path
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for node in self.loops.borrow().iter() {
            // If something is still mounted, the kernel detaches the loop device when this process and its namespace
            // end.
            drop(Command::new("losetup").args(["--detach", node]).status());
        }
    }
}

/// Runs a program that must succeed, and returns its output.
pub(crate) fn output(command: &mut Command) -> String {
    let output = command.output().expect("the program is installed");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

pub(crate) fn write_at(device: &Device, offset: u64, bytes: &[u8]) {
    let file = File::options()
        .write(true)
        .open(&device.path)
        .expect("the device opens");
    file.write_all_at(bytes, offset)
        .and_then(|()| file.sync_all())
        .expect("the device can be written");
}

pub(crate) fn read_at(device: &Device, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let file = File::open(&device.path).expect("the device opens");
    file.read_exact_at(&mut bytes, offset).expect("the device can be read");
    bytes
}

/// Reads the whole device for a later comparison.
pub(crate) fn read_device(device: &Device) -> Vec<u8> {
    read_at(device, 0, usize::try_from(device.size_bytes).expect("a small device"))
}

/// Opens a device exclusively, as mkfs does.
pub(crate) fn open_exclusively(device: &Device) -> File {
    File::options()
        .read(true)
        .write(true)
        .custom_flags(O_EXCL)
        .open(&device.path)
        .expect("nobody else has it")
}
