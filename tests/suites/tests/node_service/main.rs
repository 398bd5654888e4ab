// SPDX-License-Identifier: Apache-2.0
//! Tests of the Node service on real loop devices, each in its own mount namespace. Needs root.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a helper that cannot do its part fails the test"
)]

mod agent;
mod confinement;
mod growth;
mod hostile;
mod in_use;
mod lives;
mod process;
mod program_output;
mod refusals;
mod trouble;
mod unstage;

use std::fs;
use std::path::Path;
use std::time::Duration;

use cinder_csi_driver::args::Args;
use cinder_csi_driver::metrics::DriverMetrics;
use cinder_csi_driver::node::{NodeConfig, NodeService};
use cinder_csi_driver::operations::{Limits, Operations};
use csi_host::{Device, Host, Tools};
use csi_kit::metrics::{BuildInfo, Metrics};
use csi_proto::csi::v1::node_get_storage_health_response::StorageBackendHealth;
use csi_proto::csi::v1::node_server::Node;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use csi_proto::csi::v1::{
    CapacityRange, NodeExpandVolumeRequest, NodeGetStorageHealthRequest, NodeGetVolumeHealthRequest,
    NodeGetVolumeStatsRequest, NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest,
    NodeUnstageVolumeRequest, StorageHealthErrorType, VolumeCapability, VolumeHealthErrorType, VolumeUsage,
};
use lab::{Lab, MIB, VOLUME};
use tonic::{Code, Request, Status};

#[allow(dead_code, reason = "the other tests on loop devices use all of it")]
#[path = "../../../../driver/host/tests/loop_devices/lab.rs"]
mod lab;

#[allow(dead_code, reason = "the other tests on loop devices use all of it")]
#[path = "../../../../driver/host/tests/loop_devices/flaky.rs"]
mod flaky;

/// Whether the kernel of this machine has at least this version.
fn has_kernel(major: u32, minor: u32) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    let mut numbers = release
        .split('.')
        .map(|number| number.parse::<u32>().unwrap_or_default());
    (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
}

/// A node with its paths, and the calls of the kubelet.
struct Kubelet<'lab> {
    lab: &'lab Lab,
    node: NodeService,
}

impl<'lab> Kubelet<'lab> {
    fn new(lab: &'lab Lab) -> Self {
        Self::with_tools(lab, Tools::default())
    }

    fn with_tools(lab: &'lab Lab, tools: Tools) -> Self {
        Self {
            lab,
            node: node_on(lab.host_with(tools)),
        }
    }

    /// Creates a node with this `device_in_use_timeout`, and returns its metrics.
    fn with_patience(lab: &'lab Lab, device_in_use_timeout: Duration) -> (Self, Metrics) {
        let (node, metrics) = counting_node_on(lab.host(), device_in_use_timeout);
        (Self { lab, node }, metrics)
    }

    fn path(&self, name: &str) -> String {
        self.lab.at(name).display().to_string()
    }

    fn stage_request(&self, volume: &str, capability: VolumeCapability) -> NodeStageVolumeRequest {
        NodeStageVolumeRequest {
            volume_id: volume.into(),
            staging_target_path: self.path("staging"),
            volume_capability: Some(capability),
            ..NodeStageVolumeRequest::default()
        }
    }

    async fn stage(&self, volume: &str, capability: VolumeCapability) -> Result<(), Status> {
        let request = self.stage_request(volume, capability);
        self.node.node_stage_volume(Request::new(request)).await.map(drop)
    }

    /// Stages [`VOLUME`]. Fails the test on an error, like the following functions.
    async fn must_stage(&self, capability: VolumeCapability) {
        self.stage(VOLUME, capability).await.expect("NodeStageVolume");
    }

    async fn must_unstage(&self) {
        self.unstage(VOLUME).await.expect("NodeUnstageVolume");
    }

    async fn must_publish(&self, target: &str, readonly: bool, capability: VolumeCapability) {
        let published = self.publish(target, readonly, capability).await;
        published.expect("NodePublishVolume");
    }

    async fn must_unpublish(&self, target: &str) {
        self.unpublish(target).await.expect("NodeUnpublishVolume");
    }

    /// Returns the usage of [`VOLUME`] at a path of the lab.
    async fn usage(&self, path: &str) -> Vec<VolumeUsage> {
        let usage = self.stats(VOLUME, &self.path(path)).await;
        usage.expect("NodeGetVolumeStats")
    }

    async fn unstage(&self, volume: &str) -> Result<(), Status> {
        let request = NodeUnstageVolumeRequest {
            volume_id: volume.into(),
            staging_target_path: self.path("staging"),
        };
        self.node.node_unstage_volume(Request::new(request)).await.map(drop)
    }

    async fn publish(&self, target: &str, readonly: bool, capability: VolumeCapability) -> Result<(), Status> {
        let request = NodePublishVolumeRequest {
            volume_id: VOLUME.into(),
            staging_target_path: self.path("staging"),
            target_path: self.path(target),
            volume_capability: Some(capability),
            readonly,
            ..NodePublishVolumeRequest::default()
        };
        self.node.node_publish_volume(Request::new(request)).await.map(drop)
    }

    async fn unpublish(&self, target: &str) -> Result<(), Status> {
        let request = NodeUnpublishVolumeRequest {
            volume_id: VOLUME.into(),
            target_path: self.path(target),
        };
        self.node.node_unpublish_volume(Request::new(request)).await.map(drop)
    }

    async fn expand(&self, path: &str, bytes: u64) -> Result<i64, Status> {
        let request = NodeExpandVolumeRequest {
            volume_id: VOLUME.into(),
            volume_path: self.path(path),
            capacity_range: Some(CapacityRange {
                required_bytes: i64::try_from(bytes).expect("a small volume"),
                limit_bytes: 0,
            }),
            ..NodeExpandVolumeRequest::default()
        };
        let answer = self.node.node_expand_volume(Request::new(request)).await?;
        Ok(answer.into_inner().capacity_bytes)
    }

    /// Returns the volume's health errors with their types.
    async fn health(&self, volume: &str) -> Result<Vec<(VolumeHealthErrorType, String)>, Status> {
        let request = NodeGetVolumeHealthRequest {
            volume_id: volume.into(),
            staging_target_path: self.path("staging"),
            ..NodeGetVolumeHealthRequest::default()
        };
        let answer = self.node.node_get_volume_health(Request::new(request)).await?;
        let health = answer.into_inner().volume_health.expect("it is always set");
        assert_eq!(health.volume_id, volume);
        let entries = health.health_statuses.into_iter();
        Ok(entries.map(|entry| (entry.status(), entry.reason)).collect())
    }

    async fn storage_health(&self) -> Vec<StorageHealthErrorType> {
        let request = Request::new(NodeGetStorageHealthRequest::default());
        let answer = self.node.node_get_storage_health(request).await;
        let entries = answer.expect("it never fails").into_inner().backend_health;
        entries.iter().map(StorageBackendHealth::status).collect()
    }

    async fn stats(&self, volume: &str, path: &str) -> Result<Vec<VolumeUsage>, Status> {
        let request = NodeGetVolumeStatsRequest {
            volume_id: volume.into(),
            volume_path: path.into(),
            ..NodeGetVolumeStatsRequest::default()
        };
        let answer = self.node.node_get_volume_stats(Request::new(request)).await?;
        Ok(answer.into_inner().usage)
    }

    async fn mounts_at(&self, name: &str) -> usize {
        let table = self.lab.host().mounts().await.expect("the list can be read");
        let path = self.lab.at(name);
        table.iter().filter(|mount| mount.target == path).count()
    }
}

/// Creates a node service on `host` with the identity from its flags.
fn node_on(host: Host) -> NodeService {
    counting_node_on(host, Args::default().device_in_use_timeout).0
}

fn counting_node_on(host: Host, device_in_use_timeout: Duration) -> (NodeService, Metrics) {
    let args = Args {
        instance_id: Some("server-1".into()),
        availability_zone: Some("nova".into()),
        device_in_use_timeout,
        ..Args::default()
    };
    let config = NodeConfig {
        args,
        ..NodeConfig::default()
    };
    let build = BuildInfo {
        program: "node_service",
        version: "0.0.0",
        revision: "",
    };
    let registry = Metrics::new(build).expect("a registry");
    let metrics = DriverMetrics::new(&registry, "d").expect("families");
    let node = NodeService::new(config, host, Operations::new(Limits::default()));
    (node.with_metrics(metrics), registry)
}

fn mount(fs_type: &str, mode: Mode) -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: mode.into() }),
        access_type: Some(AccessType::Mount(MountVolume {
            fs_type: fs_type.into(),
            ..MountVolume::default()
        })),
    }
}

fn ext4() -> VolumeCapability {
    mount("ext4", Mode::SingleNodeWriter)
}

fn block() -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode {
            mode: Mode::SingleNodeWriter.into(),
        }),
        access_type: Some(AccessType::Block(BlockVolume {})),
    }
}

fn code(result: Result<(), Status>) -> Code {
    result.map_or_else(|status| status.code(), |()| Code::Ok)
}

fn expect_code(result: Result<(), Status>, expected: Code) {
    match result {
        Ok(()) => assert_eq!(expected, Code::Ok),
        Err(status) => assert_eq!(status.code(), expected, "{status}"),
    }
}

/// Checks the code of an error, and that its message contains all parts.
fn expect_refusal(error: &Status, expected: Code, parts: &[&str]) {
    assert_eq!(error.code(), expected, "{error}");
    for part in parts {
        assert!(error.message().contains(part), "{part}: {error}");
    }
}

fn expect_content(path: &Path, expected: &str) {
    let content = fs::read_to_string(path).expect("the file exists");
    assert_eq!(content, expected, "{}", path.display());
}

async fn disk(lab: &Lab) -> Device {
    lab.volume(VOLUME, 64 * MIB).await
}
