// SPDX-License-Identifier: Apache-2.0
//! DeleteVolume: deletes a volume and waits until Cinder no longer returns it.

use cinder_cloud::VolumeId;
use csi_proto::csi::v1::{DeleteVolumeRequest, DeleteVolumeResponse};
use tonic::Status;

use super::{ControllerService, follow};
use crate::clouds::CloudObject;
use crate::operations::{Deadline, Target};
use crate::status::CloudAction;
use crate::{fields, status};

/// Deletes a volume. Succeeds if the volume does not exist or the id is invalid.
pub(super) async fn delete(
    service: &ControllerService,
    request: DeleteVolumeRequest,
    deadline: Deadline,
) -> Result<DeleteVolumeResponse, Status> {
    let volume = VolumeId::new(fields::required("volume_id", &request.volume_id)?);
    if !volume.is_uuid() {
        return Ok(DeleteVolumeResponse {});
    }
    service
        .operations
        .run(
            "DeleteVolume",
            Target::Volume(volume.to_string()),
            (),
            deadline,
            |progress| {
                let (service, secrets) = (service.clone(), request.secrets);
                async move {
                    progress.set("looking for the volume's cloud");
                    let Some(cloud) = service
                        .clouds
                        .confirmed_cloud(CloudObject::Volume(&volume), &secrets)
                        .await?
                    else {
                        return Ok(DeleteVolumeResponse {});
                    };
                    if service.settings.args.protect_other_clusters {
                        let existing = cloud.confirm(volume.as_str(), || cloud.volume(&volume)).await;
                        let existing = existing.map_err(|error| status::from_cloud(CloudAction::Delete, &error))?;
                        let Some(existing) = existing else {
                            return Ok(DeleteVolumeResponse {});
                        };
                        service.refuse_foreign("volume", volume.as_str(), &existing.metadata)?;
                    }
                    progress.set("deleting the volume and waiting until it is gone");
                    follow(&progress, &cloud, volume.as_str());
                    cloud
                        .delete_volume(&volume)
                        .await
                        .map_err(|error| status::from_cloud(CloudAction::Delete, &error))?;
                    Ok(DeleteVolumeResponse {})
                }
            },
        )
        .await
}
