// SPDX-License-Identifier: Apache-2.0
//! DeleteVolume: the volume is gone, not only on its way.

use cinder_cloud::VolumeId;
use csi_proto::csi::v1::{DeleteVolumeRequest, DeleteVolumeResponse};
use tonic::Status;

use super::{ControllerService, follow};
use crate::operations::{Deadline, Target};
use crate::status::Act;
use crate::{fields, status};

/// A volume that does not exist counts as deleted, and so does whatever was never an id of a volume.
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
                    let Some(cloud) = service.clouds.of_volume(&volume, &secrets).await? else {
                        return Ok(DeleteVolumeResponse {});
                    };
                    if service.settings.args.protect_other_clusters {
                        let found = cloud.volume(&volume).await;
                        let found = found.map_err(|error| status::cloud(Act::Delete, &error))?;
                        let Some(found) = found else {
                            return Ok(DeleteVolumeResponse {});
                        };
                        service.refuse_foreign("volume", volume.as_str(), &found.metadata)?;
                    }
                    progress.set("deleting the volume and waiting until it is gone");
                    follow(&progress, &cloud, volume.as_str());
                    cloud
                        .delete_volume(&volume)
                        .await
                        .map_err(|error| status::cloud(Act::Delete, &error))?;
                    Ok(DeleteVolumeResponse {})
                }
            },
        )
        .await
}
