// SPDX-License-Identifier: Apache-2.0
//! GetCapacity: the capacity for new volumes.

use cinder_cloud::{Cloud, CloudError, FreeCapacity, GiB};
use csi_proto::csi::v1::{GetCapacityRequest, GetCapacityResponse, Topology};
use tonic::Status;

use super::{ControllerService, encode};
use crate::capability::Access;
use crate::operations::{Deadline, with_deadline};
use crate::parameters::{CreateParameters, TOPOLOGY_ZONE};
use crate::status;
use crate::status::CloudAction;

/// Reported if nothing limits the capacity: 1 EiB, so that sums of it fit into 64 bits.
const UNLIMITED: i64 = 1 << 60;

/// Returns the remaining quota of the project, also limited by the scheduler's pools if the project may list them.
///
/// The capacity is zero if no volume can be created, such as in a missing zone or with an unavailable type.
pub(super) async fn capacity(
    service: &ControllerService,
    request: GetCapacityRequest,
    deadline: Deadline,
) -> Result<GetCapacityResponse, Status> {
    let parameters =
        CreateParameters::decode(request.parameters).map_err(|error| status::invalid("parameters", error))?;
    let accesses: Result<Vec<Access>, _> = request.volume_capabilities.iter().map(Access::parse).collect();
    let Ok(accesses) = accesses else {
        return Ok(build_response(FreeCapacity::NONE));
    };
    // The request has no secrets, so it concerns the cloud that calls without secrets use.
    let unchecked = service
        .clouds
        .choose_for_topology(request.accessible_topology.as_ref())?;
    let query = async {
        let cloud = unchecked.check().await?;
        let volume_type = match &parameters.volume_type {
            None => None,
            Some(name) => {
                let existing = cloud.volume_type(name).await.map_err(|error| query_error(&error))?;
                let unknown = || status::invalid("parameters", format_args!("the project knows no volume type {name}"));
                Some(existing.ok_or_else(unknown)?)
            }
        };
        let several = accesses.iter().any(|access| access.multi_node);
        if several && volume_type.as_ref().is_some_and(|existing| !existing.multiattach()) {
            return Ok(FreeCapacity::NONE);
        }
        let zone = match resolve_zone(service, &cloud, &parameters, request.accessible_topology.as_ref()).await? {
            ZoneChoice::Any => None,
            ZoneChoice::One(zone) => Some(zone),
            ZoneChoice::Impossible => return Ok(FreeCapacity::NONE),
        };
        if let (Some(volume_type), Some(zone)) = (&volume_type, &zone)
            && !volume_type.allows_zone(zone)
        {
            return Ok(FreeCapacity::NONE);
        }
        let volume_type = volume_type.map(|existing| existing.name);
        cloud
            .free_capacity(volume_type.as_deref(), zone.as_deref())
            .await
            .map_err(|error| query_error(&error))
    };
    with_deadline(deadline, "GetCapacity", query).await?.map(build_response)
}

fn query_error(error: &CloudError) -> Status {
    status::from_cloud(CloudAction::Look, error)
}

enum ZoneChoice {
    /// The zone is irrelevant.
    Any,
    /// This zone of Cinder.
    One(String),
    /// The zone does not exist, or the class and the topology contradict each other.
    Impossible,
}

/// Returns the zone of Cinder for new volumes, from the class and from the topology if topology is enabled.
async fn resolve_zone(
    service: &ControllerService,
    cloud: &Cloud,
    parameters: &CreateParameters,
    topology: Option<&Topology>,
) -> Result<ZoneChoice, Status> {
    let zones_matter = service.settings.args.with_topology && !cloud.config().block_storage.ignore_volume_az;
    let segment = topology
        .filter(|_| zones_matter)
        .and_then(|topology| topology.segments.get(TOPOLOGY_ZONE));
    if segment.is_none() && parameters.availability.is_none() {
        return Ok(ZoneChoice::Any);
    }
    let zones = cloud.zones().await.map_err(|error| query_error(&error))?;
    let fits = |zone: &&String| {
        let named = parameters.availability.as_ref().is_none_or(|name| name == *zone);
        // The topology that a volume in that zone would report.
        let reported = encode::zone(service, cloud, Some(zone));
        let reached = segment.is_none_or(|segment| {
            reported
                .iter()
                .any(|topology| topology.segments.get(TOPOLOGY_ZONE) == Some(segment))
        });
        named && reached
    };
    Ok(zones
        .iter()
        .find(fits)
        .map_or(ZoneChoice::Impossible, |zone| ZoneChoice::One(zone.clone())))
}

fn build_response(free: FreeCapacity) -> GetCapacityResponse {
    let smallest = GiB::from_bytes_rounded_up(0).map(encode::bytes);
    GetCapacityResponse {
        available_capacity: free
            .available
            .map_or(UNLIMITED, |size| encode::bytes(size).min(UNLIMITED)),
        maximum_volume_size: free.largest.map(|size| encode::bytes(size).min(UNLIMITED)),
        minimum_volume_size: smallest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlimited_capacity_is_reported_as_one_exbibyte() {
        let reported = build_response(FreeCapacity {
            available: None,
            largest: None,
        });
        assert_eq!(
            (reported.available_capacity, reported.maximum_volume_size),
            (UNLIMITED, None)
        );
        assert_eq!(reported.minimum_volume_size, Some(1 << 30));
    }

    #[test]
    fn capacity_of_any_size_does_not_overflow() {
        let reported = build_response(FreeCapacity {
            available: Some(GiB::MAX),
            largest: Some(GiB::MAX),
        });
        assert_eq!(
            (reported.available_capacity, reported.maximum_volume_size),
            (UNLIMITED, Some(UNLIMITED))
        );
    }
}
