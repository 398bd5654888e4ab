// SPDX-License-Identifier: Apache-2.0
//! NodeExpandVolume: waits until this node sees the new size of a volume, and grows its file system.
//!
//! The device number of the path determines how the volume is used. Parent directories are never considered, so nothing
//! on a raw device is grown, whatever it contains.

use std::path::PathBuf;
use std::time::Duration;

use csi_host::{Device, DeviceError, FsType, Host, Mount, MountTable};
use csi_proto::csi::v1::{NodeExpandVolumeRequest, NodeExpandVolumeResponse};
use tonic::Status;

use super::NodeService;
use super::fields::{self, VolumeUse};
use super::volumes::VolumeCache;
use crate::node_error::NodeError;
use crate::operations::{Deadline, Progress, Target};
use crate::status;
use crate::timing::TIMING;

/// The maximum size of the header of an encrypted volume: 2 MiB with LUKS1, 16 MiB with LUKS2.
///
/// The kubelet requests the size that Cinder reports, and no call identifies encrypted volumes. Volumes of Cinder grow
/// by at least one GiB.
const ENCRYPTION_HEADER: u64 = 32 << 20;

/// A decoded request.
#[derive(Debug, Clone, PartialEq)]
struct ExpandRequest {
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
        // The capability is optional here, and the path is sufficient without it.
        Some(capability) => fields::capability(Some(capability))?.usage == VolumeUse::Block,
        None => false,
    };
    let expand = ExpandRequest {
        volume_id: volume_id.clone(),
        path,
        staging,
        required_bytes,
        as_block,
    };
    let (host, cache) = (service.host.clone(), service.cache.clone());
    let work = |progress: Progress| {
        let expand = expand.clone();
        async move {
            let size = expand
                .run(&host, &cache, &progress)
                .await
                .map_err(|error| status::from_node(&error))?;
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

impl ExpandRequest {
    async fn run(&self, host: &Host, cache: &VolumeCache, progress: &Progress) -> Result<u64, NodeError> {
        let mut device = host.find_device(&self.volume_id, None, Duration::ZERO).await?;
        let mounts = host.mounts().await?;
        let mounted = self.find_mount(host, &device, &mounts).await?;
        if device.size_bytes < self.least_bytes() {
            progress.set("waiting until this node sees the volume's new size");
            let start = self.pod_start(host, cache, &device, &mounts).await?;
            device = self.wait_for_growth(host, start).await?;
        }
        if let Some(mount) = mounted {
            let fs_type = FsType::from_name(&mount.fs_type).ok_or_else(|| NodeError::OtherType {
                volume_id: self.volume_id.clone(),
                found: mount.fs_type.clone(),
                wanted: FsType::Ext4,
            })?;
            // A read-only bind mount of a writable file system grows with it.
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

    /// Returns the mount of the volume's file system; `None` if the volume is used as a device.
    async fn find_mount<'a>(
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

    /// Returns the minimum size of the expanded device.
    fn least_bytes(&self) -> u64 {
        self.required_bytes.saturating_sub(ENCRYPTION_HEADER)
    }

    /// Determines whether the kubelet calls during the start of a pod.
    ///
    /// During a mount, every code except FAILED_PRECONDITION prevents the start of the pod. While a pod runs,
    /// FAILED_PRECONDITION stops all further attempts on this node. Earlier kubelets expand before NodePublishVolume,
    /// and pass the staging path. The kubelet of Kubernetes 1.36 expands immediately after it, and passes the target.
    /// It calls NodeGetVolumeStats for a target once its pod runs.
    async fn pod_start(
        &self,
        host: &Host,
        cache: &VolumeCache,
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
        let is_published = targets.next().is_some() || !super::device_mounts(host, device, mounts).await?.is_empty();
        if is_staging_path && !is_published {
            return Ok(PodStart::BeforePublish);
        }
        if self.staging.is_some() {
            for target in cache.starting_targets(&self.volume_id) {
                if host.resolve(&target).await? == path {
                    return Ok(PodStart::AfterPublish);
                }
            }
        }
        Ok(PodStart::Over)
    }

    async fn wait_for_growth(&self, host: &Host, start: PodStart) -> Result<Device, NodeError> {
        let wait = match start {
            PodStart::BeforePublish => Duration::ZERO,
            PodStart::AfterPublish => TIMING.growth_wait_at_start,
            PodStart::Over => TIMING.growth_wait,
        };
        let result = host.find_device(&self.volume_id, Some(self.least_bytes()), wait).await;
        result.map_err(|error| match error {
            // The kubelet retries, and Nova may have notified the hypervisor by then.
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

/// The state of the pod that an expansion is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PodStart {
    /// The volume is staged, but not published.
    BeforePublish,
    /// The volume was published, and its pod may not run yet.
    AfterPublish,
    /// The pod runs, or its state is unknown.
    Over,
}
