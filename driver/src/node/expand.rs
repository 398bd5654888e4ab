// SPDX-License-Identifier: Apache-2.0
//! NodeExpandVolume: this node sees that a volume has grown, and its file system grows with it.
//!
//! What the volume is used as is read from the path by its device number, and never from a parent directory: a raw device
//! has nothing grown on it, whatever it holds.

use std::path::PathBuf;
use std::time::Duration;

use csi_host::{Device, DeviceError, FsType, Host, Mount, MountTable};
use csi_proto::csi::v1::{NodeExpandVolumeRequest, NodeExpandVolumeResponse};
use tonic::Status;

use super::NodeService;
use super::fields::{self, Use};
use super::volumes::NodeVolumes;
use crate::node_error::NodeError;
use crate::operations::{Deadline, Progress, Target};
use crate::status;
use crate::timing::TIMING;

/// The largest header of an encrypted volume: 2 MiB with LUKS1, 16 MiB with LUKS2. The kubelet requests the size that Cinder reports,
/// and no call names the encrypted volumes. Volumes of Cinder grow by a GiB at least.
const ENCRYPTION_HEADER: u64 = 32 << 20;

/// What NodeExpandVolume is to do.
#[derive(Debug, Clone, PartialEq)]
struct Expand {
    volume_id: String,
    path: PathBuf,
    staging: Option<PathBuf>,
    required_bytes: u64,
    as_block: bool,
}

pub(super) async fn expand(
    service: &NodeService,
    request: NodeExpandVolumeRequest,
    deadline: Deadline,
) -> Result<NodeExpandVolumeResponse, Status> {
    let volume_id = fields::volume_id(&request.volume_id)?;
    let path = fields::path("volume_path", &request.volume_path)?;
    let staging = Some(request.staging_target_path.as_str())
        .filter(|path| !path.is_empty())
        .map(|path| fields::path("staging_target_path", path))
        .transpose()?;
    let required = request.capacity_range.map_or(0, |range| range.required_bytes);
    let required_bytes =
        u64::try_from(required).map_err(|_| status::invalid("capacity_range.required_bytes", "it is negative"))?;
    let as_block = match &request.volume_capability {
        // It is optional here, and the path tells as well.
        Some(capability) => fields::capability(Some(capability))?.usage == Use::Block,
        None => false,
    };
    let expand = Expand {
        volume_id: volume_id.clone(),
        path,
        staging,
        required_bytes,
        as_block,
    };
    let (host, known) = (service.host.clone(), service.known.clone());
    let work = |progress: Progress| {
        let expand = expand.clone();
        async move {
            let size = expand
                .run(&host, &known, &progress)
                .await
                .map_err(|error| status::node(&error))?;
            Ok(NodeExpandVolumeResponse {
                capacity_bytes: i64::try_from(size).unwrap_or(i64::MAX),
            })
        }
    };
    service
        .operations
        .run(
            "NodeExpandVolume",
            Target::Volume(volume_id),
            expand.clone(),
            deadline,
            work,
        )
        .await
}

impl Expand {
    async fn run(&self, host: &Host, known: &NodeVolumes, progress: &Progress) -> Result<u64, NodeError> {
        let mut device = host.find_device(&self.volume_id, None, Duration::ZERO).await?;
        let mounts = host.mounts().await?;
        let mounted = self.mounted(host, &device, &mounts).await?;
        if device.size_bytes < self.least_bytes() {
            progress.set("waiting until this node sees the volume's new size");
            let start = self.pod_start(host, known, &device, &mounts).await?;
            device = self.grown(host, start).await?;
        }
        if let Some(mount) = mounted {
            let fs_type = FsType::from_name(&mount.fs_type).ok_or_else(|| NodeError::OtherType {
                volume_id: self.volume_id.clone(),
                found: mount.fs_type.clone(),
                wanted: FsType::Ext4,
            })?;
            // A read-only bind of a writable file system grows with it.
            let writable = mounts.of_device(&device).find(|mount| !mount.is_read_only());
            let mount = writable.ok_or_else(|| NodeError::GrowReadOnly {
                volume_id: self.volume_id.clone(),
                path: mount.target.clone(),
            })?;
            progress.set("growing the file system to the size of the device");
            host.grow_mounted(&device, fs_type, &mount.target).await?;
        }
        tracing::info!(volume = self.volume_id, bytes = device.size_bytes, "expanded");
        Ok(device.size_bytes)
    }

    /// The volume's file system where it is mounted; nothing where the volume is used as a device.
    async fn mounted<'a>(
        &self,
        host: &Host,
        device: &Device,
        mounts: &'a MountTable,
    ) -> Result<Option<&'a Mount>, NodeError> {
        for path in [Some(&self.path), self.staging.as_ref()].into_iter().flatten() {
            let place = host.resolve(path).await?;
            if let Some(mount) = mounts.at(&place).filter(|mount| mount.is_of(device)) {
                return Ok(Some(mount));
            }
        }
        if self.as_block || host.device_number(&self.path).await? == Some(device.number) {
            return Ok(None);
        }
        Err(NodeError::NotThere {
            volume_id: self.volume_id.clone(),
            path: self.path.clone(),
        })
    }

    /// The size of a device that has grown.
    fn least_bytes(&self) -> u64 {
        self.required_bytes.saturating_sub(ENCRYPTION_HEADER)
    }

    /// Whether the kubelet calls while it starts a pod.
    ///
    /// While it mounts, every code but FAILED_PRECONDITION keeps the pod from starting. While a pod runs, FAILED_PRECONDITION ends
    /// all further attempts on this node. Earlier kubelets expand before NodePublishVolume, and name the staging path. The kubelet of
    /// Kubernetes 1.36 expands right after it, and names the target. It calls NodeGetVolumeStats for a target once its pod runs.
    async fn pod_start(
        &self,
        host: &Host,
        known: &NodeVolumes,
        device: &Device,
        mounts: &MountTable,
    ) -> Result<PodStart, NodeError> {
        let path = host.resolve(&self.path).await?;
        let (staging, is_staging_path) = match &self.staging {
            Some(staging) => {
                let staging = host.resolve(staging).await?;
                let is_staging_path = staging == path;
                (staging, is_staging_path)
            }
            None => (path.clone(), mounts.at(&path).is_some_and(|mount| mount.is_of(device))),
        };
        let mut targets = mounts.of_device(device).filter(|mount| mount.target != staging);
        let is_published = targets.next().is_some() || !super::shown(host, device, mounts).await?.is_empty();
        if is_staging_path && !is_published {
            return Ok(PodStart::BeforePublish);
        }
        if self.staging.is_some() {
            for target in known.starting(&self.volume_id) {
                if host.resolve(&target).await? == path {
                    return Ok(PodStart::AfterPublish);
                }
            }
        }
        Ok(PodStart::Over)
    }

    async fn grown(&self, host: &Host, start: PodStart) -> Result<Device, NodeError> {
        let wait = match start {
            PodStart::BeforePublish => Duration::ZERO,
            PodStart::AfterPublish => TIMING.growth_wait_at_start,
            PodStart::Over => TIMING.growth_wait,
        };
        let found = host.find_device(&self.volume_id, Some(self.least_bytes()), wait).await;
        found.map_err(|error| match error {
            // The kubelet tries again, and Nova may have informed the hypervisor by then.
            DeviceError::TooSmall {
                volume_id,
                device,
                map,
                actual,
                ..
            } => {
                let small = DeviceError::TooSmall {
                    volume_id,
                    device,
                    map,
                    expected: self.required_bytes,
                    actual,
                };
                match start {
                    PodStart::BeforePublish | PodStart::AfterPublish => NodeError::NotGrownAtStart(small),
                    PodStart::Over => NodeError::NotGrown(small),
                }
            }
            other => other.into(),
        })
    }
}

/// How far the start of the pod is that an expansion is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PodStart {
    /// The volume is staged, and published nowhere.
    BeforePublish,
    /// The volume was published, and its pod may not run yet.
    AfterPublish,
    /// The pod runs, or it is not known whether it does.
    Over,
}
