// SPDX-License-Identifier: Apache-2.0
//! Verifies and encodes the volume that Cinder created.

use cinder_cloud::{Cloud, CreatedVolume, ListedVolume};
use csi_proto::csi::v1::CreateVolumeResponse;
use tonic::Status;

use super::super::{ControllerService, encode};
use super::placement::misplacement;
use super::request::DesiredVolume;
use crate::status;

/// Builds the response from the volume in Cinder, not from the request, because Cinder may choose another zone.
///
/// A new volume that no pod could reach is deleted. An adopted volume may contain data and is never deleted.
pub(super) async fn build_response(
    service: &ControllerService,
    cloud: &Cloud,
    desired: &DesiredVolume,
    created: CreatedVolume,
) -> Result<CreateVolumeResponse, Status> {
    let CreatedVolume { volume, adopted } = created;
    if let Some(text) = misplacement(&cloud.config(), desired, &volume) {
        if adopted {
            return Err(status::already_exists(text));
        }
        cloud
            .delete_volume(&volume.id)
            .await
            .map_err(|error| status::cleanup_failed(&error))?;
        return Err(status::zone_impossible(text));
    }
    let topology = match (
        service.settings.args.with_topology,
        cloud.config().block_storage.ignore_volume_az,
    ) {
        (false, _) => Vec::new(),
        (true, true) => desired.zones.requested_topology(),
        (true, false) => desired.zones.accessible_from(volume.availability_zone.as_deref()),
    };
    let mut volume = encode::volume(&ListedVolume::from(&volume), topology);
    volume.volume_context.extend(desired.context.clone());
    Ok(CreateVolumeResponse { volume: Some(volume) })
}
