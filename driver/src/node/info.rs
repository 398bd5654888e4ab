// SPDX-License-Identifier: Apache-2.0
//! The response of NodeGetInfo: identity, zone and volume limit of this node.

use std::collections::BTreeMap;
use std::sync::Arc;

use cinder_cloud::InstanceMetadata;
use csi_host::Host;
use csi_proto::csi::v1::{NodeGetInfoResponse, Topology};
use tokio::sync::Mutex;

use super::NodeConfig;
use super::identity::Identity;
use crate::disabled_capabilities::DisabledCapabilities;
use crate::node_error::InstanceError;
use crate::parameters::TOPOLOGY_ZONE;

/// The identity of this node, shared by its clones.
#[derive(Debug, Clone)]
pub(super) struct Instance {
    inner: Arc<InstanceInner>,
}

#[derive(Debug)]
struct InstanceInner {
    config: NodeConfig,
    identity: Identity,
    /// Determined once: the id does not change while this process runs, and the zone only by a migration.
    metadata: Mutex<Option<InstanceMetadata>>,
}

impl Instance {
    pub(super) fn new(config: NodeConfig) -> Self {
        Self {
            inner: Arc::new(InstanceInner {
                identity: Identity::new(&config),
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
        let metadata = self.metadata(host).await?;
        let accessible_topology = if args.with_topology {
            Some(Topology {
                segments: self.segments(metadata.availability_zone)?,
            })
        } else {
            None
        };
        Ok(NodeGetInfoResponse {
            node_id: metadata.instance_id.to_string(),
            max_volumes_per_node: self.most_volumes(host).await?,
            accessible_topology,
        })
    }

    /// Returns the configured limit, else the attached volumes plus the free slots of the bus, minus the reserved ones.
    ///
    /// The result is at least 1, because 0 means no limit. A machine that does not respond is an error: the scheduler
    /// would use a larger limit until this process ends.
    async fn most_volumes(&self, host: &Host) -> Result<i64, InstanceError> {
        if let Some(limit) = self.inner.config.args.max_volumes_per_node {
            return Ok(limit.into());
        }
        let slots = host.volume_slots().await.map_err(InstanceError::Slots)?;
        let reserved = self.inner.config.args.reserved_volumes;
        tracing::debug!(bus = ?slots.bus, attached = slots.attached, free = slots.free, reserved, "room for volumes");
        Ok(slots.volumes().saturating_sub(reserved).max(1).into())
    }

    /// Returns the topology of this node. The flag takes precedence over `zone`, which the sources report.
    fn segments(&self, zone: Option<String>) -> Result<BTreeMap<String, String>, InstanceError> {
        let args = &self.inner.config.args;
        let Some(zone) = args.availability_zone.clone().or(zone) else {
            return Err(InstanceError::Zone {
                reason: "neither the config drive nor the metadata service nor cloud-init names one for this server"
                    .into(),
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

    /// Returns the identity. Concurrent callers wait for the first one.
    async fn metadata(&self, host: &Host) -> Result<InstanceMetadata, InstanceError> {
        let args = &self.inner.config.args;
        let mut known = self.inner.metadata.lock().await;
        if let Some(metadata) = &*known {
            return Ok(metadata.clone());
        }
        let zone_wanted = args.with_topology && args.availability_zone.is_none();
        let metadata = self.inner.identity.determine(host, zone_wanted).await?;
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

    /// A machine without disks and firmware.
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
            // No service listens on port 1.
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
    async fn flags_suffice_without_metadata_service() {
        let info = Instance::new(config())
            .describe(&host())
            .await
            .expect("the flags are complete");
        assert_eq!(info.node_id, "6c1f2b9e-0000-4000-8000-000000000001");
        assert_eq!(info.max_volumes_per_node, 26);
        let segments = info.accessible_topology.expect("topology is on").segments;
        assert_eq!(segments.get(TOPOLOGY_ZONE).map(String::as_str), Some("x--zone_20one"));
        assert_eq!(segments.get("example.com/rack").map(String::as_str), Some("r1"));
    }

    #[tokio::test]
    async fn topology_off_needs_no_zone() {
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
    // Only the flag disables the limit.
    #[case(Some(0), 6, 0)]
    #[tokio::test]
    async fn reserved_volumes_reduce_count_but_no_flag(
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
            .expect("the flags are complete");
        assert_eq!(info.max_volumes_per_node, limit);
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_disk_is_an_error_not_a_limit() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let disk = dir.path().join("block/vda");
        std::fs::create_dir_all(&disk).expect("a directory");
        // A FIFO without a writer blocks its reader.
        let status = std::process::Command::new("mkfifo").arg(disk.join("serial")).status();
        assert!(status.expect("mkfifo runs").success());
        let host = Host::new(HostPaths {
            sys: dir.path().into(),
            ..HostPaths::default()
        });
        let config = config_with(|args| args.max_volumes_per_node = None);
        let error = Instance::new(config).describe(&host).await.expect_err("the disk hangs");
        assert!(matches!(error, InstanceError::Slots(_)), "{error}");
    }

    #[tokio::test]
    async fn unknown_server_is_an_error_that_names_flag() {
        let config = config_with(|args| args.instance_id = None);
        let error = Instance::new(config)
            .describe(&host())
            .await
            .expect_err("no source answers");
        assert!(error.to_string().contains("--instance-id"), "{error}");
    }

    #[tokio::test]
    async fn restart_reports_recorded_server_only() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let cloud_init = dir.path().join("instance-data.json");
        let socket = dir.path().join("csi.sock");
        let describe = async |id: &str, flags: &[&str]| {
            let data = format!(r#"{{"v1":{{"cloud_name":"openstack","instance_id":"{id}"}}}}"#);
            std::fs::write(&cloud_init, data).expect("a file");
            let endpoint = format!("--endpoint=unix://{}", socket.display());
            let common = ["driver", &endpoint, "--with-topology=false", "--search-order=dmi"];
            let args = Args::from_argv([&common[..], flags].concat()).expect("valid flags");
            let mut config = NodeConfig::from_args(&args, Some(26));
            config.cloud_init_dir = dir.path().into();
            Instance::new(config).describe(&host()).await.map(|info| info.node_id)
        };
        let [one, other] = ["1", "2"].map(|digit| format!("6c1f2b9e-0000-4000-8000-00000000000{digit}"));
        assert_eq!(describe(&one, &[]).await.expect("the first start"), one);
        let error = describe(&other, &[]).await.expect_err("the boot is the same");
        assert!(matches!(error, InstanceError::Changed { .. }), "{error}");
        let flag = format!("--instance-id={other}");
        assert_eq!(describe(&one, &[&flag]).await.expect("the flag"), other);
        assert_eq!(
            describe(&other, &[]).await.expect("the flag replaced the record"),
            other
        );
    }
}
