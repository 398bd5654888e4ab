// SPDX-License-Identifier: Apache-2.0
//! ControllerModifyVolume: changes the type and the metadata of a volume, completely or not at all.

use cinder_cloud::VolumeId;
use csi_proto::csi::v1::{ControllerModifyVolumeRequest, ControllerModifyVolumeResponse};
use tonic::Status;

use super::{ControllerService, follow};
use crate::operations::{Deadline, Target};
use crate::parameters::MutableParameters;
use crate::status::CloudAction;
use crate::{fields, status};

/// Modifies a volume. `OK` means that the volume has the requested properties. If it had them before, the call costs
/// one query.
pub(super) async fn modify(
    service: &ControllerService,
    request: ControllerModifyVolumeRequest,
    deadline: Deadline,
) -> Result<ControllerModifyVolumeResponse, Status> {
    let volume = VolumeId::new(fields::required("volume_id", &request.volume_id)?);
    if request.mutable_parameters.is_empty() {
        return Err(status::invalid("mutable_parameters", "at least one is required"));
    }
    let desired = MutableParameters::decode(&request.mutable_parameters)
        .map_err(|reason| status::invalid("mutable_parameters", reason))?;
    if !volume.is_uuid() {
        return Err(status::not_found("volume", volume.as_str()));
    }
    let target = Target::Volume(volume.to_string());
    service
        .operations
        .run(
            "ControllerModifyVolume",
            target,
            desired.clone(),
            deadline,
            |progress| {
                let (clouds, secrets) = (service.clouds.clone(), request.secrets);
                async move {
                    progress.set("looking for the volume's cloud");
                    let Some(cloud) = clouds.cloud_of_volume(&volume, &secrets).await? else {
                        return Err(status::not_found("volume", volume.as_str()));
                    };
                    progress.set("changing the volume's type and metadata and waiting until Cinder shows them");
                    follow(&progress, &cloud, volume.as_str());
                    let modified = cloud.modify_volume(&volume, desired.changes()).await;
                    modified.map_err(|error| status::from_cloud(CloudAction::Modify, &error))?;
                    Ok(ControllerModifyVolumeResponse {})
                }
            },
        )
        .await
}
