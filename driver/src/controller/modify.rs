// SPDX-License-Identifier: Apache-2.0
//! ControllerModifyVolume: another type and other metadata, whole or not at all.

use cinder_cloud::VolumeId;
use csi_proto::csi::v1::{ControllerModifyVolumeRequest, ControllerModifyVolumeResponse};
use tonic::Status;

use super::{ControllerService, follow};
use crate::operations::{Deadline, Target};
use crate::parameters::MutableParameters;
use crate::status::Act;
use crate::{fields, status};

/// `OK` means that the volume is what was asked for. One that was so before costs one look and no change.
pub(super) async fn modify(
    service: &ControllerService,
    request: ControllerModifyVolumeRequest,
    deadline: Deadline,
) -> Result<ControllerModifyVolumeResponse, Status> {
    let volume = VolumeId::new(fields::required("volume_id", &request.volume_id)?);
    if request.mutable_parameters.is_empty() {
        return Err(status::invalid("mutable_parameters", "at least one is required"));
    }
    let wanted = MutableParameters::decode(&request.mutable_parameters)
        .map_err(|reason| status::invalid("mutable_parameters", reason))?;
    if !volume.is_uuid() {
        return Err(status::not_found("volume", volume.as_str()));
    }
    let target = Target::Volume(volume.to_string());
    service
        .operations
        .run("ControllerModifyVolume", target, wanted.clone(), deadline, |progress| {
            let (clouds, secrets) = (service.clouds.clone(), request.secrets);
            async move {
                progress.set("looking for the volume's cloud");
                let Some(cloud) = clouds.of_volume(&volume, &secrets).await? else {
                    return Err(status::not_found("volume", volume.as_str()));
                };
                progress.set("changing the volume's type and metadata and waiting until Cinder shows them");
                follow(&progress, &cloud, volume.as_str());
                let modified = cloud.modify_volume(&volume, wanted.changes()).await;
                modified.map_err(|error| status::cloud(Act::Modify, &error))?;
                Ok(ControllerModifyVolumeResponse {})
            }
        })
        .await
}
