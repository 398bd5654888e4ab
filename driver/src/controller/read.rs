// SPDX-License-Identifier: Apache-2.0
//! The read-only RPCs for volumes: ValidateVolumeCapabilities, ListVolumes, ControllerGetVolume.

use std::collections::BTreeMap;
use std::sync::Arc;

use cinder_cloud::{Cloud, ListedVolume, MemorySize, Volume, VolumeId};
use csi_proto::csi::v1::validate_volume_capabilities_response::Confirmed;
use csi_proto::csi::v1::{
    ControllerGetVolumeRequest, ControllerGetVolumeResponse, ListVolumesRequest, ListVolumesResponse,
    ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse, VolumeCapability,
    controller_get_volume_response, list_volumes_response,
};
use futures::future::try_join_all;
use tonic::Status;

use super::list_cache::{self, ListOfCloud, Lists, Page};
use super::token::{List, PagePosition};
use super::{ControllerService, encode};
use crate::capability::Access;
use crate::operations::{Deadline, with_deadline};
use crate::status::CloudAction;
use crate::{fields, status};

/// The maximum number of entries in one response. gRPC clients accept 4 MiB by default, and a volume on many nodes is a
/// long entry.
const PAGE: usize = 500;

/// Confirms the capabilities, with all other fields of the request, only if all of them are supported.
pub(super) async fn validate(
    service: &ControllerService,
    request: ValidateVolumeCapabilitiesRequest,
    deadline: Deadline,
) -> Result<ValidateVolumeCapabilitiesResponse, Status> {
    let id = VolumeId::new(fields::required("volume_id", &request.volume_id)?);
    if request.volume_capabilities.is_empty() {
        return Err(status::invalid("volume_capabilities", "at least one is required"));
    }
    let (_, volume) = find_volume(service, &id, &request.secrets, deadline).await?;
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
        .find_map(|capability| match Access::parse(capability) {
            Err(reason) => Some(reason),
            Ok(access) if access.multi_node && !volume.multiattach => Some(format!(
                "volume {} may be attached to one node only; that takes a volume type with multiattach",
                volume.id
            )),
            Ok(_) => None,
        })
}

impl list_cache::Entry for ListedVolume {
    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn heap_size(&self) -> usize {
        MemorySize::heap_size(self)
    }
}

/// Lists all volumes of the projects, including volumes of other clients.
///
/// Imported volumes do not have the driver's metadata, and a volume that is missing here counts as detached. For the
/// same reason, the list fails if a cloud does not respond.
pub(super) async fn list(
    service: &ControllerService,
    request: ListVolumesRequest,
    deadline: Deadline,
) -> Result<ListVolumesResponse, Status> {
    let page = parse_page(
        service,
        List::Volumes,
        request.max_entries,
        &request.starting_token,
        PAGE,
    )?;
    let show = |cloud: &Cloud, volume: &ListedVolume| encode_entry(service, cloud, volume);
    let query = async {
        let clouds = service.clouds.all().await?;
        let fetch = || {
            fetch_lists(clouds, |cloud| async move {
                let volumes = cloud.listed_volumes().await;
                volumes.map_err(|error| status::from_cloud(CloudAction::Look, &error))
            })
        };
        service
            .volume_lists
            .page(page, &service.settings.sources, fetch, show)
            .await
    };
    let (entries, next_token) = with_deadline(deadline, "ListVolumes", query).await??;
    Ok(ListVolumesResponse { entries, next_token })
}

/// Fetches the lists of all clouds in parallel.
pub(super) async fn fetch_lists<E, F>(
    clouds: Vec<(String, Cloud)>,
    fetch: impl Fn(Cloud) -> F,
) -> Result<Lists<E>, Status>
where
    F: Future<Output = Result<Arc<Vec<E>>, Status>>,
{
    let lists = clouds.into_iter().map(|(name, cloud)| {
        let entries = fetch(cloud.clone());
        async {
            Ok(ListOfCloud {
                entries: entries.await?,
                name,
                cloud,
            })
        }
    });
    try_join_all(lists).await
}

/// Parses the requested page.
pub(super) fn parse_page(
    service: &ControllerService,
    list: List,
    max_entries: i32,
    token: &str,
    most: usize,
) -> Result<Page, Status> {
    let max = usize::try_from(max_entries).map_err(|_| status::invalid("max_entries", "it cannot be negative"))?;
    let limit = if max == 0 { most } else { max.min(most) };
    let mut position = None;
    if !token.is_empty() {
        let clouds = service.clouds.configured();
        position = PagePosition::parse(list, token, clouds.iter().map(|(name, _)| name.as_str()));
        if position.is_none() {
            return Err(status::bad_token(token));
        }
    }
    Ok(Page { list, limit, position })
}

fn encode_entry(service: &ControllerService, cloud: &Cloud, volume: &ListedVolume) -> list_volumes_response::Entry {
    list_volumes_response::Entry {
        volume: Some(encode::volume(volume, encode::topology(service, cloud, volume))),
        status: Some(list_volumes_response::VolumeStatus {
            published_node_ids: encode::nodes(volume),
        }),
    }
}

/// Returns one volume in the same form as [`list`].
pub(super) async fn get(
    service: &ControllerService,
    request: ControllerGetVolumeRequest,
    deadline: Deadline,
) -> Result<ControllerGetVolumeResponse, Status> {
    let id = VolumeId::new(fields::required("volume_id", &request.volume_id)?);
    // The request has no secrets.
    let (cloud, volume) = find_volume(service, &id, &BTreeMap::new(), deadline).await?;
    let list_volumes_response::Entry { volume, status } = encode_entry(service, &cloud, &ListedVolume::from(&volume));
    Ok(ControllerGetVolumeResponse {
        volume,
        status: status.map(|status| controller_get_volume_response::VolumeStatus {
            published_node_ids: status.published_node_ids,
        }),
    })
}

/// Finds a volume and its cloud.
pub(super) async fn find_volume(
    service: &ControllerService,
    id: &VolumeId,
    secrets: &BTreeMap<String, String>,
    deadline: Deadline,
) -> Result<(Cloud, Volume), Status> {
    let unknown = || status::not_found("volume", id.as_str());
    if !id.is_uuid() {
        return Err(unknown());
    }
    let query = async {
        let cloud = service.clouds.cloud_of_volume(id, secrets).await?.ok_or_else(unknown)?;
        let volume = cloud.volume(id).await;
        let volume = volume.map_err(|error| status::from_cloud(CloudAction::Look, &error))?;
        Ok((cloud, volume.ok_or_else(unknown)?))
    };
    with_deadline(deadline, "the look at the volume", query).await?
}
