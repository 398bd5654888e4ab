//! One volume's way through a driver, from create to delete, as the sidecars and the kubelet take it.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use csi_proto::csi::v1::controller_client::ControllerClient;
use csi_proto::csi::v1::node_client::NodeClient;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use csi_proto::csi::v1::{
    CapacityRange, ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest, CreateVolumeRequest,
    DeleteVolumeRequest, NodeGetInfoRequest, NodePublishVolumeRequest, NodeStageVolumeRequest,
    NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, TopologyRequirement, Volume, VolumeCapability,
};
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use crate::lab::Lab;

/// Bytes of a GiB.
pub const GIB: i64 = 1 << 30;
/// How often a call is repeated that a sidecar would repeat.
const ATTEMPTS: usize = 100;
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// How a failed call is repeated.
#[derive(Debug, Clone)]
pub struct Retries {
    first_pause: Duration,
    /// What each pause is multiplied by to give the next.
    factor: u32,
    call_timeout: Duration,
    failures: Arc<AtomicUsize>,
}

impl Retries {
    /// Soon and steadily: for a test that wants the end and not the way.
    pub fn soon() -> Self {
        Self::new(Duration::from_millis(100), 1, Duration::from_mins(1))
    }

    /// As the sidecars do with the flags of the Go driver's manifests: after a second, and twice as long each time.
    pub fn as_sidecars() -> Self {
        Self::new(Duration::from_secs(1), 2, Duration::from_mins(3))
    }

    fn new(first_pause: Duration, factor: u32, call_timeout: Duration) -> Self {
        Self {
            first_pause,
            factor,
            call_timeout,
            failures: Arc::default(),
        }
    }

    /// How many calls failed so far, of all lives that share this.
    pub fn failures(&self) -> usize {
        self.failures.load(Ordering::Relaxed)
    }

    /// Repeats a call that fails in a way that may pass: a retry is what finishes the work that an ended process began.
    async fn repeat<T, Fut>(&self, name: &str, call: impl Fn() -> Fut) -> Result<T>
    where
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let mut failures = Vec::new();
        let mut pause = self.first_pause;
        for _ in 0..ATTEMPTS {
            let outcome = tokio::time::timeout(self.call_timeout, call()).await;
            match outcome.with_context(|| format!("{name} does not answer for {:?}", self.call_timeout))? {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) if is_permanent(status.code()) => {
                    return Err(status).with_context(|| format!("{name} failed for good after {failures:?}"));
                }
                Err(status) => failures.push(format!("{:?}: {}", status.code(), status.message())),
            }
            self.failures.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(pause).await;
            pause = (pause * self.factor).min(LONGEST_PAUSE);
        }
        failures.dedup();
        anyhow::bail!("{name} failed {ATTEMPTS} times: {failures:?}")
    }
}

/// A volume of one GiB and where it is to appear.
#[derive(Debug, Clone)]
pub struct Life {
    controller: ControllerClient<Channel>,
    node: NodeClient<Channel>,
    name: String,
    capability: VolumeCapability,
    staging: PathBuf,
    target: PathBuf,
    retries: Retries,
}

impl Life {
    /// A volume with a file system of this kind.
    pub fn mounted(lab: &Lab, controller: Channel, node: Channel, name: &str, fs_type: &str) -> Result<Self> {
        let mount = MountVolume {
            fs_type: fs_type.to_owned(),
            ..MountVolume::default()
        };
        Self::new(lab, controller, node, name, AccessType::Mount(mount))
    }

    /// A volume that is used as a device.
    pub fn block(lab: &Lab, controller: Channel, node: Channel, name: &str) -> Result<Self> {
        Self::new(lab, controller, node, name, AccessType::Block(BlockVolume {}))
    }

    fn new(lab: &Lab, controller: Channel, node: Channel, name: &str, access: AccessType) -> Result<Self> {
        let staging = lab.path(&format!("{name}-globalmount"));
        // What the kubelet makes: the staging directory, and the parent of the target.
        std::fs::create_dir_all(&staging).with_context(|| format!("cannot make {}", staging.display()))?;
        Ok(Self {
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
        })
    }

    /// The same life with failed calls repeated in this way, and counted there.
    #[must_use]
    pub fn retries(self, retries: &Retries) -> Self {
        Self {
            retries: retries.clone(),
            ..self
        }
    }

    /// The same life over other connections: after one of the processes was started anew.
    #[must_use]
    pub fn over(&self, controller: Channel, node: Channel) -> Self {
        let (controller, node) = (ControllerClient::new(controller), NodeClient::new(node));
        Self {
            controller,
            node,
            ..self.clone()
        }
    }

    /// Where the volume is mounted once per node.
    pub fn staging(&self) -> &Path {
        &self.staging
    }

    /// Where the workload sees the volume.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// NodeGetInfo: the node's id, and its topology as the provisioner hands it to CreateVolume.
    pub async fn node_info(&self) -> Result<(String, Option<TopologyRequirement>)> {
        let answer = self
            .node
            .clone()
            .node_get_info(NodeGetInfoRequest {})
            .await
            .context("NodeGetInfo")?
            .into_inner();
        let requirement = answer.accessible_topology.map(|topology| TopologyRequirement {
            requisite: vec![topology.clone()],
            preferred: vec![topology],
        });
        Ok((answer.node_id, requirement))
    }

    /// CreateVolume, repeated as the provisioner does.
    pub async fn create(&self) -> Result<Volume> {
        let (_, accessibility_requirements) = self.node_info().await?;
        let request = CreateVolumeRequest {
            name: self.name.clone(),
            capacity_range: Some(CapacityRange {
                required_bytes: GIB,
                limit_bytes: 0,
            }),
            volume_capabilities: vec![self.capability.clone()],
            parameters: BTreeMap::from([("type".to_owned(), "fast".to_owned())]),
            accessibility_requirements,
            ..CreateVolumeRequest::default()
        };
        let answer = self
            .retries
            .repeat("CreateVolume", async || {
                self.controller.clone().create_volume(request.clone()).await
            })
            .await?;
        answer.volume.context("CreateVolume answers without a volume")
    }

    /// ControllerPublishVolume, repeated as the attacher does; answers the publish context.
    pub async fn attach(&self, volume: &Volume) -> Result<BTreeMap<String, String>> {
        let (node_id, _) = self.node_info().await?;
        let request = ControllerPublishVolumeRequest {
            volume_id: volume.volume_id.clone(),
            node_id,
            volume_capability: Some(self.capability.clone()),
            volume_context: volume.volume_context.clone(),
            ..ControllerPublishVolumeRequest::default()
        };
        let publish = async || self.controller.clone().controller_publish_volume(request.clone()).await;
        Ok(self
            .retries
            .repeat("ControllerPublishVolume", publish)
            .await?
            .publish_context)
    }

    /// NodeStageVolume, repeated as the kubelet does.
    pub async fn stage(&self, volume: &Volume, publish_context: &BTreeMap<String, String>) -> Result<()> {
        let request = NodeStageVolumeRequest {
            volume_id: volume.volume_id.clone(),
            publish_context: publish_context.clone(),
            staging_target_path: self.staging.display().to_string(),
            volume_capability: Some(self.capability.clone()),
            volume_context: volume.volume_context.clone(),
            ..NodeStageVolumeRequest::default()
        };
        self.retries
            .repeat("NodeStageVolume", async || {
                self.node.clone().node_stage_volume(request.clone()).await
            })
            .await
            .map(drop)
    }

    /// NodePublishVolume, repeated as the kubelet does.
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
        self.retries
            .repeat("NodePublishVolume", async || {
                self.node.clone().node_publish_volume(request.clone()).await
            })
            .await
            .map(drop)
    }

    /// NodeUnpublishVolume, repeated as the kubelet does.
    pub async fn unpublish(&self, volume: &Volume) -> Result<()> {
        let request = NodeUnpublishVolumeRequest {
            volume_id: volume.volume_id.clone(),
            target_path: self.target.display().to_string(),
        };
        let call = async || self.node.clone().node_unpublish_volume(request.clone()).await;
        self.retries.repeat("NodeUnpublishVolume", call).await.map(drop)
    }

    /// NodeUnstageVolume, repeated as the kubelet does.
    pub async fn unstage(&self, volume: &Volume) -> Result<()> {
        let request = NodeUnstageVolumeRequest {
            volume_id: volume.volume_id.clone(),
            staging_target_path: self.staging.display().to_string(),
        };
        let call = async || self.node.clone().node_unstage_volume(request.clone()).await;
        self.retries.repeat("NodeUnstageVolume", call).await.map(drop)
    }

    /// ControllerUnpublishVolume, repeated as the attacher does.
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

    /// DeleteVolume, repeated as the provisioner does.
    pub async fn delete(&self, volume: &Volume) -> Result<()> {
        let request = DeleteVolumeRequest {
            volume_id: volume.volume_id.clone(),
            ..DeleteVolumeRequest::default()
        };
        self.retries
            .repeat("DeleteVolume", async || {
                self.controller.clone().delete_volume(request.clone()).await
            })
            .await
            .map(drop)
    }
}

fn is_permanent(code: Code) -> bool {
    matches!(
        code,
        Code::InvalidArgument | Code::AlreadyExists | Code::NotFound | Code::Unimplemented | Code::OutOfRange
    )
}
