// SPDX-License-Identifier: Apache-2.0
//! Adds the placement hints of the claim to a new volume.

use std::collections::BTreeMap;

use cinder_cloud::{Cloud, NewVolume, Volume, VolumeStatus};
use tonic::Status;

use super::super::ControllerService;
use super::request::DesiredVolume;
use crate::parameters::METADATA_CLUSTER;
use crate::pvc_annotations::HintError;
use crate::status::{self, CloudAction};

/// Adds the hints of the claim's annotations, if annotations are enabled.
///
/// If the hints cannot be read, no volume is created, because a volume cannot be moved later. Invalid hints are an
/// error of the claim while no volume of this name exists. They are ignored after the volume was created.
pub(super) async fn apply_hints(
    service: &ControllerService,
    cloud: &Cloud,
    mut desired: DesiredVolume,
) -> Result<DesiredVolume, Status> {
    let (Some(claims), Some((namespace, name))) = (&service.settings.claims, &desired.claim) else {
        return Ok(desired);
    };
    let hints = claims.hints(namespace, name).await;
    let hints = hints.map_err(|error| status::claim_unread(&error))?;
    match hints.resolve(cloud, &service.settings.args.cluster).await {
        Ok(resolved) => {
            desired.context.extend(resolved.context());
            desired.new.same_host = resolved.affinity;
            desired.new.different_host = resolved.anti_affinity;
            Ok(desired)
        }
        Err(HintError::Cloud(error)) => Err(status::from_cloud(CloudAction::Create, &error)),
        Err(error) => {
            let existing = cloud.volumes_named(&desired.new.name).await;
            let existing = existing.map_err(|error| status::from_cloud(CloudAction::Create, &error))?;
            // Hints concern the placement of a new volume. This volume is placed already, even if a volume in its hints
            // was deleted later.
            if existing.iter().any(|volume| is_placed(volume, &desired.new)) {
                return Ok(desired);
            }
            Err(status::hint_impossible(&error, !existing.is_empty()))
        }
    }
}

/// Whether an existing volume belongs to this cluster and is complete.
fn is_placed(volume: &Volume, new: &NewVolume) -> bool {
    let cluster = |metadata: &BTreeMap<String, String>| metadata.get(METADATA_CLUSTER).cloned();
    cluster(&volume.metadata) == cluster(&new.metadata)
        && matches!(volume.status, VolumeStatus::Available | VolumeStatus::InUse)
}
