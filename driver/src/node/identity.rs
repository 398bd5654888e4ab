// SPDX-License-Identifier: Apache-2.0
//! Where this node learns which server of Nova it is, and in which zone.
//!
//! The sources of `search-order` in the section `[Metadata]` of cloud.conf come first, in its order (the config drive, then
//! the metadata service, over IPv4 and then IPv6, where it says nothing). Behind them stand what cloud-init left on the
//! node, and the firmware's tables, which name no zone. The first id counts. A zone may come from a later source, if that
//! names the same id. `--instance-id` and `--availability-zone` stand above all.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cinder_cloud::{InstanceMetadata, LinkLocal, instance_metadata, instance_metadata_over_ipv6};
use csi_host::Host;
use tokio::io::AsyncReadExt;

use crate::args::DEFAULT_METADATA_URL;
use crate::timing::TIMING;

/// cloud-init's file has a few KiB; with long user data some more.
const LARGEST_FILE: u64 = 4 << 20;

/// A place that knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MetadataSource {
    ConfigDrive,
    MetadataService,
    CloudInit,
    Firmware,
}

impl MetadataSource {
    const ALL: [Self; 4] = [
        Self::ConfigDrive,
        Self::MetadataService,
        Self::CloudInit,
        Self::Firmware,
    ];

    /// As in `search-order`.
    fn name(self) -> &'static str {
        match self {
            Self::ConfigDrive => "configDrive",
            Self::MetadataService => "metadataService",
            Self::CloudInit => "cloudInit",
            Self::Firmware => "dmi",
        }
    }
}

/// How the sources are asked.
#[derive(Debug, Clone)]
pub(super) struct Sources {
    /// Names of sources as in cloud.conf, the first one asked first; the others follow.
    pub(super) order: Vec<String>,
    /// Base URL of the metadata service.
    pub(super) metadata_url: String,
    /// How long one question to it may take.
    pub(super) timeout: Option<Duration>,
    /// Where cloud-init keeps `instance-data.json`.
    pub(super) cloud_init_dir: PathBuf,
}

impl Sources {
    fn in_order(&self) -> Vec<MetadataSource> {
        let named = self
            .order
            .iter()
            .filter_map(|name| MetadataSource::ALL.into_iter().find(|source| source.name() == name));
        let mut order: Vec<MetadataSource> = named.collect();
        let rest: &[MetadataSource] = if order.is_empty() {
            &MetadataSource::ALL
        } else {
            // What the administrator left away of the two that the order is about stays away.
            &[MetadataSource::CloudInit, MetadataSource::Firmware]
        };
        for source in rest {
            if !order.contains(source) {
                order.push(*source);
            }
        }
        order
    }

    /// Asks until the id is known, and the zone if it is wanted. What is known in the end, and why it is not more.
    pub(super) async fn ask(&self, host: &Host, zone_wanted: bool) -> (Option<InstanceMetadata>, Vec<String>) {
        let mut known: Option<InstanceMetadata> = None;
        let mut problems = Vec::new();
        for source in self.in_order() {
            let said = self.ask_one(source, host).await;
            match (said, &mut known) {
                (Ok(metadata), None) => {
                    tracing::info!(source = source.name(), id = %metadata.instance_id, "this node knows its server id");
                    known = Some(metadata);
                }
                (Ok(other), Some(first)) if other.instance_id == first.instance_id => {
                    first.availability_zone = other.availability_zone;
                }
                (Ok(other), Some(first)) => problems.push(format!(
                    "{}: it names server {} and not {}",
                    source.name(),
                    other.instance_id,
                    first.instance_id
                )),
                (Err(problem), _) => problems.push(format!("{}: {problem}", source.name())),
            }
            if known
                .as_ref()
                .is_some_and(|known| !zone_wanted || known.availability_zone.is_some())
            {
                break;
            }
        }
        (known, problems)
    }

    async fn ask_one(&self, source: MetadataSource, host: &Host) -> Result<InstanceMetadata, String> {
        match source {
            MetadataSource::ConfigDrive => {
                let text = host.config_drive().await.map_err(|error| error.to_string())?;
                InstanceMetadata::from_document(&text)
            }
            MetadataSource::MetadataService => self.ask_service(host).await,
            MetadataSource::CloudInit => {
                let text = read(&self.cloud_init_dir.join("instance-data.json")).await?;
                InstanceMetadata::from_cloud_init(&text)
            }
            MetadataSource::Firmware => {
                let uuid = host.nova_uuid().await.map_err(|error| error.to_string())?;
                let uuid = uuid.ok_or("the firmware does not name OpenStack, or no UUID")?;
                InstanceMetadata::from_firmware(&uuid)
            }
        }
    }

    async fn ask_service(&self, host: &Host) -> Result<InstanceMetadata, String> {
        let timeout = self.timeout.unwrap_or(TIMING.metadata_timeout);
        if let Some(place) = LinkLocal::of(&self.metadata_url) {
            return self.ask_on_links(host, &place, timeout).await;
        }
        let four = instance_metadata(&self.metadata_url, timeout).await;
        let problem = match four {
            Ok(metadata) => return Ok(metadata),
            Err(error) => error.to_string(),
        };
        if self.metadata_url.trim_end_matches('/') != DEFAULT_METADATA_URL {
            // Somebody said where it is.
            return Err(problem);
        }
        self.ask_on_links(host, &LinkLocal::WELL_KNOWN, timeout)
            .await
            .map_err(|error| format!("{problem}; over IPv6: {error}"))
    }

    /// On the link that the address names, else on all.
    async fn ask_on_links(
        &self,
        host: &Host,
        place: &LinkLocal,
        timeout: Duration,
    ) -> Result<InstanceMetadata, String> {
        let interfaces = match place.zone() {
            Some(name) => {
                let number = host.network_interface(name).await.map_err(|error| error.to_string())?;
                vec![number.ok_or_else(|| {
                    format!("--metadata-url names the interface {name:?}, which this node does not have")
                })?]
            }
            None => host.network_interfaces().await.map_err(|error| error.to_string())?,
        };
        let answer = instance_metadata_over_ipv6(place, &interfaces, timeout).await;
        answer.map_err(|error| error.to_string())
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, String> {
    let problem = |error: &dyn std::fmt::Display| format!("{} cannot be read: {error}", path.display());
    let reading = async {
        let mut text = Vec::new();
        let file = tokio::fs::File::open(path).await?;
        file.take(LARGEST_FILE).read_to_end(&mut text).await?;
        Ok::<_, std::io::Error>(text)
    };
    match tokio::time::timeout(TIMING.cloud_init_timeout, reading).await {
        Ok(read) => read.map_err(|error| problem(&error)),
        Err(late) => Err(problem(&late)),
    }
}

#[cfg(test)]
mod tests {
    use csi_host::HostPaths;
    use rstest::rstest;

    use super::*;

    const ID: &str = "11111111-2222-4333-8444-555555555555";

    fn sources(order: &[&str], dir: &Path) -> Sources {
        Sources {
            order: order.iter().map(|&name| name.to_owned()).collect(),
            // Nobody listens on port 1.
            metadata_url: "http://127.0.0.1:1".into(),
            timeout: Some(Duration::from_secs(1)),
            cloud_init_dir: dir.join("run"),
        }
    }

    /// A machine without disks, whose firmware names Nova.
    fn machine(dir: &Path, uuid: &str) -> Host {
        let dmi = dir.join("sys/class/dmi/id");
        std::fs::create_dir_all(&dmi).expect("a directory");
        std::fs::write(dmi.join("product_name"), "OpenStack Nova\n").expect("a file");
        std::fs::write(dmi.join("product_uuid"), format!("{uuid}\n")).expect("a file");
        Host::new(HostPaths {
            sys: dir.join("sys"),
            dev: dir.join("dev"),
            proc: "/proc".into(),
        })
    }

    fn cloud_init(dir: &Path, id: &str) {
        std::fs::create_dir_all(dir.join("run")).expect("a directory");
        let text =
            format!(r#"{{"v1":{{"cloud_name":"openstack","instance_id":"{id}","availability_zone":"zone-1"}}}}"#);
        std::fs::write(dir.join("run/instance-data.json"), text).expect("a file");
    }

    #[rstest]
    #[case(&[], &[MetadataSource::ConfigDrive, MetadataSource::MetadataService, MetadataSource::CloudInit, MetadataSource::Firmware])]
    #[case(&["metadataService", "configDrive"], &[MetadataSource::MetadataService, MetadataSource::ConfigDrive, MetadataSource::CloudInit, MetadataSource::Firmware])]
    #[case(&["metadataService"], &[MetadataSource::MetadataService, MetadataSource::CloudInit, MetadataSource::Firmware])]
    #[case(&["dmi", "configDrive"], &[MetadataSource::Firmware, MetadataSource::ConfigDrive, MetadataSource::CloudInit])]
    fn the_order_of_cloud_conf_comes_first(#[case] order: &[&str], #[case] expected: &[MetadataSource]) {
        assert_eq!(sources(order, Path::new("/")).in_order(), expected);
    }

    #[tokio::test]
    async fn the_firmware_tells_when_nothing_else_does_issue_2622() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let host = machine(dir.path(), ID);
        let (known, problems) = sources(&[], dir.path()).ask(&host, false).await;
        assert_eq!(known.expect("the firmware knows").instance_id.as_str(), ID);
        let said = problems.join("; ");
        for source in ["configDrive", "metadataService", "cloudInit"] {
            assert!(said.contains(source), "{said}");
        }
    }

    #[tokio::test]
    async fn a_zone_is_taken_from_a_later_source_only_if_it_names_the_same_server() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let host = machine(dir.path(), ID);
        let sources = sources(&["dmi"], dir.path());
        cloud_init(dir.path(), "99999999-2222-4333-8444-555555555555");
        let (known, problems) = sources.ask(&host, true).await;
        assert_eq!(known.expect("the firmware knows").availability_zone, None);
        assert!(problems.join("; ").contains("99999999"), "{problems:?}");
        cloud_init(dir.path(), ID);
        let (known, _) = sources.ask(&host, true).await;
        assert_eq!(known.expect("both know").availability_zone.as_deref(), Some("zone-1"));
    }

    #[tokio::test]
    async fn a_link_local_address_is_asked_on_the_interface_that_it_names() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let host = machine(dir.path(), ID);
        let mut sources = sources(&["metadataService"], dir.path());
        sources.metadata_url = "http://[fe80::a9fe:a9fe%25eth9]".into();
        let (_, problems) = sources.ask(&host, false).await;
        assert!(problems.join("; ").contains("eth9"), "{problems:?}");
        // There, and with nobody behind it: no such number is the kernel's.
        let interface = dir.path().join("sys/class/net/eth9");
        std::fs::create_dir_all(&interface).expect("a directory");
        std::fs::write(interface.join("ifindex"), "4000000\n").expect("a file");
        let (_, problems) = sources.ask(&host, false).await;
        assert!(
            problems.join("; ").contains("[fe80::a9fe:a9fe%4000000]:80"),
            "{problems:?}"
        );
    }
}
