// SPDX-License-Identifier: Apache-2.0
//! Sources of the identity: config drive, metadata service and the data of cloud-init.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cinder_cloud::{InstanceMetadata, LinkLocal, instance_metadata, instance_metadata_over_ipv6};
use csi_host::Host;
use tokio::io::AsyncReadExt;

use super::agreement::Answer;
use crate::args::DEFAULT_METADATA_URL;
use crate::timing::TIMING;

/// The file of cloud-init has a few KiB, and more with long user data.
const LARGEST_FILE: u64 = 4 << 20;
/// The firmware's name in `search-order`. Its position has no effect, because the firmware confirms all other sources.
const FIRMWARE: &str = "dmi";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MetadataSource {
    ConfigDrive,
    MetadataService,
    CloudInit,
}

impl MetadataSource {
    const ALL: [Self; 3] = [Self::ConfigDrive, Self::MetadataService, Self::CloudInit];

    /// Returns the name in `search-order`.
    fn name(self) -> &'static str {
        match self {
            Self::ConfigDrive => "configDrive",
            Self::MetadataService => "metadataService",
            Self::CloudInit => "cloudInit",
        }
    }
}

/// Settings of the sources.
#[derive(Debug, Clone)]
pub(super) struct Sources {
    /// The names of sources as in cloud.conf. [`Sources::in_order`] adds others.
    pub(super) order: Vec<String>,
    /// Base URL of the metadata service.
    pub(super) metadata_url: String,
    /// The timeout of one request to it.
    pub(super) timeout: Option<Duration>,
    /// The directory with `instance-data.json` of cloud-init.
    pub(super) cloud_init_dir: PathBuf,
}

impl Sources {
    /// Returns the configured sources. cloud-init is always appended, because the names of the Go driver select between
    /// the other two only.
    fn in_order(&self) -> Vec<MetadataSource> {
        let named = self
            .order
            .iter()
            .filter_map(|name| MetadataSource::ALL.into_iter().find(|source| source.name() == name));
        let mut order: Vec<MetadataSource> = named.collect();
        let rest: &[MetadataSource] = if order.is_empty() && !self.order.iter().any(|name| name == FIRMWARE) {
            &MetadataSource::ALL
        } else {
            &[MetadataSource::CloudInit]
        };
        for source in rest {
            if !order.contains(source) {
                order.push(*source);
            }
        }
        order
    }

    /// Queries the sources in order until the answers are complete.
    ///
    /// Returns the answers, and the problems of sources without one.
    pub(super) async fn query(
        &self,
        host: &Host,
        is_complete: impl Fn(&[Answer]) -> bool,
    ) -> (Vec<Answer>, Vec<String>) {
        let mut answers = Vec::new();
        let mut problems = Vec::new();
        for source in self.in_order() {
            if is_complete(&answers) {
                break;
            }
            match self.query_one(source, host).await {
                Ok(more) => answers.extend(more),
                Err(problem) => problems.push(format!("{}: {problem}", source.name())),
            }
        }
        (answers, problems)
    }

    async fn query_one(&self, source: MetadataSource, host: &Host) -> Result<Vec<Answer>, String> {
        let answer = |metadata| {
            vec![Answer {
                source: source.name().to_owned(),
                metadata,
            }]
        };
        match source {
            MetadataSource::ConfigDrive => query_config_drives(host).await,
            MetadataSource::MetadataService => self.query_service(host).await.map(answer),
            MetadataSource::CloudInit => {
                let text = read(&self.cloud_init_dir.join("instance-data.json")).await?;
                InstanceMetadata::from_cloud_init(&text).map(answer)
            }
        }
    }

    async fn query_service(&self, host: &Host) -> Result<InstanceMetadata, String> {
        let timeout = self.timeout.unwrap_or(TIMING.metadata_timeout);
        if let Some(address) = LinkLocal::of(&self.metadata_url) {
            return query_links(host, &address, timeout).await;
        }
        let problem = match instance_metadata(&self.metadata_url, timeout).await {
            Ok(metadata) => return Ok(metadata),
            Err(error) => error.to_string(),
        };
        if self.metadata_url.trim_end_matches('/') != DEFAULT_METADATA_URL {
            // The administrator configured the address.
            return Err(problem);
        }
        query_links(host, &LinkLocal::WELL_KNOWN, timeout)
            .await
            .map_err(|error| format!("{problem}; over IPv6: {error}"))
    }
}

/// Queries a link-local address on its interface. If it has none, queries only interfaces on which pods cannot respond.
async fn query_links(host: &Host, address: &LinkLocal, timeout: Duration) -> Result<InstanceMetadata, String> {
    let interfaces =
        match address.zone() {
            Some(name) => {
                let number = host.network_interface(name).await.map_err(|error| error.to_string())?;
                vec![number.ok_or_else(|| {
                    format!("--metadata-url names the interface {name:?}, which this node does not have")
                })?]
            }
            None => host.physical_interfaces().await.map_err(|error| error.to_string())?,
        };
    let answer = instance_metadata_over_ipv6(address, &interfaces, timeout).await;
    answer.map_err(|error| error.to_string())
}

async fn query_config_drives(host: &Host) -> Result<Vec<Answer>, String> {
    let drives = host.config_drives().await.map_err(|error| error.to_string())?;
    let answers = drives.into_iter().map(|drive| {
        let source = format!("{} ({})", MetadataSource::ConfigDrive.name(), drive.device.display());
        match InstanceMetadata::from_document(&drive.document) {
            Ok(metadata) => Ok(Answer { source, metadata }),
            Err(problem) => Err(format!("{}: {problem}", drive.device.display())),
        }
    });
    answers.collect()
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
    use rstest::rstest;

    use super::MetadataSource::{CloudInit, ConfigDrive, MetadataService};
    use super::*;

    #[rstest]
    #[case(&[], &[ConfigDrive, MetadataService, CloudInit])]
    #[case(&["metadataService", "configDrive"], &[MetadataService, ConfigDrive, CloudInit])]
    #[case(&["metadataService"], &[MetadataService, CloudInit])]
    #[case(&["cloudInit", "configDrive"], &[CloudInit, ConfigDrive])]
    #[case(&["dmi", "configDrive"], &[ConfigDrive, CloudInit])]
    #[case(&["dmi"], &[CloudInit])]
    fn order_of_cloud_conf_comes_first(#[case] order: &[&str], #[case] expected: &[MetadataSource]) {
        let sources = Sources {
            order: order.iter().map(|&name| name.to_owned()).collect(),
            metadata_url: String::new(),
            timeout: None,
            cloud_init_dir: PathBuf::new(),
        };
        assert_eq!(sources.in_order(), expected);
    }
}
