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
use crate::node_error::NodeError;
use crate::operations::{Deadline, Progress, Target};
use crate::status;
use crate::timing::TIMING;

/// The most that the header of its keys takes from an encrypted volume: 2 MiB with LUKS1, 16 MiB with LUKS2. The kubelet asks for the
/// size that Cinder tells, and no call tells this node which volume is encrypted. Cinder's volumes grow by a GiB at least.
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
    let host = service.host.clone();
    let work = |progress: Progress| {
        let expand = expand.clone();
        async move {
            let size = expand
                .run(&host, &progress)
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
    async fn run(&self, host: &Host, progress: &Progress) -> Result<u64, NodeError> {
        let mut device = host.find_device(&self.volume_id, None, Duration::ZERO).await?;
        let mounts = host.mounts().await?;
        let mounted = self.mounted(host, &device, &mounts).await?;
        if device.size_bytes < self.least_bytes() {
            progress.set("waiting until this node sees the volume's new size");
            device = self.grown(host).await?;
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

    async fn grown(&self, host: &Host) -> Result<Device, NodeError> {
        let found = host
            .find_device(&self.volume_id, Some(self.least_bytes()), TIMING.growth_wait)
            .await;
        found.map_err(|error| match error {
            // Not yet: the kubelet asks again, and what Nova was told late is found then.
            DeviceError::TooSmall {
                volume_id,
                device,
                actual,
                ..
            } => NodeError::NotGrown(DeviceError::TooSmall {
                volume_id,
                device,
                expected: self.required_bytes,
                actual,
            }),
            other => other.into(),
        })
    }
}
