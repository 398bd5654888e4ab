// SPDX-License-Identifier: Apache-2.0
//! ControllerExpandVolume: a larger volume, and the size that Cinder has in the end.

use cinder_cloud::{Cloud, GiB, Volume, VolumeId};
use csi_proto::csi::v1::{ControllerExpandVolumeRequest, ControllerExpandVolumeResponse};
use tonic::Status;

use super::{ControllerService, encode, follow, size};
use crate::capability::Access;
use crate::operations::{Deadline, Target};
use crate::status::Act;
use crate::{fields, status};

/// What is asked for; equal requests are one operation.
#[derive(Debug, Clone, Copy, PartialEq)]
struct WantedExpansion {
    size: GiB,
    limit: Option<u64>,
    block: bool,
}

/// `OK` means that Cinder shows the size. A volume that is large enough costs one look and no change.
pub(super) async fn expand(
    service: &ControllerService,
    request: ControllerExpandVolumeRequest,
    deadline: Deadline,
) -> Result<ControllerExpandVolumeResponse, Status> {
    let volume = VolumeId::new(fields::required("volume_id", &request.volume_id)?);
    let Some(range) = &request.capacity_range else {
        return Err(status::invalid("capacity_range", "it is required and missing"));
    };
    // Older sidecars do not say how the volume is used.
    let access = request.volume_capability.as_ref();
    let access = access
        .map(|capability| Access::of_existing("volume_capability", capability))
        .transpose()?;
    let wanted = WantedExpansion {
        size: size::size(Some(range))?,
        limit: size::limit(range),
        block: access.is_some_and(|access| access.block),
    };
    if !volume.is_uuid() {
        return Err(status::not_found("volume", volume.as_str()));
    }
    let target = Target::Volume(volume.to_string());
    service
        .operations
        .run("ControllerExpandVolume", target, wanted, deadline, |progress| {
            let (clouds, secrets) = (service.clouds.clone(), request.secrets);
            async move {
                progress.set("looking for the volume's cloud");
                let Some(cloud) = clouds.of_volume(&volume, &secrets).await? else {
                    return Err(status::not_found("volume", volume.as_str()));
                };
                progress.set("growing the volume and waiting until the new size can be read back");
                follow(&progress, &cloud, volume.as_str());
                let grown = cloud.expand_volume(&volume, wanted.size).await;
                let grown = grown.map_err(|error| status::cloud(Act::Expand, &error))?;
                answer(&cloud, wanted, &grown)
            }
        })
        .await
}

fn answer(cloud: &Cloud, wanted: WantedExpansion, grown: &Volume) -> Result<ControllerExpandVolumeResponse, Status> {
    if let Some(limit) = wanted.limit.filter(|limit| grown.size.bytes() > *limit) {
        return Err(status::out_of_range(format_args!(
            "volume {} has {} already, which is more than the limit of {limit} bytes; volumes do not shrink",
            grown.id, grown.size
        )));
    }
    Ok(ControllerExpandVolumeResponse {
        capacity_bytes: encode::bytes(grown.size),
        // A file system has to grow, too. The guest of a raw block device is told by Nova, but in clouds where devices have
        // to be rescanned.
        node_expansion_required: !wanted.block || cloud.config().block_storage.rescan_on_resize,
    })
}
