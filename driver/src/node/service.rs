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

/// The service. Cheap to clone; clones share the running operations and what is known about this instance.
#[derive(Debug, Clone)]
pub struct NodeService {
    pub(super) host: Host,
    pub(super) operations: Operations,
    pub(super) instance: super::info::Instance,
    pub(super) known: super::volumes::NodeVolumes,
    /// See [`NodeConfig::kubelet_dir`].
    pub(super) kubelet_dir: Option<PathBuf>,
    /// Nothing is counted where there are none.
    pub(super) metrics: Option<DriverMetrics>,
    /// See [`Args::device_in_use_timeout`].
    pub(super) device_in_use_timeout: Duration,
}

impl NodeService {
    /// A service on one machine.
    pub fn new(config: NodeConfig, host: Host, operations: Operations) -> Self {
        Self {
            host,
            operations,
            kubelet_dir: config.kubelet_dir.clone(),
            metrics: None,
            device_in_use_timeout: config.args.device_in_use_timeout,
            instance: super::info::Instance::new(config),
            known: super::volumes::NodeVolumes::default(),
        }
    }

    /// The same, which counts in `metrics`.
    #[must_use]
    pub fn with_metrics(self, metrics: DriverMetrics) -> Self {
        Self {
            metrics: Some(metrics),
            ..self
        }
    }

    /// What NodeGetInfo answers. It asks who this node is until that is known. Bounded by about a minute;
    /// dropping the future changes nothing.
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
        self.info().await.map_err(|error| status::instance(&error))
    }

    /// A path of a request at which this node may mount or unmount.
    pub(super) fn place(&self, field: &str, path: PathBuf) -> Result<PathBuf, Status> {
        super::fields::place(field, path, self.kubelet_dir.as_deref())
    }
}

/// The answer to a stage or publish that failed. One that says that nothing was mounted is given only where that is so:
/// after it the kubelet never unmounts, and the volume is detached below the mount.
pub(super) async fn failed(host: &Host, path: &Path, error: &NodeError) -> Status {
    // What cannot be looked at may be mounted.
    if host.is_mounted(path).await.unwrap_or(true) {
        status::node_while_mounted(error)
    } else {
        status::node(error)
    }
}

/// The places where the device itself is shown. Such a mount is one of the file system of `/dev`, so that only the node that
/// is seen there tells whose it is.
pub(super) async fn shown<'a>(
    host: &Host,
    device: &Device,
    mounts: &'a MountTable,
) -> Result<Vec<&'a Mount>, MountError> {
    let mut shown = Vec::new();
    for mount in mounts
        .iter()
        .filter(|mount| mount.root.file_name() == device.path.file_name())
    {
        if host.device_number(&mount.target).await? == Some(device.number) {
            shown.push(mount);
        }
    }
    Ok(shown)
}
