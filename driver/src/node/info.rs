//! Who this node is: Nova's id and the zone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cinder_cloud::{InstanceMetadata, MetadataError, instance_metadata};
use csi_proto::csi::v1::{NodeGetInfoResponse, Topology};
use thiserror::Error;
use tokio::sync::OnceCell;

use super::NodeConfig;
use crate::parameters::TOPOLOGY_ZONE;
use crate::switches::Switches;

const METADATA_LIMIT: Duration = Duration::from_secs(10);

/// Why it is not known who this node is.
#[derive(Debug, Error)]
pub enum InstanceError {
    /// The metadata service gave no answer.
    #[error("it is not known which Nova server this node is: {0}; name it by --instance-id and --availability-zone")]
    Metadata(#[from] MetadataError),
    /// There is no zone to tell.
    #[error(
        "it is not known in which availability zone this node is ({reason}), and topology is on: name it by \
         --availability-zone, or turn topology off by --with-topology=false"
    )]
    Zone {
        /// What there is in its place.
        reason: String,
    },
}

/// What is known about this instance.
#[derive(Debug, Clone)]
pub(super) struct Instance {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: NodeConfig,
    /// Asked once: neither the id nor, short of a migration, the zone changes while this process lives.
    metadata: OnceCell<InstanceMetadata>,
}

impl Instance {
    pub(super) fn new(config: NodeConfig) -> Self {
        Self {
            inner: Arc::new(Inner {
                config,
                metadata: OnceCell::new(),
            }),
        }
    }

    pub(super) fn switches(&self) -> &Switches {
        &self.inner.config.switches
    }

    pub(super) async fn describe(&self) -> Result<NodeGetInfoResponse, InstanceError> {
        let config = &self.inner.config;
        let node_id = match &config.instance_id {
            Some(id) => id.clone(),
            None => self.metadata().await?.instance_id.to_string(),
        };
        let accessible_topology = if config.topology {
            Some(Topology {
                segments: self.segments().await?,
            })
        } else {
            None
        };
        Ok(NodeGetInfoResponse {
            node_id,
            max_volumes_per_node: config.max_volumes.map_or(0, i64::from),
            accessible_topology,
        })
    }

    async fn segments(&self) -> Result<BTreeMap<String, String>, InstanceError> {
        let config = &self.inner.config;
        let zone = match &config.availability_zone {
            Some(zone) => Some(zone),
            None => self.metadata().await?.availability_zone.as_ref(),
        };
        let Some(zone) = zone else {
            return Err(InstanceError::Zone {
                reason: "the metadata service names none".into(),
            });
        };
        let value = config.zone_labels.label(zone);
        if value.is_empty() {
            return Err(InstanceError::Zone {
                reason: format!("{zone:?} cannot be the value of a label"),
            });
        }
        let mut segments = config.additional_topology.clone();
        segments.insert(TOPOLOGY_ZONE.to_owned(), value);
        Ok(segments)
    }

    async fn metadata(&self) -> Result<&InstanceMetadata, MetadataError> {
        let url = &self.inner.config.metadata_url;
        self.inner
            .metadata
            .get_or_try_init(|| instance_metadata(url, METADATA_LIMIT))
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::ZoneLabels;

    fn config() -> NodeConfig {
        NodeConfig {
            instance_id: Some("6c1f2b9e-0000-4000-8000-000000000001".into()),
            availability_zone: Some("zone one".into()),
            // Nobody listens on port 1: what asks fails.
            metadata_url: "http://127.0.0.1:1".into(),
            zone_labels: ZoneLabels::default(),
            switches: Switches::default(),
            topology: true,
            additional_topology: BTreeMap::from([("example.com/rack".into(), "r1".into())]),
            max_volumes: Some(26),
        }
    }

    #[tokio::test]
    async fn flags_answer_without_the_metadata_service() {
        let info = Instance::new(config()).describe().await.expect("the flags say it all");
        assert_eq!(info.node_id, "6c1f2b9e-0000-4000-8000-000000000001");
        assert_eq!(info.max_volumes_per_node, 26);
        let segments = info.accessible_topology.expect("topology is on").segments;
        assert_eq!(segments.get(TOPOLOGY_ZONE).map(String::as_str), Some("x--zone_20one"));
        assert_eq!(segments.get("example.com/rack").map(String::as_str), Some("r1"));
    }

    #[tokio::test]
    async fn without_topology_no_zone_is_needed() {
        let config = NodeConfig {
            topology: false,
            availability_zone: None,
            max_volumes: None,
            ..config()
        };
        let info = Instance::new(config).describe().await.expect("no zone is needed");
        assert_eq!((info.accessible_topology, info.max_volumes_per_node), (None, 0));
    }

    #[tokio::test]
    async fn a_silent_metadata_service_is_an_error_that_names_the_flags() {
        let config = NodeConfig {
            instance_id: None,
            ..config()
        };
        let error = Instance::new(config).describe().await.expect_err("nobody answers");
        assert!(error.to_string().contains("--instance-id"), "{error}");
    }
}
