// SPDX-License-Identifier: Apache-2.0
//! The zones of a new volume.

use cinder_cloud::{CloudConfig, NewVolume, Volume};
use tonic::Status;

use super::super::ControllerService;
use super::request::{CreateRequest, DesiredVolume};
use crate::clouds::CloudChoice;
use crate::status;
use crate::topology::Zones;

/// Refuses a request that no candidate can carry out. Needs no query.
pub(super) fn check_candidates(
    service: &ControllerService,
    request: &CreateRequest,
    candidates: &[CloudChoice],
) -> Result<(), Status> {
    let mut refusal = Ok(());
    for candidate in candidates {
        match zones(service, request, candidate) {
            Ok(_) => return Ok(()),
            Err(status) => refusal = refusal.and(Err(status)),
        }
    }
    refusal
}

/// Adds the zones to the request, in the names of the chosen cloud.
pub(super) fn place(
    service: &ControllerService,
    request: CreateRequest,
    choice: &CloudChoice,
) -> Result<DesiredVolume, Status> {
    let zones = zones(service, &request, choice)?;
    let CreateRequest {
        availability,
        mut desired,
        ..
    } = request;
    // A repeated request may prefer another zone. If the class specifies a zone, only that zone is acceptable.
    desired.new.acceptable_zones = match &availability {
        Some(zone) => vec![zone.clone()],
        None => zones.required().to_vec(),
    };
    desired.new.availability_zone = availability.or_else(|| zones.first().map(str::to_owned));
    desired.zones = zones;
    Ok(desired)
}

/// Returns the requested zones in the names of a cloud. Fails if the zone of the class is not among them.
fn zones(service: &ControllerService, request: &CreateRequest, choice: &CloudChoice) -> Result<Zones, Status> {
    let config = choice.cloud.config();
    let zones = if service.settings.args.with_topology {
        Zones::from_requirement(choice.requirement.as_ref(), &service.zone_names(&config))
    } else {
        Zones::default()
    };
    match &request.availability {
        Some(zone) if !is_reachable(&config, &zones, zone) => Err(status::zone_impossible(unreachable_text(
            "parameter availability",
            zone,
            &zones,
        ))),
        _ => Ok(zones),
    }
}

/// Explains why a volume in its zone does not fulfil the request; `None` if it does.
pub(super) fn misplacement(config: &CloudConfig, desired: &DesiredVolume, volume: &Volume) -> Option<String> {
    let zone = volume.availability_zone.as_deref()?;
    let what = format!("volume {}", volume.id);
    if !is_reachable(config, &desired.zones, zone) {
        return Some(unreachable_text(&what, zone, &desired.zones));
    }
    // A repeated request would reject this volume, so this request must not return it.
    let fits = config.block_storage.ignore_volume_az || desired.new.fits_zone(zone);
    (!fits).then(|| elsewhere_text(&what, zone, &desired.new))
}

fn is_reachable(config: &CloudConfig, zones: &Zones, zone: &str) -> bool {
    config.block_storage.ignore_volume_az || zones.allows(zone)
}

fn unreachable_text(what: &str, zone: &str, zones: &Zones) -> String {
    format!(
        "{what}: zone {zone} is not among those from which the volume must be reachable ({}); where zones of compute and \
         storage have different names, name them by zone-map or set ignore-volume-az in cloud.conf (of a CinderCSIDriver: availabilityZoneMap of its \
         cloud, blockStorage.ignoreVolumeAZ)",
        zones.required().join(", ")
    )
}

fn elsewhere_text(what: &str, zone: &str, new: &NewVolume) -> String {
    format!(
        "{what}: Cinder made it in zone {zone} although {} was asked for; name a zone of Cinder's that has what is wanted, or set \
         ignore-volume-az in cloud.conf",
        new.availability_zone.as_deref().unwrap_or("another one")
    )
}
