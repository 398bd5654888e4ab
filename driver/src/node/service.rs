// SPDX-License-Identifier: Apache-2.0
//! The node service, and what its calls share.

use std::future::{Ready, ready};
use std::path::{Path, PathBuf};
use std::time::Duration;

use csi_host::{Device, Host, Mount, MountError, MountTable};
use csi_proto::csi::v1::node_service_capability::{Rpc, Type, rpc};
use csi_proto::csi::v1::{
    NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse,
    NodeServiceCapability,
};
use tonic::Status;

use super::config::NodeConfig;
use crate::disabled_capabilities::DisabledCapabilities;
use crate::metrics::DriverMetrics;
use crate::node_error::{InstanceError, NodeError};
use crate::operations::{Deadline, Operations};
use crate::status;

/// The Node service. Cheap to clone; clones share the running operations and the identity of this instance.
#[derive(Debug, Clone)]
pub struct NodeService {
    pub(super) host: Host,
    pub(super) operations: Operations,
    pub(super) instance: super::info::Instance,
    pub(super) cache: super::volumes::VolumeCache,
    /// See [`NodeConfig::kubelet_dir`].
    pub(super) kubelet_dir: Option<PathBuf>,
    /// Metrics are optional.
    pub(super) metrics: Option<DriverMetrics>,
    /// See [`Args::device_in_use_timeout`](crate::args::Args::device_in_use_timeout).
    pub(super) device_in_use_timeout: Duration,
}

impl NodeService {
    /// Creates the service for one machine.
    pub fn new(config: NodeConfig, host: Host, operations: Operations) -> Self {
        Self {
            host,
            operations,
            kubelet_dir: config.kubelet_dir.clone(),
            metrics: None,
            device_in_use_timeout: config.args.device_in_use_timeout,
            instance: super::info::Instance::new(config),
            cache: super::volumes::VolumeCache::default(),
        }
    }

    /// Adds metrics to the service.
    #[must_use]
    pub fn with_metrics(self, metrics: DriverMetrics) -> Self {
        Self {
            metrics: Some(metrics),
            ..self
        }
    }

    /// Returns the response of NodeGetInfo. Determines the identity of this node unless it is known. Bounded by about a
    /// minute. Cancel-safe.
    pub async fn info(&self) -> Result<NodeGetInfoResponse, InstanceError> {
        self.instance.describe(&self.host).await
    }

    pub(super) fn operations(&self) -> &Operations {
        &self.operations
    }

    pub(super) fn disabled(&self) -> &DisabledCapabilities {
        self.instance.disabled()
    }

    pub(super) fn capabilities(
        &self,
        _request: NodeGetCapabilitiesRequest,
        _deadline: Deadline,
    ) -> Ready<Result<NodeGetCapabilitiesResponse, Status>> {
        let mut kinds = vec![
            rpc::Type::StageUnstageVolume,
            rpc::Type::GetVolumeStats,
            rpc::Type::ExpandVolume,
            rpc::Type::GetVolumeHealth,
            rpc::Type::GetStorageHealth,
            rpc::Type::SingleNodeMultiWriter,
        ];
        kinds.retain(|kind| self.disabled().advertises(kind.as_str_name()));
        let capability = |kind: rpc::Type| NodeServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: kind.into() })),
        };
        ready(Ok(NodeGetCapabilitiesResponse {
            capabilities: kinds.into_iter().map(capability).collect(),
        }))
    }

    pub(super) async fn answer_info(
        &self,
        _request: NodeGetInfoRequest,
        _deadline: Deadline,
    ) -> Result<NodeGetInfoResponse, Status> {
        self.info().await.map_err(|error| status::from_instance(&error))
    }

    /// Validates a path at which this node may mount or unmount.
    pub(super) fn check_mount_point(&self, field: &str, path: PathBuf) -> Result<PathBuf, Status> {
        super::fields::mount_point(field, path, self.kubelet_dir.as_deref())
    }
}

/// Returns the status for a failed stage or publish.
///
/// The status may claim that nothing was mounted only if that is true. After such a code, the kubelet never unmounts,
/// and the volume would be detached while it is mounted.
pub(super) async fn failure_status(host: &Host, path: &Path, error: &NodeError) -> Status {
    // If the check fails, the volume may be mounted.
    if host.is_mounted(path).await.unwrap_or(true) {
        status::from_node_while_mounted(error)
    } else {
        status::from_node(error)
    }
}

/// Returns the mounts that show the device itself.
///
/// Such a mount belongs to the file system of `/dev`, so only its device node identifies the volume.
pub(super) async fn device_mounts<'a>(
    host: &Host,
    device: &Device,
    mounts: &'a MountTable,
) -> Result<Vec<&'a Mount>, MountError> {
    let mut device_mounts = Vec::new();
    for mount in mounts
        .iter()
        .filter(|mount| mount.root.file_name() == device.path.file_name())
    {
        if host.device_number(&mount.target).await? == Some(device.number) {
            device_mounts.push(mount);
        }
    }
    Ok(device_mounts)
}
