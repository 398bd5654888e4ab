// SPDX-License-Identifier: Apache-2.0
//! The CSI Node service: a volume that is attached to this machine becomes a directory or a device file of a pod.
//!
//! Each RPC checks its fields in the order of the specification (id, path, capability, then whether the volume is staged),
//! asks [`csi_host`] and encodes the answer. What is staged and published is read from the kernel's list of mounts and
//! compared with the volume's device each time; nothing is remembered. Changes run in [`Operations`].

use std::future::{Ready, ready};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cinder_cloud::VolumeId;
use cinder_cloud::config::MetadataOptions;
use csi_host::{Device, Host, Mount, MountError, MountTable};
use csi_kit::endpoint::Endpoint;
use csi_proto::csi::v1::node_server::Node;
use csi_proto::csi::v1::node_service_capability::{Rpc, Type, rpc};
use csi_proto::csi::v1::{
    NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse,
    NodeServiceCapability,
};
use tonic::Status;

use crate::args::Args;
use crate::disabled_capabilities::{AlphaCapability, DisabledCapabilities};
use crate::layers::rpcs;
use crate::metrics::DriverMetrics;
use crate::operations::{Deadline, Operations};
use crate::status;

mod expand;
mod fields;
mod health;
mod identity;
pub(crate) mod info;
mod publish;
mod stage;
mod stats;
mod unstage;

pub use crate::node_error::{InstanceError, NodeError};

/// Where cloud-init keeps what it learned; the operator shows it to the node's container at the same place.
pub const CLOUD_INIT_DIR: &str = "/run/cloud-init";

/// The settings of the node service. They do not change.
#[derive(Debug, Clone, Default)]
pub struct NodeConfig {
    /// The flags of the process. Unset ones follow cloud.conf.
    pub args: Args,
    /// The longest time of one request to the metadata service, where cloud.conf names it.
    pub metadata_timeout: Option<Duration>,
    /// The directory with cloud-init's facts about this instance.
    pub cloud_init_dir: PathBuf,
    /// The capabilities that are turned off.
    pub disabled: DisabledCapabilities,
    /// The kubelet's directory. Where it is given, no volume is staged or published outside of it.
    pub kubelet_dir: Option<PathBuf>,
    /// The driver's directory below the kubelet's plugin directory, which persists on the node.
    pub plugin_dir: Option<PathBuf>,
}

impl NodeConfig {
    /// From the flags; `max_volumes` is what cloud.conf says, where there is one.
    pub fn from_args(args: &Args, max_volumes: Option<u32>) -> Self {
        Self {
            cloud_init_dir: CLOUD_INIT_DIR.into(),
            disabled: DisabledCapabilities::of(args.disable_capability.iter().copied()),
            // Without these flags it may be the default of a manifest that does not name it.
            kubelet_dir: (args.register || args.unregister).then(|| args.kubelet_dir.clone()),
            // Every manifest, also of the Go driver, has its socket in that directory.
            plugin_dir: match args.endpoint.parse() {
                Ok(Endpoint::Unix(socket)) => socket.parent().map(Path::to_owned),
                Ok(Endpoint::Tcp(_)) | Err(_) => None,
            },
            args: Args {
                max_volumes_per_node: args.max_volumes_per_node.or(max_volumes),
                ..args.clone()
            },
            metadata_timeout: None,
        }
    }

    /// The same with what the section `[Metadata]` of cloud.conf says, where the flags do not say it.
    #[must_use]
    pub fn with_metadata_options(mut self, options: &MetadataOptions) -> Self {
        if self.args.search_order.is_empty() {
            self.args.search_order.clone_from(&options.search_order);
        }
        self.metadata_timeout = options.request_timeout;
        self
    }
}

/// The service. Cheap to clone; clones share the running operations and what is known about this instance.
#[derive(Debug, Clone)]
pub struct NodeService {
    host: Host,
    operations: Operations,
    instance: info::Instance,
    known: health::Known,
    /// See [`NodeConfig::kubelet_dir`].
    kubelet_dir: Option<PathBuf>,
    /// Nothing is counted where there are none.
    metrics: Option<DriverMetrics>,
    /// See [`Args::device_in_use_timeout`].
    device_in_use_timeout: Duration,
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
            instance: info::Instance::new(config),
            known: health::Known::default(),
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

    fn operations(&self) -> &Operations {
        &self.operations
    }

    fn disabled(&self) -> &DisabledCapabilities {
        self.instance.disabled()
    }

    fn capabilities(
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

    async fn answer_info(
        &self,
        _request: NodeGetInfoRequest,
        _deadline: Deadline,
    ) -> Result<NodeGetInfoResponse, Status> {
        self.info().await.map_err(|error| status::instance(&error))
    }

    /// A path of a request at which this node may mount or unmount.
    fn place(&self, field: &str, path: PathBuf) -> Result<PathBuf, Status> {
        fields::place(field, path, self.kubelet_dir.as_deref())
    }
}

/// Unmounts what is at a place of a volume, unless that is another volume. Returns whether something was mounted there.
async fn unmount(host: &Host, path: &Path, volume_id: &str) -> Result<bool, NodeError> {
    if !VolumeId::new(volume_id).is_uuid() {
        // An inline volume of an older Go driver. Its handle is not the id of its Cinder volume.
        tracing::warn!(
            volume = volume_id,
            path = %path.display(),
            "unmounting an inline volume; its volume in Cinder has to be detached and deleted by hand"
        );
        return Ok(host.unmount(path).await?);
    }
    match host.other_volume_at(path, volume_id).await {
        Ok(None) => {}
        Ok(Some(serial)) => {
            return Err(NodeError::OtherVolume {
                volume_id: volume_id.to_owned(),
                path: path.to_owned(),
                serial,
            });
        }
        // A disk that does not answer must not keep a pod from its end.
        Err(error) => {
            tracing::warn!(volume = volume_id, path = %path.display(), %error, "unmounting without that look");
        }
    }
    Ok(host.unmount(path).await?)
}

/// Takes the kernel's own flag off a device that an earlier read-only publish left on it. What the hypervisor wants
/// read-only stays so, and is an error.
async fn make_writable(host: &Host, device: &Device) -> Result<Device, NodeError> {
    host.set_read_only(device, false).await?;
    let device = host.find_device(&device.volume_id, None, Duration::ZERO).await?;
    if device.read_only {
        return Err(NodeError::ReadOnlyDevice {
            volume_id: device.volume_id,
            device: device.path,
        });
    }
    Ok(device)
}

/// The answer to a stage or publish that failed. One that says that nothing was mounted is given only where that is so:
/// after it the kubelet never unmounts, and the volume is detached below the mount.
async fn failed(host: &Host, path: &Path, error: &NodeError) -> Status {
    // What cannot be looked at may be mounted.
    if host.is_mounted(path).await.unwrap_or(true) {
        status::node_while_mounted(error)
    } else {
        status::node(error)
    }
}

/// The places where the device itself is shown. Such a mount is one of the file system of `/dev`, so that only the node that
/// is seen there tells whose it is.
async fn shown<'a>(host: &Host, device: &Device, mounts: &'a MountTable) -> Result<Vec<&'a Mount>, MountError> {
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

rpcs! {
    impl Node for NodeService;
    node_stage_volume(NodeStageVolumeRequest .volume_id) -> NodeStageVolumeResponse = stage::stage;
    node_unstage_volume(NodeUnstageVolumeRequest .volume_id) -> NodeUnstageVolumeResponse = unstage::unstage;
    node_publish_volume(NodePublishVolumeRequest .volume_id) -> NodePublishVolumeResponse = publish::publish;
    node_unpublish_volume(NodeUnpublishVolumeRequest .volume_id) -> NodeUnpublishVolumeResponse = publish::unpublish;
    node_get_volume_stats(NodeGetVolumeStatsRequest .volume_id) -> NodeGetVolumeStatsResponse = stats::stats;
    node_expand_volume(NodeExpandVolumeRequest .volume_id) -> NodeExpandVolumeResponse = expand::expand;
    node_get_volume_health(NodeGetVolumeHealthRequest .volume_id) -> NodeGetVolumeHealthResponse
        = health::volume, if GetVolumeHealth;
    node_get_storage_health(NodeGetStorageHealthRequest) -> NodeGetStorageHealthResponse
        = health::storage, if GetStorageHealth;
    node_get_capabilities(NodeGetCapabilitiesRequest) -> NodeGetCapabilitiesResponse = Self::capabilities;
    node_get_info(NodeGetInfoRequest) -> NodeGetInfoResponse = Self::answer_info;
}

#[cfg(test)]
mod tests;
