// SPDX-License-Identifier: Apache-2.0
//! Tests of volumes with data. Attachments are loop devices, which need root.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use openstack_sim::{ServerSpec, Sim, VolumeStatus};
use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::client::{Client, NODE, OTHER_NODE, PATIENCE};

/// Two servers with device folders, and a backing folder.
struct BackingSite {
    folder: TempDir,
}

impl BackingSite {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        for name in ["node", "other"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn servers(&self) -> Vec<ServerSpec> {
        [(NODE, "node"), (OTHER_NODE, "other")]
            .map(|(id, name)| ServerSpec {
                by_id: Some(self.path(name)),
                ..ServerSpec::new(id)
            })
            .to_vec()
    }

    async fn client(&self) -> Client {
        Client::new(|config| {
            config.servers = self.servers();
            config.backing = Some(self.path("backing"));
        })
        .await
    }

    fn file(&self, id: &str) -> PathBuf {
        self.path("backing/volumes").join(format!("{id}.img"))
    }

    /// Returns the loop devices with backing files in this folder, as the kernel lists them.
    fn devices(&self) -> Vec<PathBuf> {
        let ours = self.folder.path().canonicalize().unwrap();
        let mut devices = Vec::new();
        for entry in fs::read_dir("/sys/block").unwrap().flatten() {
            let file = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
            if Path::new(file.trim_end()).starts_with(&ours) {
                devices.push(Path::new("/dev").join(entry.file_name()));
            }
        }
        devices
    }
}

impl Drop for BackingSite {
    /// Cleans up the devices of a failed test.
    fn drop(&mut self) {
        for device in self.devices() {
            drop(Command::new("losetup").arg("--detach").arg(device).status());
        }
    }
}

/// Fails with a message if this machine cannot create loop devices.
fn need_loop_devices() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let made = Command::new("losetup")
        .args(["--find", "--show"])
        .arg(file.path())
        .output()
        .expect("losetup");
    let device = String::from_utf8_lossy(&made.stdout).trim().to_owned();
    let why = String::from_utf8_lossy(&made.stderr);
    assert!(!device.is_empty(), "this test needs root and loop devices: {why}");
    let detached = Command::new("losetup").args(["--detach", &device]).status();
    assert!(detached.is_ok_and(|status| status.success()), "{device} is not let go");
}

fn link(folder: &Path, volume: &str) -> PathBuf {
    folder.join(format!("virtio-{}", &volume[..20]))
}

#[tokio::test]
async fn volume_file_is_sparse_and_deleted_with_volume() {
    let place = BackingSite::new();
    let client = place.client().await;
    let id = client.volume("data").await;
    let file = fs::metadata(place.file(&id)).unwrap();
    assert_eq!((file.len(), file.blocks()), (1 << 30, 0));
    client.delete(&id).await.expect(202);
    client.is_gone(&id).await;
    assert!(!place.file(&id).exists());
}

#[tokio::test]
async fn encrypted_devices_are_smaller_by_their_header() {
    let place = BackingSite::new();
    let client = Client::new(|config| {
        config.backing = Some(place.path("backing"));
        config.volume_types = vec!["fast".parse().unwrap(), "locked,encrypted=16".parse().unwrap()];
    })
    .await;
    let create = async |body: Value| {
        let made = client.create(body).await.expect(202);
        let id = made.body["volume"]["id"].as_str().unwrap().to_owned();
        client.reaches(&id, VolumeStatus::Available).await;
        id
    };
    let size = |id: &str| fs::metadata(place.file(id)).unwrap().len();
    let id = create(json!({"size": 1, "volume_type": "locked"})).await;
    assert_eq!(size(&id), (1 << 30) - (16 << 20));
    let body = json!({"os-extend": {"new_size": 2}});
    client
        .cinder(Method::POST, &format!("/volumes/{id}/action"), None, Some(body))
        .await
        .expect(202);
    client.reaches(&id, VolumeStatus::Available).await;
    assert_eq!(size(&id), (2 << 30) - (16 << 20));
    let clone = create(json!({"size": 3, "source_volid": id})).await;
    assert_eq!(size(&clone), (3 << 30) - (16 << 20));
}

#[tokio::test]
async fn refuses_second_simulator_on_same_folder() {
    let place = BackingSite::new();
    let client = place.client().await;
    let config = openstack_sim::SimConfig {
        backing: Some(place.path("backing")),
        ..Default::default()
    };
    let refused = Sim::start(config).await.map(drop);
    assert!(refused.is_err_and(|error| error.to_string().starts_with("another simulator uses")));
    client.sim.shutdown().await.unwrap();
}

#[tokio::test]
#[ignore = "needs root"]
async fn data_are_readable_on_next_server() {
    need_loop_devices();
    let place = BackingSite::new();
    let client = place.client().await;
    let id = client.volume("data").await;
    client.attached(NODE, &id).await;
    let device = link(&place.path("node"), &id);
    let mut disk = fs::OpenOptions::new().read(true).write(true).open(&device).unwrap();
    assert_eq!(
        disk.seek(SeekFrom::End(0)).unwrap(),
        1 << 30,
        "the device has the volume's size"
    );
    disk.rewind().unwrap();
    disk.write_all(b"seen again").unwrap();
    disk.sync_all().unwrap();
    drop(disk);
    assert!(!link(&place.path("other"), &id).exists());

    client.detach(NODE, &id).await.expect(202);
    client.reaches(&id, VolumeStatus::Available).await;
    assert!(fs::symlink_metadata(&device).is_err() && place.devices().is_empty());
    client.attached(OTHER_NODE, &id).await;
    let mut text = [0; 10];
    fs::File::open(link(&place.path("other"), &id))
        .unwrap()
        .read_exact(&mut text)
        .unwrap();
    assert_eq!(&text, b"seen again");

    let extend = Some(json!({"os-extend": {"new_size": 2}}));
    client
        .cinder(Method::POST, &format!("/volumes/{id}/action"), Some("3.42"), extend)
        .await
        .expect(202);
    client.reaches(&id, VolumeStatus::InUse).await;
    let mut disk = fs::File::open(link(&place.path("other"), &id)).unwrap();
    assert_eq!(
        disk.seek(SeekFrom::End(0)).unwrap(),
        2 << 30,
        "the guest sees the new size"
    );
    drop(disk);
    client.sim.shutdown().await.unwrap();
    assert!(place.devices().is_empty());
}

#[tokio::test]
async fn snapshot_retains_data_of_its_time() {
    let place = BackingSite::new();
    let client = place.client().await;
    let id = client.volume("data").await;
    fs::OpenOptions::new()
        .write(true)
        .open(place.file(&id))
        .unwrap()
        .write_all(b"old")
        .unwrap();
    let body = json!({"snapshot": {"volume_id": id}});
    let snapshot = client
        .cinder(Method::POST, "/snapshots", None, Some(body))
        .await
        .expect(202);
    assert!(client.sim.settled(PATIENCE).await);
    fs::OpenOptions::new()
        .write(true)
        .open(place.file(&id))
        .unwrap()
        .write_all(b"new")
        .unwrap();
    let wish = json!({"size": 2, "snapshot_id": snapshot.body["snapshot"]["id"]});
    let copy = client.create(wish).await.expect(202).body["volume"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    client.reaches(&copy, VolumeStatus::Available).await;
    let mut text = [0; 3];
    let mut file = fs::File::open(place.file(&copy)).unwrap();
    file.read_exact(&mut text).unwrap();
    assert_eq!((&text, file.metadata().unwrap().len()), (b"old", 2 << 30));
}

#[tokio::test]
#[ignore = "needs root"]
async fn busy_device_prevents_detach() {
    need_loop_devices();
    let place = BackingSite::new();
    let client = place.client().await;
    let id = client.volume("data").await;
    client.attached(NODE, &id).await;
    client.latency(|latencies| latencies.release = Duration::from_millis(100));
    // Opens the device exclusively, like a mounted file system.
    let excl = i32::try_from(rustix::fs::OFlags::EXCL.bits()).unwrap();
    let mut options = fs::OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::custom_flags(options.read(true), excl);
    let guest = options.open(link(&place.path("node"), &id)).unwrap();
    client.detach(NODE, &id).await.expect(202);
    // The response was sent in status `detaching`; `in-use` again means that the attempt has ended.
    client.reaches(&id, VolumeStatus::InUse).await;
    assert!(link(&place.path("node"), &id).exists());
    drop(guest);
    client.detach(NODE, &id).await.expect(202);
    client.reaches(&id, VolumeStatus::Available).await;
    assert!(place.devices().is_empty());
}

#[tokio::test]
#[ignore = "needs root"]
async fn restart_restores_state_and_devices() {
    need_loop_devices();
    let place = BackingSite::new();
    let client = place.client().await;
    let (attached, free) = (client.volume("attached").await, client.volume("free").await);
    client.attached(NODE, &attached).await;
    let before = client.sim.state();
    let token = client.token.clone();
    client.sim.shutdown().await.unwrap();
    assert!(place.devices().is_empty() && fs::symlink_metadata(link(&place.path("node"), &attached)).is_err());

    let mut client = place.client().await;
    client.token = token;
    client.get(&format!("/volumes/{free}")).await.expect(200);
    let after = client.sim.state();
    assert_eq!(
        (&after.volumes, &after.attachments),
        (&before.volumes, &before.attachments)
    );
    assert!(link(&place.path("node"), &attached).exists());
    client.sim.shutdown().await.unwrap();
}

/// The simulator as a program, killed on drop.
struct Program {
    child: Child,
    ready: Value,
}

impl Program {
    fn start(place: &BackingSite, more: &[&str]) -> Self {
        let ready_file = place.path("ready");
        drop(fs::remove_file(&ready_file));
        let child = Command::new(env!("CARGO_BIN_EXE_openstack-sim"))
            .args(["serve", "--backing"])
            .arg(place.path("backing"))
            .arg("--ready-file")
            .arg(&ready_file)
            .arg("--server")
            .arg(format!("{NODE},name=node,by-id={}", place.path("node").display()))
            .args(more)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let end = Instant::now() + PATIENCE;
        while !ready_file.exists() {
            assert!(Instant::now() < end, "the simulator does not start");
            std::thread::yield_now();
        }
        let ready = serde_json::from_slice(&fs::read(&ready_file).unwrap()).unwrap();
        Self { child, ready }
    }

    async fn call(&self, method: Method, path: &str, body: Value) -> Value {
        let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        let auth = json!({"auth": {
            "identity": {"methods": ["application_credential"], "application_credential": {
                "id": self.ready["application_credential_id"],
                "secret": self.ready["application_credential_secret"],
            }},
        }});
        let url = format!("{}/auth/tokens", self.ready["auth_url"].as_str().unwrap());
        let token = http.post(url).json(&auth).send().await.unwrap().headers()["x-subject-token"].clone();
        let url = format!("{}{path}", self.ready["base_url"].as_str().unwrap());
        let answer = http
            .request(method, url)
            .header("X-Auth-Token", token)
            .json(&body)
            .send()
            .await
            .unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
        answer.json().await.unwrap_or_default()
    }

    async fn volume_with_status(&self, id: &str, status: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let volume = self
                .call(Method::GET, &format!("/volume/v3/volumes/{id}"), Value::Null)
                .await;
            if volume["volume"]["status"] == status {
                return;
            }
            assert!(Instant::now() < end, "the volume is not {status}");
        }
    }

    async fn attached_volume(&self) -> String {
        let body = json!({"volume": {"size": 1}});
        let made = self.call(Method::POST, "/volume/v3/volumes", body).await;
        let id = made["volume"]["id"].as_str().unwrap().to_owned();
        self.volume_with_status(&id, "available").await;
        let path = format!("/compute/v2.1/servers/{NODE}/os-volume_attachments");
        self.call(Method::POST, &path, json!({"volumeAttachment": {"volumeId": id}}))
            .await;
        self.volume_with_status(&id, "in-use").await;
        id
    }

    /// Sends a signal and waits for the exit.
    fn end(&mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[tokio::test]
#[ignore = "needs root"]
async fn restart_after_kill_reuses_devices() {
    need_loop_devices();
    let place = BackingSite::new();
    let mut first = Program::start(&place, &[]);
    let id = first.attached_volume().await;
    first.end(Signal::KILL);
    let remaining = place.devices();
    assert_eq!(remaining.len(), 1, "kill -9 leaves the device");
    // A link without an attachment, as after a kill between two steps.
    let stray = place.path("node").join("virtio-00000000-0000-4000-8");
    std::os::unix::fs::symlink(&remaining[0], &stray).unwrap();

    let mut second = Program::start(&place, &[]);
    second.volume_with_status(&id, "in-use").await;
    assert_eq!(
        place.devices(),
        remaining,
        "a mounted disk must not go away under its user"
    );
    assert!(link(&place.path("node"), &id).exists() && fs::symlink_metadata(&stray).is_err());
    assert_eq!(second.end(Signal::TERM), Some(0));
    assert!(place.devices().is_empty() && fs::symlink_metadata(link(&place.path("node"), &id)).is_err());
}

#[tokio::test]
#[ignore = "needs root"]
async fn clean_releases_devices_after_kill() {
    need_loop_devices();
    let place = BackingSite::new();
    let mut killed = Program::start(&place, &[]);
    let id = killed.attached_volume().await;
    killed.end(Signal::KILL);
    let clean = Command::new(env!("CARGO_BIN_EXE_openstack-sim"))
        .args(["clean", "--backing"])
        .arg(place.path("backing"))
        .status()
        .unwrap();
    assert!(clean.success());
    assert!(place.devices().is_empty() && fs::symlink_metadata(link(&place.path("node"), &id)).is_err());
    assert!(place.file(&id).exists(), "the data stay");
}

#[tokio::test]
async fn next_run_finishes_interrupted_work() {
    let place = BackingSite::new();
    let mut first = Program::start(&place, &["--latency", "create=1h"]);
    let made = first
        .call(Method::POST, "/volume/v3/volumes", json!({"volume": {"size": 1}}))
        .await;
    let id = made["volume"]["id"].as_str().unwrap().to_owned();
    first.end(Signal::KILL);
    let second = Program::start(&place, &[]);
    second.volume_with_status(&id, "available").await;
    assert!(place.file(&id).exists());
}
