//! The RPCs that only look: ValidateVolumeCapabilities, ListVolumes, ControllerGetVolume.

use std::collections::BTreeMap;
use std::ops::Bound;

use cinder_cloud::{Cloud, LastFailure, Volume, VolumeId};
use csi_proto::csi::v1::validate_volume_capabilities_response::Confirmed;
use csi_proto::csi::v1::{
    ControllerGetVolumeRequest, ControllerGetVolumeResponse, ListVolumesRequest, ListVolumesResponse,
    ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse, VolumeCapability,
    controller_get_volume_response, list_volumes_response,
};
use tokio::time::Instant;
use tonic::Status;

use super::token::{List, Place};
use super::{ControllerService, encode};
use crate::capability::Access;
use crate::operations::Deadline;
use crate::status::Act;
use crate::{fields, status};

/// The most entries of one answer: gRPC clients take 4 MiB by default, and one volume on many nodes makes a long entry.
const PAGE: usize = 500;

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

/// Lists the volumes of the projects, whoever made them: volumes that were imported by hand bear no mark of ours, and one that
/// is missing here counts as detached. All pages come from one list per cloud that is kept for a few seconds; a cloud that does
/// not answer fails the list, for its volumes would count as detached, too.
pub(super) async fn list(
    service: &ControllerService,
    request: ListVolumesRequest,
    deadline: Deadline,
) -> Result<ListVolumesResponse, Status> {
    let (limit, mut place) = page(
        service,
        List::Volumes,
        request.max_entries,
        &request.starting_token,
        PAGE,
    )?;
    let look = async {
        let mut entries = Vec::new();
        let mut last = None;
        for (name, cloud) in service.clouds.all() {
            if place.as_ref().is_some_and(|place| place.cloud > name) {
                continue;
            }
            let volumes = cloud.listed_volumes().await;
            let volumes = volumes.map_err(|error| status::cloud(Act::Look, &error))?;
            let begin = match place.take_if(|place| place.cloud == name) {
                Some(place) => Bound::Excluded(place.after),
                None => Bound::Unbounded,
            };
            for (id, volume) in volumes.range((begin, Bound::Unbounded)) {
                if entries.len() == limit {
                    return Ok::<_, Status>((entries, last));
                }
                entries.push(entry(service, &cloud, volume));
                last = Some(Place {
                    cloud: name.clone(),
                    after: id.clone(),
                });
            }
        }
        Ok((entries, None))
    };
    let (entries, next) = within(deadline, "ListVolumes", look).await??;
    Ok(ListVolumesResponse {
        entries,
        next_token: next.map(|place| place.token(List::Volumes)).unwrap_or_default(),
    })
}

/// How many entries an answer may have, and behind what it begins.
pub(super) fn page(
    service: &ControllerService,
    list: List,
    max_entries: i32,
    token: &str,
    most: usize,
) -> Result<(usize, Option<Place>), Status> {
    let max = usize::try_from(max_entries).map_err(|_| status::invalid("max_entries", "it cannot be negative"))?;
    let limit = if max == 0 { most } else { max.min(most) };
    if token.is_empty() {
        return Ok((limit, None));
    }
    let clouds = service.clouds.all();
    let place = Place::read(list, token, clouds.iter().map(|(name, _)| name.as_str()));
    let place = place.ok_or_else(|| status::bad_token(token))?;
    Ok((limit, Some(place)))
}

fn entry(service: &ControllerService, cloud: &Cloud, volume: &Volume) -> list_volumes_response::Entry {
    list_volumes_response::Entry {
        volume: Some(encode::volume(volume, encode::topology(service, cloud, volume))),
        status: Some(list_volumes_response::VolumeStatus {
            published_node_ids: encode::nodes(volume),
        }),
    }
}

/// One volume, as [`list`] shows it.
pub(super) async fn get(
    service: &ControllerService,
    request: ControllerGetVolumeRequest,
    deadline: Deadline,
) -> Result<ControllerGetVolumeResponse, Status> {
    let id = VolumeId::new(fields::required("volume_id", &request.volume_id)?);
    // The request has no secrets.
    let (cloud, volume) = find(service, &id, &BTreeMap::new(), deadline).await?;
    let list_volumes_response::Entry { volume, status } = entry(service, &cloud, &volume);
    Ok(ControllerGetVolumeResponse {
        volume,
        status: status.map(|status| controller_get_volume_response::VolumeStatus {
            published_node_ids: status.published_node_ids,
        }),
    })
}

/// A volume and its cloud.
pub(super) async fn find(
    service: &ControllerService,
    id: &VolumeId,
    secrets: &BTreeMap<String, String>,
    deadline: Deadline,
) -> Result<(Cloud, Volume), Status> {
    let unknown = || status::not_found("volume", id.as_str());
    if !id.is_uuid() {
        return Err(unknown());
    }
    let look = async {
        let cloud = service.clouds.of_volume(id, secrets).await?.ok_or_else(unknown)?;
        let volume = cloud.volume(id).await;
        let volume = volume.map_err(|error| status::cloud(Act::Look, &error))?;
        Ok((cloud, volume.ok_or_else(unknown)?))
    };
    within(deadline, "the look at the volume", look).await?
}

/// Waits for a look at the cloud until the deadline. Nothing is lost when it is given up.
pub(crate) async fn within<T>(deadline: Deadline, what: &str, look: impl Future<Output = T>) -> Result<T, Status> {
    let (since, last_failure) = (Instant::now(), LastFailure::default());
    tokio::time::timeout(deadline.left(), last_failure.during(Box::pin(look)))
        .await
        .map_err(|_| status::look_timed_out(what, since.elapsed(), &last_failure))
}
