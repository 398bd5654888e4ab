// SPDX-License-Identifier: Apache-2.0
//! The lifecycle of a volume, with the calls of the sidecars and the kubelet.

mod changes;
mod copies;
mod retries;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use csi_proto::csi::v1::controller_client::ControllerClient;
use csi_proto::csi::v1::group_controller_client::GroupControllerClient;
use csi_proto::csi::v1::node_client::NodeClient;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use csi_proto::csi::v1::{
    CapacityRange, ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest, CreateVolumeRequest,
    DeleteVolumeRequest, NodeGetInfoRequest, NodePublishVolumeRequest, NodeStageVolumeRequest,
    NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, TopologyRequirement, Volume, VolumeCapability,
};
use tonic::transport::Channel;

use crate::lab::Lab;
pub use copies::Source;
pub use retries::Retries;

/// Bytes of a GiB.
pub const GIB: i64 = 1 << 30;

/// Result of NodeGetInfo: the node id, and the topology as the provisioner passes it to CreateVolume.
pub type NodeInfo = (String, Option<TopologyRequirement>);

/// A volume of one GiB and its paths.
#[derive(Debug, Clone)]
pub struct Life {
    controller: ControllerClient<Channel>,
    groups: GroupControllerClient<Channel>,
    node: NodeClient<Channel>,
    name: String,
    capability: VolumeCapability,
    staging: PathBuf,
    target: PathBuf,
    retries: Retries,
    info: Option<NodeInfo>,
}

impl Life {
    /// Creates a volume with a file system of this type.
    pub fn mounted(lab: &Lab, controller: Channel, node: Channel, name: &str, fs_type: &str) -> Result<Self> {
        let mount = MountVolume {
            fs_type: fs_type.to_owned(),
            ..MountVolume::default()
        };
        Self::new(lab, controller, node, name, AccessType::Mount(mount))
    }

    /// Creates a raw block volume.
    pub fn block(lab: &Lab, controller: Channel, node: Channel, name: &str) -> Result<Self> {
        Self::new(lab, controller, node, name, AccessType::Block(BlockVolume {}))
    }

    fn new(lab: &Lab, controller: Channel, node: Channel, name: &str, access: AccessType) -> Result<Self> {
        let staging = lab.path(&format!("{name}-globalmount"));
        // The kubelet creates the staging directory and the parent of the target.
        std::fs::create_dir_all(&staging).with_context(|| format!("cannot make {}", staging.display()))?;
        Ok(Self {
            groups: GroupControllerClient::new(controller.clone()),
            controller: ControllerClient::new(controller),
            node: NodeClient::new(node),
            name: name.to_owned(),
            capability: VolumeCapability {
                access_mode: Some(AccessMode {
                    mode: Mode::SingleNodeWriter.into(),
                }),
                access_type: Some(access),
            },
            staging,
            target: lab.path(&format!("{name}-target")),
            retries: Retries::soon(),
            info: None,
        })
    }

    /// Sets the retry policy and the counter of failures.
    #[must_use]
    pub fn retries(self, retries: &Retries) -> Self {
        Self {
            retries: retries.clone(),
            ..self
        }
    }

    /// Sets the node info, which sidecars also query once per registration and not for each volume.
    #[must_use]
    pub fn on(self, info: &NodeInfo) -> Self {
        Self {
            info: Some(info.clone()),
            ..self
        }
    }

    /// Continues with other connections, after a process was restarted.
    #[must_use]
    pub fn over(&self, controller: Channel, node: Channel) -> Self {
        Self {
            groups: GroupControllerClient::new(controller.clone()),
            controller: ControllerClient::new(controller),
            node: NodeClient::new(node),
            ..self.clone()
        }
    }

    /// Returns the staging path.
    pub fn staging(&self) -> &Path {
        &self.staging
    }

    /// Returns the target path.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Returns the result of NodeGetInfo, or the known node info.
    pub async fn node_info(&self) -> Result<NodeInfo> {
        if let Some(info) = &self.info {
            return Ok(info.clone());
        }
        let answer = self.node.clone().node_get_info(NodeGetInfoRequest {}).await;
        let answer = answer.context("NodeGetInfo")?.into_inner();
        let requirement = answer.accessible_topology.map(|topology| TopologyRequirement {
            requisite: vec![topology.clone()],
            preferred: vec![topology],
        });
        Ok((answer.node_id, requirement))
    }

    /// Returns the number of failed calls so far.
    pub fn failures(&self) -> usize {
        self.retries.failures()
    }

    /// Calls CreateVolume for one GiB, with the provisioner's retries.
    pub async fn create(&self) -> Result<Volume> {
        self.create_as(1, None).await
    }

    /// Calls CreateVolume for a size in GiB, optionally with a data source.
    pub async fn create_as(&self, gib: i64, source: Option<&Source>) -> Result<Volume> {
        let (_, accessibility_requirements) = self.node_info().await?;
        let request = CreateVolumeRequest {
            name: self.name.clone(),
            capacity_range: Some(CapacityRange {
                required_bytes: gib * GIB,
                limit_bytes: 0,
            }),
            volume_capabilities: vec![self.capability.clone()],
            parameters: BTreeMap::from([("type".to_owned(), "fast".to_owned())]),
            accessibility_requirements,
            volume_content_source: source.map(Into::into),
            ..CreateVolumeRequest::default()
        };
        let call = async || self.controller.clone().create_volume(request.clone()).await;
        let answer = self.retries.repeat("CreateVolume", call).await?;
        answer.volume.context("CreateVolume answers without a volume")
    }

    /// Calls ControllerPublishVolume with the attacher's retries; returns the publish context.
    pub async fn attach(&self, volume: &Volume) -> Result<BTreeMap<String, String>> {
        let (node_id, _) = self.node_info().await?;
        let request = ControllerPublishVolumeRequest {
            volume_id: volume.volume_id.clone(),
            node_id,
            volume_capability: Some(self.capability.clone()),
            volume_context: volume.volume_context.clone(),
            ..ControllerPublishVolumeRequest::default()
        };
        let call = async || self.controller.clone().controller_publish_volume(request.clone()).await;
        let answer = self.retries.repeat("ControllerPublishVolume", call).await?;
        Ok(answer.publish_context)
    }

    /// Calls NodeStageVolume with the kubelet's retries.
    pub async fn stage(&self, volume: &Volume, publish_context: &BTreeMap<String, String>) -> Result<()> {
        let request = NodeStageVolumeRequest {
            volume_id: volume.volume_id.clone(),
            publish_context: publish_context.clone(),
            staging_target_path: self.staging.display().to_string(),
            volume_capability: Some(self.capability.clone()),
            volume_context: volume.volume_context.clone(),
            ..NodeStageVolumeRequest::default()
        };
        let call = async || self.node.clone().node_stage_volume(request.clone()).await;
        self.retries.repeat("NodeStageVolume", call).await.map(drop)
    }

    /// Calls NodePublishVolume with the kubelet's retries.
    pub async fn publish(&self, volume: &Volume, publish_context: &BTreeMap<String, String>) -> Result<()> {
        let request = NodePublishVolumeRequest {
            volume_id: volume.volume_id.clone(),
            publish_context: publish_context.clone(),
            staging_target_path: self.staging.display().to_string(),
            target_path: self.target.display().to_string(),
            volume_capability: Some(self.capability.clone()),
            volume_context: volume.volume_context.clone(),
            ..NodePublishVolumeRequest::default()
        };
        let call = async || self.node.clone().node_publish_volume(request.clone()).await;
        self.retries.repeat("NodePublishVolume", call).await.map(drop)
    }

    /// Calls NodeUnpublishVolume with the kubelet's retries.
    pub async fn unpublish(&self, volume: &Volume) -> Result<()> {
        let request = NodeUnpublishVolumeRequest {
            volume_id: volume.volume_id.clone(),
            target_path: self.target.display().to_string(),
        };
        let call = async || self.node.clone().node_unpublish_volume(request.clone()).await;
        self.retries.repeat("NodeUnpublishVolume", call).await.map(drop)
    }

    /// Calls NodeUnstageVolume with the kubelet's retries.
    pub async fn unstage(&self, volume: &Volume) -> Result<()> {
        let request = NodeUnstageVolumeRequest {
            volume_id: volume.volume_id.clone(),
            staging_target_path: self.staging.display().to_string(),
        };
        let call = async || self.node.clone().node_unstage_volume(request.clone()).await;
        self.retries.repeat("NodeUnstageVolume", call).await.map(drop)
    }

    /// Calls ControllerUnpublishVolume with the attacher's retries.
    pub async fn detach(&self, volume: &Volume) -> Result<()> {
        let (node_id, _) = self.node_info().await?;
        let request = ControllerUnpublishVolumeRequest {
            volume_id: volume.volume_id.clone(),
            node_id,
            ..ControllerUnpublishVolumeRequest::default()
        };
        let call = async || {
            self.controller
                .clone()
                .controller_unpublish_volume(request.clone())
                .await
        };
        self.retries.repeat("ControllerUnpublishVolume", call).await.map(drop)
    }

    /// Attaches, stages and publishes a volume, and returns the publish context.
    pub async fn bring_up(&self, volume: &Volume) -> Result<BTreeMap<String, String>> {
        let context = self.attach(volume).await?;
        self.stage(volume, &context).await?;
        self.publish(volume, &context).await?;
        Ok(context)
    }

    /// Unpublishes, unstages and detaches a volume.
    pub async fn take_down(&self, volume: &Volume) -> Result<()> {
        self.unpublish(volume).await?;
        self.unstage(volume).await?;
        self.detach(volume).await
    }

    /// Runs a script in the lab in which `TARGET` is the target path.
    pub async fn shell(&self, lab: &Lab, script: &str) -> Result<String> {
        let target = self.target.display().to_string();
        lab.shell(&script.replace("TARGET", &target)).await
    }

    /// Writes a file to a published volume.
    pub async fn write_file(&self, lab: &Lab) -> Result<()> {
        let script = "echo precious > TARGET/file; sync TARGET/file";
        self.shell(lab, script).await.map(drop)
    }

    /// Fails unless a published volume has the file.
    pub async fn expect_file(&self, lab: &Lab) -> Result<()> {
        let read = self.shell(lab, "grep -qx precious TARGET/file").await;
        read.map(drop).context("the data is not what was written")
    }

    /// Calls DeleteVolume with the provisioner's retries.
    pub async fn delete(&self, volume: &Volume) -> Result<()> {
        let request = DeleteVolumeRequest {
            volume_id: volume.volume_id.clone(),
            ..DeleteVolumeRequest::default()
        };
        let call = async || self.controller.clone().delete_volume(request.clone()).await;
        self.retries.repeat("DeleteVolume", call).await.map(drop)
    }
}
