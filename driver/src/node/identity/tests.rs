// SPDX-License-Identifier: Apache-2.0
//! Identities of emulated machines, with their firmware, disks, network interfaces and metadata service.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use csi_host::HostPaths;
use rstest::rstest;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::args::Args;
use crate::node::NodeConfig;

const ID: &str = "6c1f2b9e-0a0b-4c0d-8000-000000000001";
const SWAPPED: &str = "9e2b1f6c-0b0a-0d4c-8000-000000000001";
const OTHER: &str = "99999999-2222-4333-8444-555555555555";

/// A machine in a directory.
struct Machine {
    dir: TempDir,
    args: Args,
}

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let args = Args {
            // No service listens on port 1.
            metadata_url: "http://127.0.0.1:1".into(),
            ..Args::default()
        };
        Self { dir, args }
    }

    fn file(&self, path: &str, content: &str) -> &Self {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().expect("it has a parent")).expect("a directory");
        fs::write(path, content).expect("a file");
        self
    }

    /// The firmware identifies an OpenStack server.
    fn firmware(&self, uuid: &str) -> &Self {
        self.file("sys/class/dmi/id/product_name", "OpenStack Nova\n");
        self.file("sys/class/dmi/id/product_uuid", &format!("{uuid}\n"))
    }

    fn cloud_init(&self, id: &str) -> &Self {
        let data =
            format!(r#"{{"v1":{{"cloud_name":"openstack","instance_id":"{id}","availability_zone":"zone-1"}}}}"#);
        self.file("run/instance-data.json", &data)
    }

    /// Starts a metadata service that names this server.
    async fn service(&mut self, id: &'static str) -> &mut Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        self.args.metadata_url = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let body = format!(r#"{{"uuid":"{id}"}}"#);
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                let mut request = [0; 4096];
                if stream.read(&mut request).await.is_ok() {
                    drop(stream.write_all(answer.as_bytes()).await);
                }
            }
        });
        self
    }

    fn host(&self) -> Host {
        let path = |name: &str| self.dir.path().join(name);
        Host::new(HostPaths {
            sys: path("sys"),
            dev: path("dev"),
            proc: path("proc"),
        })
    }

    async fn determine(&self, zone_wanted: bool) -> Result<InstanceMetadata, InstanceError> {
        let config = NodeConfig {
            args: self.args.clone(),
            metadata_timeout: Some(Duration::from_secs(1)),
            cloud_init_dir: self.dir.path().join("run"),
            ..NodeConfig::default()
        };
        Identity::new(&config).determine(&self.host(), zone_wanted).await
    }

    async fn refusal(&self) -> String {
        self.determine(false).await.expect_err("a refusal").to_string()
    }
}

#[tokio::test]
async fn firmware_alone_identifies_server_issue_2622() {
    let machine = Machine::new();
    let message = machine.refusal().await;
    for source in ["configDrive", "metadataService", "cloudInit"] {
        assert!(message.contains(source), "{message}");
    }
    machine.firmware(ID);
    let metadata = machine.determine(false).await.expect("the firmware is enough");
    assert_eq!(metadata.instance_id.as_str(), ID);
}

#[rstest]
#[case::same(ID)]
#[case::swapped(SWAPPED)]
#[tokio::test]
async fn firmware_confirms_metadata_service(#[case] uuid: &str) {
    let mut machine = Machine::new();
    machine.firmware(uuid);
    machine.service(ID).await;
    let metadata = machine.determine(false).await.expect("they agree");
    assert_eq!(metadata.instance_id.as_str(), ID);
}

#[tokio::test]
async fn source_against_firmware_is_refused_not_skipped() {
    let mut machine = Machine::new();
    machine.firmware(ID).cloud_init(ID);
    machine.service(OTHER).await;
    let message = machine.refusal().await;
    assert!(message.contains(ID) && message.contains(OTHER), "{message}");
    machine.args.instance_id = Some(OTHER.into());
    let metadata = machine.determine(false).await.expect("an administrator decided");
    assert_eq!(metadata.instance_id.as_str(), OTHER);
}

#[tokio::test]
async fn firmware_without_uuid_is_refused() {
    let machine = Machine::new();
    machine.firmware("").cloud_init(ID);
    let message = machine.refusal().await;
    assert!(message.contains("product_uuid"), "{message}");
}

#[tokio::test]
async fn silent_firmware_needs_sources_that_agree() {
    let mut machine = Machine::new();
    machine.cloud_init(ID);
    assert_eq!(
        machine.determine(false).await.expect("one source").instance_id.as_str(),
        ID
    );
    machine.service(OTHER).await;
    let message = machine.refusal().await;
    for part in [ID, OTHER, "metadataService", "cloudInit"] {
        assert!(message.contains(part), "{message}");
    }
}

#[tokio::test]
async fn zone_comes_from_later_source_of_same_server() {
    let mut machine = Machine::new();
    machine.firmware(ID).cloud_init(ID);
    machine.service(ID).await;
    let metadata = machine.determine(true).await.expect("all agree");
    assert_eq!(metadata.availability_zone.as_deref(), Some("zone-1"));
    machine.cloud_init(OTHER);
    assert!(
        machine.determine(true).await.is_err(),
        "cloud-init names another server"
    );
    machine.args.instance_id = Some(ID.into());
    let metadata = machine.determine(true).await.expect("the flag");
    assert_eq!(metadata.availability_zone, None);
}

#[tokio::test]
async fn logical_volume_of_tenant_names_no_server() {
    let machine = Machine::new();
    machine.file("sys/block/dm-0/size", "64").file("dev/dm-0", "");
    machine.file("dev/disk/by-label/.udev", "");
    let link = machine.dir.path().join("dev/disk/by-label/config-2");
    symlink("../../dm-0", link).expect("a link");
    let message = machine.refusal().await;
    assert!(message.contains("no CD-ROM or plain disk"), "{message}");
}

#[rstest]
#[case::veth("veth1", "INTERFACE=veth1\n")]
#[case::bridge("cni0", "DEVTYPE=bridge\n")]
#[tokio::test]
async fn neighbour_behind_veth_or_bridge_is_not_queried(#[case] name: &str, #[case] uevent: &str) {
    let mut machine = Machine::new();
    machine.args.metadata_url = "http://[fe80::a9fe:a9fe]".into();
    let interface = format!("sys/class/net/{name}");
    machine.file(&format!("{interface}/ifindex"), "4000000\n");
    machine.file(&format!("{interface}/uevent"), uevent);
    let message = machine.refusal().await;
    assert!(message.contains("no network interface of a physical"), "{message}");
    // The same interface with a device is queried. The kernel has no such number.
    machine.file(&format!("{interface}/device"), "");
    let message = machine.refusal().await;
    assert!(message.contains("[fe80::a9fe:a9fe%4000000]:80"), "{message}");
}

#[tokio::test]
async fn link_local_address_uses_interface_that_it_names() {
    let mut machine = Machine::new();
    machine.args.metadata_url = "http://[fe80::a9fe:a9fe%25eth9]".into();
    let message = machine.refusal().await;
    assert!(message.contains("eth9"), "{message}");
    machine.file("sys/class/net/eth9/ifindex", "4000000\n");
    let message = machine.refusal().await;
    assert!(message.contains("[fe80::a9fe:a9fe%4000000]:80"), "{message}");
}
