// SPDX-License-Identifier: Apache-2.0
//! Tests the driver in a virtual machine (QEMU without KVM), with hardware that loop devices lack: virtio, SCSI and
//! NVMe disks that are plugged in at run time, a config drive, and the capability to grow a mounted ext4.
//!
//! `make test-vm` installs QEMU and a kernel (`tests/vm/prepare`) and runs it.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use harness::{Image, listed, workspace_root};
use serde_json::{Value, json};

const SERVER: &str = "6c1f2b9e-0000-4000-8000-000000000001";
const SMALL: u64 = 256 << 20;
const LARGE: u64 = 512 << 20;
/// Limit of the run, which takes about half a minute on an idle machine.
const LIMIT: Duration = Duration::from_mins(5);

#[tokio::test]
#[ignore = "needs QEMU"]
async fn node_uses_disks_of_every_bus() -> Result<()> {
    let kernel = PathBuf::from(env::var_os("VM_KERNEL").context("VM_KERNEL is what tests/vm/prepare prints")?);
    let dir = tempfile::tempdir()?;
    let root = root(&kernel, dir.path()).await?;
    let machine = Machine::start(&kernel, &root, dir.path())?;
    let results = machine.run()?;
    let info = results.get("INFO").context("the node does not say who it is")?;
    ensure!(info.contains(&format!("id={SERVER} ")), "{info}");
    ensure!(info.ends_with("zone=nova"), "{info}");
    let volumes: u32 = info
        .split("volumes=")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .context("no limit")?
        .parse()?;
    ensure!(
        (20..32).contains(&volumes),
        "a PCI bus of 32 slots has room for fewer: {info}"
    );
    for (bus, prefix) in [("virtio", "/dev/vd"), ("scsi", "/dev/sd"), ("nvme", "/dev/nvme")] {
        let used = results.get(&format!("USED {bus}")).context(bus)?;
        ensure!(used.starts_with(prefix), "{bus} is {used}");
    }
    Ok(())
}

struct Machine {
    process: Child,
    lines: mpsc::Receiver<String>,
    monitor: Monitor,
    dir: PathBuf,
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Machine {
    fn start(kernel: &Path, root: &Path, dir: &Path) -> Result<Self> {
        let initrd = dir.join("initrd");
        fs::write(&initrd, archive(root)?)?;
        let drive = config_drive(dir)?;
        let image = fs::read_dir(kernel.join("boot"))?
            .flatten()
            .map(|entry| entry.path())
            .find(|path| {
                path.file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"))
            })
            .context("no kernel")?;
        let socket = dir.join("monitor");
        let mut process = Command::new("qemu-system-x86_64")
            .args(["-accel", "tcg,thread=multi", "-smp", "2", "-M", "pc", "-m", "1024"])
            .args(["-display", "none", "-nodefaults", "-no-reboot", "-serial", "stdio"])
            .args(["-append", "console=ttyS0 quiet panic=-1"])
            .arg("-kernel")
            .arg(image)
            .arg("-initrd")
            .arg(&initrd)
            .arg("-qmp")
            .arg(format!("unix:{},server=on,wait=off", socket.display()))
            .args(["-device", "virtio-scsi-pci,id=scsi0"])
            .arg("-drive")
            .arg(format!(
                "file={},if=none,id=config,format=raw,readonly=on",
                drive.display()
            ))
            .args(["-device", "virtio-blk-pci,drive=config"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("qemu-system-x86_64")?;
        let output = process.stdout.take().context("no output")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let mut reader = BufReader::new(output);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                drop(sender.send(String::from_utf8_lossy(&line).trim().to_owned()));
                line.clear();
            }
        });
        let monitor = Monitor::connect(&socket, &mut process)?;
        let dir = dir.to_owned();
        Ok(Self {
            process,
            lines,
            monitor,
            dir,
        })
    }

    /// Executes the requests of the guest, and returns its results.
    fn run(mut self) -> Result<BTreeMap<String, String>> {
        let deadline = Instant::now() + LIMIT;
        let mut results = BTreeMap::new();
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(remaining).context("the machine fell silent")?;
            println!("{line}");
            let Some(words) = line.strip_prefix("VM ") else {
                continue;
            };
            match words.split(' ').collect::<Vec<_>>()[..] {
                ["PLUG", bus, volume] => self.plug(bus, volume)?,
                ["GROW", bus, _] => self.monitor.order(
                    "block_resize",
                    &json!({"node-name": format!("disk-{bus}"), "size": LARGE}),
                )?,
                ["USED", bus, device] => drop(results.insert(format!("USED {bus}"), device.to_owned())),
                ["DONE"] => return Ok(results),
                ["INFO", ..] => drop(results.insert("INFO".into(), words.to_owned())),
                _ => bail!("{words}"),
            }
        }
    }

    fn plug(&mut self, bus: &str, volume: &str) -> Result<()> {
        let image = self.dir.join(format!("{bus}.img"));
        File::create(&image)?.set_len(SMALL)?;
        let node = format!("disk-{bus}");
        let file = json!({"driver": "file", "filename": image});
        self.monitor.order(
            "blockdev-add",
            &json!({"driver": "raw", "node-name": node, "file": file}),
        )?;
        let cut = volume.get(..20).context("a short id")?;
        let id = format!("device-{bus}");
        let device = match bus {
            "virtio" => json!({"driver": "virtio-blk-pci", "drive": node, "id": id, "serial": cut}),
            "scsi" => json!({"driver": "scsi-hd", "bus": "scsi0.0", "drive": node, "id": id, "serial": volume}),
            _ => json!({"driver": "nvme", "drive": node, "id": id, "serial": cut}),
        };
        self.monitor.order("device_add", &device)
    }
}

/// QEMU's monitor (QMP): one line of JSON per command and response.
struct Monitor {
    stream: UnixStream,
    answers: BufReader<UnixStream>,
}

impl Monitor {
    fn connect(socket: &Path, process: &mut Child) -> Result<Self> {
        let deadline = Instant::now() + Duration::from_secs(30);
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(error) => {
                    ensure!(process.try_wait()?.is_none(), "QEMU ended");
                    ensure!(Instant::now() < deadline, "no monitor: {error}");
                    thread::yield_now();
                }
            }
        };
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let mut monitor = Self {
            answers: BufReader::new(stream.try_clone()?),
            stream,
        };
        monitor.order("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    fn order(&mut self, name: &str, arguments: &Value) -> Result<()> {
        writeln!(self.stream, "{}", json!({"execute": name, "arguments": arguments}))?;
        loop {
            let mut line = String::new();
            ensure!(self.answers.read_line(&mut line)? > 0, "QEMU ended");
            let answer: Value = serde_json::from_str(&line)?;
            if let Some(error) = answer.get("error") {
                bail!("{name}: {error}");
            }
            if answer.get("return").is_some() {
                return Ok(());
            }
        }
    }
}

/// Builds the root file system: the driver's image, a shell, modules, and the program that calls the driver.
async fn root(kernel: &Path, dir: &Path) -> Result<PathBuf> {
    let repository = workspace_root();
    let guest = Path::new(env!("CARGO_BIN_EXE_node-guest"));
    // Without symbols, which would exceed the memory of the machine.
    let stripped = dir.join("stripped");
    fs::create_dir(&stripped)?;
    for name in ["node-guest", "cinder-csi-driver"] {
        let built = guest.with_file_name(name);
        ensure!(built.exists(), "{} is not built", built.display());
        succeed(Command::new("strip").arg("-o").arg(stripped.join(name)).arg(built))?;
    }
    let list = repository.join("config/images/driver.files");
    let image = listed(Image::new("machine"), &list, |name| Some(stripped.join(name))).await?;
    let busybox = succeed(Command::new("sh").args(["-c", "command -v busybox"]))?;
    let mut image = image
        .program(&stripped.join("node-guest"), "/usr/bin/node-guest")
        .await?
        .file(busybox.trim(), "/bin/busybox")
        .file(repository.join("tests/vm/init"), "/init");
    for applet in ["sh", "mount", "modprobe", "poweroff"] {
        image = image.link(format!("/bin/{applet}"), "busybox");
    }
    let root = dir.join("root");
    image.unpack(&root).await?;
    succeed(Command::new("cp").arg("-a").arg(kernel.join("lib")).arg(&root))?;
    Ok(root)
}

/// Builds a config drive with Nova's program and options.
fn config_drive(dir: &Path) -> Result<PathBuf> {
    let (content, image) = (dir.join("config"), dir.join("config.iso"));
    let latest = content.join("openstack/latest");
    fs::create_dir_all(&latest)?;
    let document = json!({"uuid": SERVER, "availability_zone": "nova", "name": "vm", "devices": []});
    fs::write(latest.join("meta_data.json"), document.to_string())?;
    succeed(
        Command::new("genisoimage")
            .arg("-o")
            .arg(&image)
            .args([
                "-ldots",
                "-allow-lowercase",
                "-allow-multidot",
                "-l",
                "-quiet",
                "-J",
                "-r",
                "-V",
                "config-2",
            ])
            .arg(&content),
    )?;
    Ok(image)
}

fn succeed(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Packs the tree below `root` in the kernel's format (cpio, "newc").
fn archive(root: &Path) -> Result<Vec<u8>> {
    let mut archive = Vec::new();
    let mut pending = vec![root.to_owned()];
    let mut inode = 0;
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            let metadata = fs::symlink_metadata(&path)?;
            let content = if metadata.is_symlink() {
                fs::read_link(&path)?.into_os_string().into_encoded_bytes()
            } else if metadata.is_dir() {
                Vec::new()
            } else {
                fs::read(&path)?
            };
            inode += 1;
            let name = path.strip_prefix(root)?.to_str().context("a name that is no text")?;
            entry_of(&mut archive, name, inode, metadata.permissions().mode(), &content)?;
            if metadata.is_dir() {
                pending.push(path);
            }
        }
    }
    entry_of(&mut archive, "TRAILER!!!", 0, 0, &[])?;
    Ok(archive)
}

fn entry_of(archive: &mut Vec<u8>, name: &str, inode: u32, mode: u32, content: &[u8]) -> Result<()> {
    let length = u32::try_from(content.len())?;
    let name_length = u32::try_from(name.len() + 1)?;
    // inode, mode, owner, group, links, time, size, four device numbers, length of the name, checksum
    let fields = [inode, mode, 0, 0, 1, 0, length, 0, 0, 0, 0, name_length, 0];
    archive.extend(b"070701");
    for field in fields {
        write!(archive, "{field:08x}")?;
    }
    archive.extend(name.as_bytes());
    archive.push(0);
    pad(archive);
    archive.extend(content);
    pad(archive);
    Ok(())
}

fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}
