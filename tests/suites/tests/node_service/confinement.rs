// SPDX-License-Identifier: Apache-2.0
//! Tests of the confinement of programs that read a volume.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use csi_host::machine::Machine as _;
use csi_host::tool::{ToolExit, ToolTask};
use csi_host::{FilesystemRequest, FsType, Host, HostPaths, Linux, MountOptions, Tools};

use crate::has_kernel;
use crate::lab::{ANY, Lab, MIB, OTHER, VOLUME, output, run};
use crate::process::{self, Driver};

const LIMIT: Duration = Duration::from_mins(1);
const GIB: u64 = 1 << 30;

fn confined_host(lab: &Lab) -> Host {
    let paths = HostPaths {
        sys: "/sys".into(),
        dev: lab.at("dev"),
        proc: "/proc".into(),
    };
    let machine = Linux::confined_by(process::program());
    Host::with_machine(Arc::new(machine), paths, Tools::default())
}

/// Runs a confined shell script with the device as its last argument.
async fn report(task: ToolTask, script: &str, device: &Path) -> (ToolExit, String) {
    let machine = Linux::confined_by(process::program());
    let ended = machine
        .run(Path::new("bash"), &["-c", script], device, LIMIT, task)
        .await;
    let ended = ended.expect("it starts");
    let output = ended.stdout.complete().expect("a short output");
    (ended, output)
}

fn own_capabilities() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("CapPrm:"));
    u64::from_str_radix(line.expect("the line").trim(), 16).expect("a set")
}

#[test]
fn programs_have_no_unneeded_privileges() {
    run("confinement::programs_have_no_unneeded_privileges", |lab| async move {
        let device = lab.volume(VOLUME, 64 * MIB).await;
        let script = "grep -E 'Cap|NoNewPrivs' /proc/self/status; tail -n +3 /proc/net/dev | cut -d: -f1; ulimit -c; env | cut -d= -f1; \
                      readlink /proc/$$/fd/* | sed 's/[0-9].*//'";
        for (task, capabilities) in [
            (ToolTask::Probe, 0_u64),
            (ToolTask::Format, 0),
            (ToolTask::FormatXfs, 1 << 21),
            (ToolTask::Check, 0),
            (ToolTask::GrowUnmounted, 0),
            (ToolTask::GrowMountedExt, 1 << 24),
            (ToolTask::GrowMounted, 1 << 21),
            (ToolTask::SetReadOnly, 1 << 21),
        ] {
            let (ended, said) = report(task, script, &device.path).await;
            assert_eq!(ended.code, Some(0), "{task:?}: {ended:?}");
            let words: Vec<&str> = said.split_whitespace().collect();
            // The test itself may lack some capabilities.
            let effective = format!("{:016x}", capabilities & own_capabilities());
            let expected = [
                "CapInh:",
                "0000000000000000",
                "CapPrm:",
                &effective,
                "CapEff:",
                &effective,
                "CapBnd:",
                &effective,
                "CapAmb:",
                "0000000000000000",
                "NoNewPrivs:",
                "1",
                "lo",
                "0",
            ];
            assert_eq!(words.get(..expected.len()), Some(&expected[..]), "{task:?}: {said}");
            let rest = words.get(expected.len()..).expect("more");
            let known = ["PATH", "LC_ALL", "PWD", "SHLVL", "_", "/dev/null", "pipe:["];
            assert!(rest.iter().all(|word| known.contains(word)), "{task:?}: {rest:?}");
        }
    });
}

#[test]
fn programs_access_only_their_device() {
    run("confinement::programs_access_only_their_device", |lab| async move {
        let device = lab.volume(VOLUME, 64 * MIB).await;
        let other = lab.volume(OTHER, 64 * MIB).await;
        let (own, other) = (device.path.display(), other.path.display());
        let secret = "/var/cinder-csi-test-secret";
        fs::write(secret, "secret").expect("a file");
        let try_all = format!(
            "try() {{ if eval \"$1\" 2>/dev/null; then echo \"+ $1\"; else echo \"- $1\"; fi; }}\n\
             try 'head -c 1 {own} >/dev/null'; try 'echo x 1<>{own}'; try 'cat /etc/mke2fs.conf >/dev/null'\n\
             try 'head -c 1 {other} >/dev/null'; try 'echo x 1<>{other}'; try 'cat {secret}'; try 'echo x > {secret}'\n\
             try 'cat /etc/passwd'; try 'kill -0 {parent}'; try 'mount -t tmpfs none /mnt'; try 'mknod /tmp/csi-test-node b 7 0'",
            parent = std::process::id(),
        );
        let (ended, said) = report(ToolTask::GrowMounted, &try_all, &device.path).await;
        fs::remove_file(secret).expect("it is ours");
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let outcomes: String = said
            .lines()
            .filter_map(|line| line.chars().next())
            .filter(|sign| "+-".contains(*sign))
            .collect();
        // Landlock restricts signals from Linux 6.12 on.
        let signal = if has_kernel(6, 12) { '-' } else { '+' };
        assert_eq!(outcomes, format!("+++-----{signal}--"), "{said}");
    });
}

#[test]
fn memory_of_programs_is_limited() {
    run("confinement::memory_of_programs_is_limited", |lab| async move {
        let device = lab.volume(VOLUME, 64 * MIB).await;
        let (_, limit) = report(ToolTask::Check, "ulimit -d", &device.path).await;
        let kib: u64 = limit.trim().parse().expect("a number of KiB");
        assert_eq!(kib * 1024, 512 * MIB + 64 * MIB / 256);
        // `tail` buffers everything that it reads from a pipe.
        let script = "yes | head -c 1G | tail -c 1G > /dev/null; exit ${PIPESTATUS[2]}";
        let (ended, said) = report(ToolTask::Check, script, &device.path).await;
        assert_eq!(ended.code, Some(1), "{said}");
        assert!(ended.stderr.message().contains("memory exhausted"), "{ended:?}");
    });
}

#[test]
fn confined_programs_do_their_work() {
    run("confinement::confined_programs_do_their_work", |lab| async move {
        for fs_type in [FsType::Ext4, FsType::Xfs, FsType::Btrfs] {
            let volume = lab.volume(VOLUME, 320 * MIB).await;
            let host = confined_host(&lab);
            let prepare_options = FilesystemRequest {
                fs_type: Some(fs_type),
                ..ANY
            };
            let made = host.prepare_filesystem(&volume, prepare_options.clone()).await;
            assert!(made.unwrap_or_else(|error| panic!("{fs_type}: {error}")).formatted);
            let again = host.prepare_filesystem(&volume, prepare_options).await;
            assert!(!again.unwrap_or_else(|error| panic!("{fs_type}: {error}")).formatted);
            let staging = lab.directory("staging");
            let mount = |device| {
                let (host, staging) = (host.clone(), staging.clone());
                async move { host.mount(&device, &staging, fs_type, &MountOptions::default()).await }
            };
            mount(volume.clone())
                .await
                .unwrap_or_else(|error| panic!("{fs_type}: {error}"));
            let node = format!("/dev/{}", volume.name);
            let backing = lab.at(&format!("{VOLUME}.img"));
            fs::File::options()
                .write(true)
                .open(&backing)
                .and_then(|file| file.set_len(640 * MIB))
                .expect("it is ours");
            output(Command::new("losetup").args(["--set-capacity", &node]));
            let grown = host.find_device(VOLUME, None, LIMIT).await.expect("it is there");
            if fs_type != FsType::Ext4 {
                host.grow_mounted(&grown, fs_type, &staging)
                    .await
                    .unwrap_or_else(|error| panic!("{fs_type}: {error}"));
            }
            host.set_read_only(&grown, true).await.expect("blockdev works");
            host.set_read_only(&grown, false).await.expect("blockdev works");
            host.unmount(&staging).await.expect("nothing uses it");
            if fs_type == FsType::Ext4 {
                host.grow_unmounted_ext(&grown, fs_type)
                    .await
                    .expect("e2fsck and resize2fs work");
            }
            lab.detach(&grown);
        }
    });
}

/// 16 TiB is the maximum file size of many file systems on which tests run, and close to the maximum size of ext4.
#[test]
fn check_of_largest_ext4_has_enough_memory() {
    run(
        "confinement::check_of_largest_ext4_has_enough_memory",
        |lab| async move {
            let volume = lab.volume(VOLUME, 16 * 1024 * GIB - MIB).await;
            let host = confined_host(&lab);
            host.prepare_filesystem(&volume, ANY).await.expect("it is blank");
            host.grow_unmounted_ext(&volume, FsType::Ext4)
                .await
                .expect("the whole check has enough memory");
        },
    );
}

#[test]
fn driver_writes_no_core_dump() {
    run("confinement::driver_writes_no_core_dump", |lab| async move {
        let driver = Driver::start(&lab).await;
        let limits = driver.proc("limits");
        let core = limits.lines().find(|line| line.starts_with("Max core file size"));
        let core: Vec<&str> = core.expect("the line").split_whitespace().collect();
        assert_eq!(core.get(4..6), Some(&["0", "0"][..]), "{limits}");
        // The kernel exposes memory and environment to processes of the same user, unless the process is not dumpable.
        let environment = format!("/proc/{}/environ", driver.id());
        let other = Command::new("setpriv")
            .args(["--bounding-set=-all", "--inh-caps=-all", "cat", &environment])
            .output()
            .expect("setpriv (util-linux) is installed");
        assert!(!other.status.success(), "{other:?}");
    });
}
