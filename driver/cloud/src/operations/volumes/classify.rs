// SPDX-License-Identifier: Apache-2.0
//! Decides how a creation continues with an existing volume of the requested name.

use crate::api::block_storage::{NewVolume, Source, Volume, VolumeStatus};
use crate::ids::VolumeId;
use crate::metadata_keys;
use crate::operations::clusters::other_cluster;
use crate::operations::creation::is_from_request;
use crate::timestamp::parse_timestamp;
use crate::timing::TIMING;

/// The meaning of an existing volume for a creation of its name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ExistingVolume {
    /// The requested volume, complete.
    Ready,
    /// The requested volume, not complete yet.
    Pending,
    /// A volume that is being deleted. The name becomes free.
    Deleting,
    /// A volume of an earlier attempt that no caller received, and that is unusable for this reason. The driver removes
    /// it.
    Discard(&'static str),
    /// Another volume. The driver does not remove it.
    Other(Reason),
}

/// It failed during its creation.
pub(super) const FAILED: &str = "it failed in an earlier creation";
/// Cinder created it in another zone than the acceptable ones, or without multiattach.
pub(super) const UNFIT: &str = "Cinder made it otherwise than it was asked to";

/// The reason why a volume is not the requested one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// It failed, and another request created it, or it was in use before, or it cannot be deleted.
    Failed,
    /// It differs, and an earlier attempt at this request may have created it: with other acceptable zones, with
    /// earlier parameters of the class, or interrupted before it wrote the metadata of a restored volume.
    EarlierAttempt(String),
    /// It differs as described.
    Different(String),
}

/// Classifies a volume of the requested name.
pub(super) fn classify_existing(volume: &Volume, new: &NewVolume, ignore_zone: bool) -> ExistingVolume {
    match &volume.status {
        VolumeStatus::Deleting => return ExistingVolume::Deleting,
        status if failed_creation(status) && is_ours(volume, new) && was_never_used(volume) => {
            return ExistingVolume::Discard(FAILED);
        }
        status if status.is_error() => return ExistingVolume::Other(Reason::Failed),
        _ => {}
    }
    let is_misplaced = !ignore_zone && zone_difference(volume, new).is_some() && is_misplaced_by_mark(volume);
    if (is_misplaced || lacks_multiattach(volume, new)) && was_never_returned(volume, new) {
        match &volume.status {
            VolumeStatus::Available => return ExistingVolume::Discard(UNFIT),
            // It cannot be deleted yet, and Cinder may still schedule it elsewhere.
            status if status.is_coming() => return ExistingVolume::Pending,
            _ => {}
        }
    }
    if let Some(difference) = cluster_difference(volume, new) {
        return ExistingVolume::Other(Reason::Different(difference));
    }
    if let Some(difference) = difference(volume, new, ignore_zone) {
        let is_elsewhere = zone_difference(volume, new).as_ref() == Some(&difference);
        let is_unused = volume.status == VolumeStatus::Available || volume.status.is_coming();
        let may_be_earlier = !marks_are_own(volume) || (is_ours(volume, new) && is_unused);
        let is_claims = marks_are_own(volume) && new.metadata.contains_key(metadata_keys::PV_NAME);
        if (is_elsewhere || is_claims) && may_be_earlier && volume.attachments.is_empty() {
            return ExistingVolume::Other(Reason::EarlierAttempt(difference));
        }
        return ExistingVolume::Other(Reason::Different(difference));
    }
    if volume.status.is_coming() {
        ExistingVolume::Pending
    } else {
        ExistingVolume::Ready
    }
}

/// Whether a creation may end in this status. A failed expansion or deletion has another status.
pub(super) fn failed_creation(status: &VolumeStatus) -> bool {
    *status == VolumeStatus::Error || status.as_str() == "error_restoring"
}

/// Whether this request, or an earlier attempt at it, created the volume.
pub(super) fn is_ours(volume: &Volume, new: &NewVolume) -> bool {
    is_from_request((&volume.name, &volume.metadata), (&new.name, &new.metadata))
}

/// Whether Cinder's record shows that a volume was never used: it has no attachments, and its record has not changed
/// since shortly after its creation. If such a volume is in error, its creation failed.
fn was_never_used(volume: &Volume) -> bool {
    if !volume.attachments.is_empty() {
        return false;
    }
    let Some(updated) = &volume.updated_at else {
        return true;
    };
    let (Some(created), Some(updated)) = (parse_timestamp(&volume.created_at), parse_timestamp(updated)) else {
        return false;
    };
    updated.duration_since(created).unsigned_abs() <= TIMING.creation_window
}

/// Whether a volume that does not match its own marks was never returned to a caller. The marks must come from its own
/// creation, and the creation from this request.
fn was_never_returned(volume: &Volume, new: &NewVolume) -> bool {
    volume.attachments.is_empty() && is_ours(volume, new) && marks_are_own(volume)
}

/// Whether the zone of the volume is not one of the zones in its mark.
fn is_misplaced_by_mark(volume: &Volume) -> bool {
    let requested = volume.metadata.get(metadata_keys::REQUESTED_ZONES);
    let (Some(requested), Some(zone)) = (requested, &volume.availability_zone) else {
        return false;
    };
    !requested.split(',').any(|requested| same_zone(requested, zone))
}

/// Whether the mark of the volume requires multiattach, and the volume lacks it. A retype can remove multiattach later
/// too, so the record must not have changed since the creation.
fn lacks_multiattach(volume: &Volume, new: &NewVolume) -> bool {
    let requested = volume.metadata.get(metadata_keys::REQUESTED_MULTIATTACH);
    new.multiattach && !volume.multiattach && requested.is_some_and(|text| text == "true") && was_never_used(volume)
}

/// Whether the marks come from this volume's creation, and not from the volume of the backup from which it was
/// restored.
pub(super) fn marks_are_own(volume: &Volume) -> bool {
    let restored = volume.metadata.get(metadata_keys::CINDERS_SOURCE_BACKUP);
    restored.is_none() || restored == volume.metadata.get(metadata_keys::SOURCE_BACKUP)
}

/// The acceptable zones as a mark. `None` if there are none, or if they do not fit into metadata.
pub(super) fn requested_zones(new: &NewVolume) -> Option<String> {
    let zones = zones(new);
    if zones.is_empty() || zones.iter().any(|zone| zone.contains(',')) {
        return None;
    }
    Some(zones.join(",")).filter(|text| text.chars().count() <= metadata_keys::LONGEST_VALUE)
}

fn zones(new: &NewVolume) -> Vec<&str> {
    if new.acceptable_zones.is_empty() {
        new.availability_zone.iter().map(String::as_str).collect()
    } else {
        new.acceptable_zones.iter().map(String::as_str).collect()
    }
}

/// Whether the zone is acceptable.
pub(super) fn zone_fits(zone: &str, new: &NewVolume) -> bool {
    let zones = zones(new);
    zones.is_empty() || zones.iter().any(|wanted| same_zone(wanted, zone))
}

impl NewVolume {
    /// Whether a volume in this zone of Cinder matches the request, now and when the request is repeated.
    pub fn fits_zone(&self, zone: &str) -> bool {
        zone_fits(zone, self)
    }
}

/// Compares zones. Zones may come from labels of nodes, which have a smaller character set and 63 characters at most.
/// One zone may therefore be the label that the Go driver derives from the other. Two zones that lose different
/// characters are not the same, and a name without any permitted character has no label.
fn same_zone(one: &str, other: &str) -> bool {
    let edge = |c: char| !c.is_ascii_alphanumeric();
    let plain = |zone: &str| -> String {
        let zone: String = zone
            .chars()
            .map(|c| {
                if matches!(c, '-' | '_' | '.') || !edge(c) {
                    c
                } else {
                    '-'
                }
            })
            .collect();
        let zone: String = zone.trim_matches(edge).chars().take(63).collect();
        zone.trim_end_matches(edge).to_owned()
    };
    let labels = |label: &str, zone: &str| !label.is_empty() && label == plain(zone);
    one == other || labels(one, other) || labels(other, one)
}

fn zone_difference(volume: &Volume, new: &NewVolume) -> Option<String> {
    let found = volume.availability_zone.as_deref()?;
    (!zone_fits(found, new)).then(|| format!("zone {} is wanted, it is in {found}", zones(new).join(" or ")))
}

/// Returns the difference between a volume and the request as text; `None` if it matches.
pub(super) fn difference(volume: &Volume, new: &NewVolume, ignore_zone: bool) -> Option<String> {
    if volume.size < new.size {
        return Some(format!("size {} is wanted, it has {}", new.size, volume.size));
    }
    if let Some(largest) = new.largest.filter(|largest| volume.size > *largest) {
        return Some(format!("size {largest} at most is wanted, it has {}", volume.size));
    }
    let type_by_id = |name: &str| VolumeId::new(name).is_uuid();
    if let (Some(wanted), Some(found)) = (&new.volume_type, &volume.volume_type)
        && wanted != found
        // The request may have the id of the type, and Cinder shows its name.
        && !type_by_id(wanted)
    {
        return Some(format!("type {wanted} is wanted, it has {found}"));
    }
    if new.multiattach && !volume.multiattach {
        return Some("several servers shall have it, and its type allows one only".to_owned());
    }
    if let Some(difference) = source_difference(volume, new.source.as_ref()) {
        return Some(difference);
    }
    // Until the requested metadata is written again, a restored volume has the metadata of the backed up volume.
    let own = volume.status != VolumeStatus::RestoringBackup && marks_are_own(volume);
    if let (true, Some(wanted), Some(found)) = (own, new.mode, volume.mode())
        && wanted != found
    {
        return Some(format!(
            "volume mode {} is wanted, it has {}",
            wanted.name(),
            found.name()
        ));
    }
    for (key, wanted) in &new.mutable_metadata {
        let found = volume.metadata.get(key);
        if own && found != Some(wanted) {
            let found = found.map_or("none", String::as_str);
            return Some(format!("metadata {key}={wanted} is wanted, it has {found}"));
        }
    }
    if ignore_zone {
        return None;
    }
    zone_difference(volume, new)
}

fn cluster_difference(volume: &Volume, new: &NewVolume) -> Option<String> {
    // Until the requested metadata is written again, a restored volume has the metadata of the backed up volume.
    if volume.status == VolumeStatus::RestoringBackup || !marks_are_own(volume) {
        return None;
    }
    let key = metadata_keys::CLUSTER;
    other_cluster(volume.metadata.get(key), new.metadata.get(key))
}

fn source_difference(volume: &Volume, wanted: Option<&Source>) -> Option<String> {
    // During a restore, Cinder has not written all metadata yet.
    if volume.status == VolumeStatus::RestoringBackup {
        return None;
    }
    let found = volume.source();
    let describe = |source: Option<&Source>| match source {
        None => "nothing".to_owned(),
        Some(Source::PointInTime(id)) => format!("snapshot or backup {id}"),
        Some(Source::Volume(id)) => format!("volume {id}"),
    };
    (found.as_ref() != wanted).then(|| {
        format!(
            "source {} is wanted, it was made from {}",
            describe(wanted),
            describe(found.as_ref())
        )
    })
}

/// Chooses the volume with which a creation continues, among several of one name: complete before pending before
/// failed, then the oldest.
pub(super) fn choose_volume(volumes: impl Iterator<Item = Volume>) -> Option<Volume> {
    volumes.min_by_key(|volume| {
        let rank = match &volume.status {
            VolumeStatus::Available | VolumeStatus::InUse => 0,
            status if status.is_coming() => 2,
            VolumeStatus::Deleting => 3,
            VolumeStatus::ErrorDeleting => 5,
            status if status.is_error() => 4,
            _ => 1,
        };
        (rank, volume.created_at.clone(), volume.id.clone())
    })
}

/// The ids of the volumes that were created for this request, if there are several that are not being deleted.
pub(super) fn find_duplicates<'a>(named: &'a [Volume], new: &NewVolume) -> Vec<&'a str> {
    let created = named
        .iter()
        .filter(|volume| volume.status != VolumeStatus::Deleting && is_ours(volume, new));
    let created: Vec<&str> = created.map(|volume| volume.id.as_str()).collect();
    if created.len() > 1 { created } else { Vec::new() }
}

#[cfg(test)]
mod tests;
