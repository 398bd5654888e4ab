// SPDX-License-Identifier: Apache-2.0
//! GetCapacity: what still fits.

use cinder_cloud::{Cloud, CloudError, FreeCapacity, GiB};
use csi_proto::csi::v1::{GetCapacityRequest, GetCapacityResponse, Topology};
use tonic::Status;

use super::{ControllerService, encode};
use crate::capability::Access;
use crate::operations::{Deadline, with_deadline};
use crate::parameters::{CreateParameters, TOPOLOGY_ZONE};
use crate::status;
use crate::status::Act;

/// Told where nothing limits the capacity: 1 EiB, so that sums of it still fit into 64 bits.
const UNLIMITED: i64 = 1 << 60;

/// What is left of the project's quotas and, where the project may see them, of the scheduler's pools. What can never be made
/// has no capacity: a zone that does not exist, a type that is not offered there.
pub(super) async fn capacity(
    service: &ControllerService,
    request: GetCapacityRequest,
    deadline: Deadline,
) -> Result<GetCapacityResponse, Status> {
    let parameters =
        CreateParameters::decode(request.parameters).map_err(|error| status::invalid("parameters", error))?;
    let accesses: Result<Vec<Access>, _> = request.volume_capabilities.iter().map(Access::read).collect();
    let Ok(accesses) = accesses else {
        return Ok(answer(FreeCapacity::NONE));
    };
    // The request has no secrets: where there are several clouds, this is about the one that is used without any.
    let unchecked = service.clouds.of_topology(request.accessible_topology.as_ref())?;
    let look = async {
        let cloud = unchecked.check().await?;
        let volume_type = match &parameters.volume_type {
            None => None,
            Some(wanted) => {
                let found = cloud.volume_type(wanted).await.map_err(|error| looked(&error))?;
                let unknown =
                    || status::invalid("parameters", format_args!("the project knows no volume type {wanted}"));
                Some(found.ok_or_else(unknown)?)
            }
        };
        let several = accesses.iter().any(|access| access.multi_node);
        if several && volume_type.as_ref().is_some_and(|found| !found.multiattach()) {
            return Ok(FreeCapacity::NONE);
        }
        let zone = match wanted_zone(service, &cloud, &parameters, request.accessible_topology.as_ref()).await? {
            Zone::Any => None,
            Zone::One(zone) => Some(zone),
            Zone::Impossible => return Ok(FreeCapacity::NONE),
        };
        if let (Some(volume_type), Some(zone)) = (&volume_type, &zone)
            && !volume_type.allows_zone(zone)
        {
            return Ok(FreeCapacity::NONE);
        }
        let volume_type = volume_type.map(|found| found.name);
        cloud
            .free_capacity(volume_type.as_deref(), zone.as_deref())
            .await
            .map_err(|error| looked(&error))
    };
    with_deadline(deadline, "GetCapacity", look).await?.map(answer)
}

fn looked(error: &CloudError) -> Status {
    status::cloud(Act::Look, error)
}

enum Zone {
    /// It makes no difference.
    Any,
    /// This one of Cinder's.
    One(String),
    /// None that there is, or two that exclude each other.
    Impossible,
}

/// The zone of Cinder's in which new volumes would be: what the class says, and what the topology says where that is of interest.
async fn wanted_zone(
    service: &ControllerService,
    cloud: &Cloud,
    parameters: &CreateParameters,
    topology: Option<&Topology>,
) -> Result<Zone, Status> {
    let zones_matter = service.settings.args.with_topology && !cloud.config().block_storage.ignore_volume_az;
    let segment = topology
        .filter(|_| zones_matter)
        .and_then(|topology| topology.segments.get(TOPOLOGY_ZONE));
    if segment.is_none() && parameters.availability.is_none() {
        return Ok(Zone::Any);
    }
    let zones = cloud.zones().await.map_err(|error| looked(&error))?;
    let fits = |zone: &&String| {
        let named = parameters.availability.as_ref().is_none_or(|wanted| wanted == *zone);
        // As a volume in that zone would be told to Kubernetes.
        let told = encode::zone(service, cloud, Some(zone));
        let reached = segment.is_none_or(|segment| {
            told.iter()
                .any(|topology| topology.segments.get(TOPOLOGY_ZONE) == Some(segment))
        });
        named && reached
    };
    Ok(zones
        .iter()
        .find(fits)
        .map_or(Zone::Impossible, |zone| Zone::One(zone.clone())))
}

fn answer(free: FreeCapacity) -> GetCapacityResponse {
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
    fn what_nothing_limits_is_large_and_finite() {
        let told = answer(FreeCapacity {
            available: None,
            largest: None,
        });
        assert_eq!((told.available_capacity, told.maximum_volume_size), (UNLIMITED, None));
        assert_eq!(told.minimum_volume_size, Some(1 << 30));
    }

    #[test]
    fn no_size_overflows() {
        let told = answer(FreeCapacity {
            available: Some(GiB::MAX),
            largest: Some(GiB::MAX),
        });
        assert_eq!(
            (told.available_capacity, told.maximum_volume_size),
            (UNLIMITED, Some(UNLIMITED))
        );
    }
}
