// SPDX-License-Identifier: Apache-2.0
//! DeleteSnapshot: deletes a snapshot or a backup, and waits until Cinder no longer returns it.

use cinder_cloud::{PointInTime, VolumeId};
use csi_proto::csi::v1::{DeleteSnapshotRequest, DeleteSnapshotResponse};
use tonic::Status;

use super::super::{ControllerService, follow};
use crate::clouds::CloudObject;
use crate::operations::{Deadline, Target};
use crate::status::CloudAction;
use crate::{fields, status};

/// Deletes a snapshot or backup. Succeeds if it does not exist or the id is invalid.
pub(in super::super) async fn delete(
    service: &ControllerService,
    request: DeleteSnapshotRequest,
    deadline: Deadline,
) -> Result<DeleteSnapshotResponse, Status> {
    let id = fields::required("snapshot_id", &request.snapshot_id)?.to_owned();
    if !VolumeId::new(id.as_str()).is_uuid() {
        return Ok(DeleteSnapshotResponse {});
    }
    let target = Target::PointInTime(id.clone());
    service
        .operations
        .run("DeleteSnapshot", target, (), deadline, |progress| {
            let (service, secrets) = (service.clone(), request.secrets);
            async move {
                progress.set("looking for the snapshot's cloud");
                let Some(cloud) = service
                    .clouds
                    .confirmed_cloud(CloudObject::Snapshot(&id), &secrets)
                    .await?
                else {
                    return Ok(DeleteSnapshotResponse {});
                };
                let failed = |error| status::from_cloud(CloudAction::Delete, &error);
                if service.settings.args.protect_other_clusters {
                    let existing = cloud.confirm(&id, || cloud.point_in_time(&id)).await;
                    let Some(point) = existing.map_err(failed)? else {
                        return Ok(DeleteSnapshotResponse {});
                    };
                    let metadata = match &point {
                        PointInTime::Snapshot(snapshot) => &snapshot.metadata,
                        PointInTime::Backup(backup) => &backup.metadata,
                    };
                    service.refuse_foreign("snapshot", &id, metadata)?;
                }
                progress.set("deleting the snapshot and waiting until it is gone");
                follow(&progress, &cloud, id.as_str());
                cloud.delete_point_in_time(&id).await.map_err(failed)?;
                Ok(DeleteSnapshotResponse {})
            }
        })
        .await
}
