// SPDX-License-Identifier: Apache-2.0
//! Who this node is: Nova's id and the zone.

use std::collections::BTreeMap;
use std::sync::Arc;

use cinder_cloud::InstanceMetadata;
use csi_host::Host;
use csi_proto::csi::v1::{NodeGetInfoResponse, Topology};
use tokio::sync::Mutex;

use super::NodeConfig;
use super::identity::Sources;
use crate::disabled_capabilities::DisabledCapabilities;
use crate::node_error::InstanceError;
use crate::parameters::TOPOLOGY_ZONE;

/// What is known about this instance.
#[derive(Debug, Clone)]
pub(super) struct Instance {
    inner: Arc<InstanceInner>,
}

#[derive(Debug)]
struct InstanceInner {
    config: NodeConfig,
    sources: Sources,
    /// Asked until it is known: neither the id nor, short of a migration, the zone changes while this process lives.
    metadata: Mutex<Option<InstanceMetadata>>,
}

impl Instance {
    pub(super) fn new(config: NodeConfig) -> Self {
        Self {
            inner: Arc::new(InstanceInner {
                sources: Sources {
                    order: config.args.search_order.clone(),
                    metadata_url: config.args.metadata_url.clone(),
                    timeout: config.metadata_timeout,
                    cloud_init_dir: config.cloud_init_dir.clone(),
                },
                config,
                metadata: Mutex::default(),
            }),
        }
    }

    pub(super) fn disabled(&self) -> &DisabledCapabilities {
        &self.inner.config.disabled
    }

    pub(super) async fn describe(&self, host: &Host) -> Result<NodeGetInfoResponse, InstanceError> {
        let args = &self.inner.config.args;
        let node_id = match &args.instance_id {
            Some(id) => id.clone(),
            None => self.metadata(host).await?.instance_id.to_string(),
        };
        let accessible_topology = if args.with_topology {
            Some(Topology {
                segments: self.segments(host).await?,
            })
        } else {
            None
        };
        Ok(NodeGetInfoResponse {
            node_id,
            max_volumes_per_node: self.most_volumes(host).await?,
            accessible_topology,
        })
    }

    /// What was configured, else what is attached and what the bus has room for, less what is reserved: never no limit by
    /// accident, which 0 means, and no larger one because the machine was slow to answer, which the scheduler would believe
    /// until this process ends.
    async fn most_volumes(&self, host: &Host) -> Result<i64, InstanceError> {
        if let Some(limit) = self.inner.config.args.max_volumes_per_node {
            return Ok(limit.into());
        }
        let slots = host.volume_slots().await.map_err(InstanceError::Slots)?;
        let reserved = self.inner.config.args.reserved_volumes;
        tracing::debug!(bus = ?slots.bus, attached = slots.attached, free = slots.free, reserved, "room for volumes");
        Ok(slots.volumes().saturating_sub(reserved).max(1).into())
    }

    async fn segments(&self, host: &Host) -> Result<BTreeMap<String, String>, InstanceError> {
        let args = &self.inner.config.args;
        let zone = match &args.availability_zone {
            Some(zone) => Some(zone.clone()),
            None => self.metadata(host).await?.availability_zone,
        };
        let Some(zone) = zone else {
            return Err(InstanceError::Zone {
                reason: "neither the config drive nor the metadata service nor cloud-init names one".into(),
            });
        };
        let value = args.zone_labels.label(&zone);
        if value.is_empty() {
            return Err(InstanceError::Zone {
                reason: format!("{zone:?} cannot be the value of a label"),
            });
        }
        let mut segments: BTreeMap<_, _> = args.additional_topology.iter().cloned().collect();
        segments.insert(TOPOLOGY_ZONE.to_owned(), value);
        Ok(segments)
    }

    /// What the sources say. Callers that come while one asks wait for its answer.
    async fn metadata(&self, host: &Host) -> Result<InstanceMetadata, InstanceError> {
        let args = &self.inner.config.args;
        let mut known = self.inner.metadata.lock().await;
        if let Some(metadata) = &*known {
            return Ok(metadata.clone());
        }
        let zone_wanted = args.with_topology && args.availability_zone.is_none();
        let (said, problems) = self.inner.sources.ask(host, zone_wanted).await;
        let metadata = said.ok_or(InstanceError::Unknown { problems })?;
        if !zone_wanted || metadata.availability_zone.is_some() {
            *known = Some(metadata.clone());
        }
        Ok(metadata)
    }
}

#[cfg(test)]
mod tests {
    use csi_host::HostPaths;
    use rstest::rstest;

    use super::*;
    use crate::args::Args;

    /// A machine that knows nothing.
    fn host() -> Host {
        Host::new(HostPaths {
            sys: "/nonexistent".into(),
            dev: "/nonexistent".into(),
            proc: "/proc".into(),
        })
    }

    fn config() -> NodeConfig {
        let args = Args {
            instance_id: Some("6c1f2b9e-0000-4000-8000-000000000001".into()),
            availability_zone: Some("zone one".into()),
            // Nobody listens on port 1: what asks fails.
            metadata_url: "http://127.0.0.1:1".into(),
            additional_topology: vec![("example.com/rack".into(), "r1".into())],
            max_volumes_per_node: Some(26),
            ..Args::default()
        };
        NodeConfig {
            args,
            ..NodeConfig::default()
        }
    }

    fn config_with(change: impl FnOnce(&mut Args)) -> NodeConfig {
        let mut config = config();
        change(&mut config.args);
        config
    }

    #[tokio::test]
    async fn flags_answer_without_the_metadata_service() {
        let info = Instance::new(config())
            .describe(&host())
            .await
            .expect("the flags say it all");
        assert_eq!(info.node_id, "6c1f2b9e-0000-4000-8000-000000000001");
        assert_eq!(info.max_volumes_per_node, 26);
        let segments = info.accessible_topology.expect("topology is on").segments;
        assert_eq!(segments.get(TOPOLOGY_ZONE).map(String::as_str), Some("x--zone_20one"));
        assert_eq!(segments.get("example.com/rack").map(String::as_str), Some("r1"));
    }

    #[tokio::test]
    async fn without_topology_no_zone_is_needed() {
        let config = config_with(|args| {
            args.with_topology = false;
            args.availability_zone = None;
            args.max_volumes_per_node = None;
        });
        let info = Instance::new(config.clone())
            .describe(&host())
            .await
            .expect("no zone is needed");
        assert_eq!((info.accessible_topology, info.max_volumes_per_node), (None, 256));
    }

    #[rstest]
    #[case(None, 6, 250)]
    #[case(None, 300, 1)]
    #[case(Some(26), 6, 26)]
    // No limit only where it is asked for.
    #[case(Some(0), 6, 0)]
    #[tokio::test]
    async fn what_is_reserved_is_taken_from_the_count_and_not_from_a_limit_that_is_given(
        #[case] max_volumes: Option<u32>,
        #[case] reserved_volumes: u32,
        #[case] limit: i64,
    ) {
        let config = config_with(|args| {
            args.max_volumes_per_node = max_volumes;
            args.reserved_volumes = reserved_volumes;
        });
        let info = Instance::new(config)
            .describe(&host())
            .await
            .expect("the flags say it all");
        assert_eq!(info.max_volumes_per_node, limit);
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_does_not_answer_is_not_promised_the_largest_limit() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let disk = dir.path().join("block/vda");
        std::fs::create_dir_all(&disk).expect("a directory");
        // Nobody writes to it, so that to read it takes for ever.
        let made = std::process::Command::new("mkfifo").arg(disk.join("serial")).status();
        assert!(made.expect("mkfifo runs").success());
        let host = Host::new(HostPaths {
            sys: dir.path().into(),
            ..HostPaths::default()
        });
        let config = config_with(|args| args.max_volumes_per_node = None);
        let error = Instance::new(config).describe(&host).await.expect_err("nobody answers");
        assert!(matches!(error, InstanceError::Slots(_)), "{error}");
    }

    #[tokio::test]
    async fn a_silent_metadata_service_is_an_error_that_names_the_flags() {
        let config = config_with(|args| args.instance_id = None);
        let error = Instance::new(config)
            .describe(&host())
            .await
            .expect_err("nobody answers");
        assert!(error.to_string().contains("--instance-id"), "{error}");
    }
}
