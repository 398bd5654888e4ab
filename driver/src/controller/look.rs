//! The RPCs that only look: ValidateVolumeCapabilities, ListVolumes, ControllerGetVolume.

use std::collections::BTreeMap;

use cinder_cloud::{Cloud, CloudError, Volume, VolumeId, VolumePage};
use csi_proto::csi::v1::validate_volume_capabilities_response::Confirmed;
use csi_proto::csi::v1::{
    ControllerGetVolumeRequest, ControllerGetVolumeResponse, ListVolumesRequest, ListVolumesResponse,
    ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse, VolumeCapability,
    controller_get_volume_response, list_volumes_response,
};
use tonic::Status;

use super::{ControllerService, encode};
use crate::capability::Access;
use crate::operations::Deadline;
use crate::status::Act;
use crate::{fields, status};

/// The most entries of one answer: gRPC clients take 4 MiB by default, and an entry has about 200 bytes.
const PAGE: usize = 10_000;

/// Confirms the capabilities, with everything that was asked, only when all of them can be met.
pub(super) async fn validate(
    service: &ControllerService,
    request: ValidateVolumeCapabilitiesRequest,
    deadline: Deadline,
) -> Result<ValidateVolumeCapabilitiesResponse, Status> {
    let id = VolumeId::new(fields::required("volume_id", &request.volume_id)?);
    if request.volume_capabilities.is_empty() {
        return Err(status::invalid("volume_capabilities", "at least one is required"));
    }
    let (_, volume) = find(service, &id, &request.secrets, deadline).await?;
    Ok(match first_unmet(&request.volume_capabilities, &volume) {
        Some(message) => ValidateVolumeCapabilitiesResponse {
            confirmed: None,
            message,
        },
        None => ValidateVolumeCapabilitiesResponse {
            confirmed: Some(Confirmed {
                volume_context: request.volume_context,
                volume_capabilities: request.volume_capabilities,
                parameters: request.parameters,
                mutable_parameters: request.mutable_parameters,
            }),
            message: String::new(),
        },
    })
}

fn first_unmet(capabilities: &[VolumeCapability], volume: &Volume) -> Option<String> {
    capabilities
        .iter()
        .find_map(|capability| match Access::read(capability) {
            Err(reason) => Some(reason),
            Ok(access) if access.multi_node && !volume.multiattach => Some(format!(
                "volume {} may be attached to one node only; that takes a volume type with multiattach",
                volume.id
            )),
            Ok(_) => None,
        })
}

/// Lists the volumes of the project, whoever made them: volumes that were imported by hand bear no mark of ours, and one that
/// is missing here counts as detached.
pub(super) async fn list(
    service: &ControllerService,
    request: ListVolumesRequest,
    deadline: Deadline,
) -> Result<ListVolumesResponse, Status> {
    let max =
        usize::try_from(request.max_entries).map_err(|_| status::invalid("max_entries", "it cannot be negative"))?;
    // Without a limit the cloud gives all its pages in one go.
    let limit = (max > 0).then(|| u32::try_from(max.min(PAGE)).unwrap_or(u32::MAX));
    let token = request.starting_token.as_str();
    let marker = (!token.is_empty()).then(|| VolumeId::new(token));
    if marker.as_ref().is_some_and(|marker| !marker.is_uuid()) {
        return Err(status::bad_token(token));
    }
    let cloud = service.clouds.chosen(&BTreeMap::new())?;
    let found = within(deadline, "ListVolumes", cloud.list_volumes(limit, marker.as_ref())).await?;
    let VolumePage { mut volumes, mut next } = found.map_err(|error| match error {
        CloudError::BadRequest(_) | CloudError::NotFound { .. } if marker.is_some() => status::bad_token(token),
        error => status::cloud(Act::Look, &error),
    })?;
    if volumes.len() > PAGE {
        volumes.truncate(PAGE);
        next = volumes.last().map(|volume| volume.id.clone());
    }
    let entries = volumes.iter().map(|volume| list_volumes_response::Entry {
        volume: Some(encode::volume(volume, encode::topology(service, &cloud, volume))),
        status: Some(list_volumes_response::VolumeStatus {
            published_node_ids: encode::nodes(volume),
        }),
    });
    Ok(ListVolumesResponse {
        entries: entries.collect(),
        next_token: next.map(|marker| marker.to_string()).unwrap_or_default(),
    })
}

/// One volume, as [`list`] shows it.
pub(super) async fn get(
    service: &ControllerService,
    request: ControllerGetVolumeRequest,
    deadline: Deadline,
) -> Result<ControllerGetVolumeResponse, Status> {
    let id = VolumeId::new(fields::required("volume_id", &request.volume_id)?);
    let (cloud, volume) = find(service, &id, &BTreeMap::new(), deadline).await?;
    Ok(ControllerGetVolumeResponse {
        volume: Some(encode::volume(&volume, encode::topology(service, &cloud, &volume))),
        status: Some(controller_get_volume_response::VolumeStatus {
            published_node_ids: encode::nodes(&volume),
        }),
    })
}

async fn find(
    service: &ControllerService,
    id: &VolumeId,
    secrets: &BTreeMap<String, String>,
    deadline: Deadline,
) -> Result<(Cloud, Volume), Status> {
    if !id.is_uuid() {
        return Err(status::not_found("volume", id.as_str()));
    }
    let absent = || status::not_found("volume", id.as_str());
    let look = async {
        let cloud = service.clouds.of_volume(id, secrets).await?.ok_or_else(absent)?;
        let volume = cloud.volume(id).await;
        let volume = volume.map_err(|error| status::cloud(Act::Look, &error))?;
        Ok((cloud, volume.ok_or_else(absent)?))
    };
    within(deadline, "the look at the volume", look).await?
}

/// Waits for a look at the cloud until the deadline. Nothing is lost when it is given up.
async fn within<T>(deadline: Deadline, what: &str, look: impl Future<Output = T>) -> Result<T, Status> {
    tokio::time::timeout(deadline.left(), look)
        .await
        .map_err(|_| status::look_timed_out(what))
}
