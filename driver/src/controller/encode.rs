// SPDX-License-Identifier: Apache-2.0
//! Encodes objects of Cinder for CSI. Every RPC uses these functions, so that all responses agree.

use std::collections::BTreeSet;

use cinder_cloud::{Cloud, GiB, ListedVolume, PointInTime, ServerId, Source, parse_timestamp};
use csi_proto::Timestamp;
use csi_proto::csi::v1::volume_content_source::{self, SnapshotSource, VolumeSource};
use csi_proto::csi::v1::{self as csi, Topology, VolumeContentSource};

use super::ControllerService;
use crate::parameters::RESIZE_REQUIRED;

/// Encodes a volume. Its context is empty if the volume was created without a source.
pub(super) fn volume(volume: &ListedVolume, accessible_topology: Vec<Topology>) -> csi::Volume {
    let content_source = volume.source.as_ref().map(source);
    csi::Volume {
        capacity_bytes: bytes(volume.size),
        volume_id: volume.id.to_string(),
        // The source, and with it the file system, may be smaller than the volume.
        volume_context: content_source
            .iter()
            .map(|_| (RESIZE_REQUIRED.to_owned(), "true".to_owned()))
            .collect(),
        content_source,
        accessible_topology,
    }
}

fn source(source: &Source) -> VolumeContentSource {
    let kind = match source {
        Source::PointInTime(id) => volume_content_source::Type::Snapshot(SnapshotSource {
            snapshot_id: id.to_owned(),
        }),
        Source::Volume(id) => volume_content_source::Type::Volume(VolumeSource {
            volume_id: id.to_string(),
        }),
    };
    VolumeContentSource { r#type: Some(kind) }
}

/// Encodes a snapshot or a backup.
pub(super) fn point_in_time(point: &PointInTime, accessible_topology: Vec<Topology>) -> csi::Snapshot {
    let (size, frozen, group) = match point {
        PointInTime::Snapshot(snapshot) => (
            Some(snapshot.size),
            snapshot.created_at.as_str(),
            snapshot.group_snapshot_id.clone(),
        ),
        PointInTime::Backup(backup) => (
            backup.size,
            backup.data_timestamp.as_deref().unwrap_or(&backup.created_at),
            None,
        ),
    };
    csi::Snapshot {
        size_bytes: size.map_or(0, bytes),
        snapshot_id: point.id().to_owned(),
        source_volume_id: point.volume().to_string(),
        creation_time: timestamp(frozen),
        ready_to_use: point.is_complete(),
        group_snapshot_id: group.unwrap_or_default(),
        accessible_topology,
    }
}

/// Encodes a timestamp of Cinder.
pub(crate) fn timestamp(text: &str) -> Option<Timestamp> {
    let timestamp = parse_timestamp(text)?;
    Some(Timestamp {
        seconds: timestamp.as_second(),
        nanos: timestamp.subsec_nanosecond(),
    })
}

/// Encodes a size in bytes.
pub(super) fn bytes(size: GiB) -> i64 {
    i64::try_from(size.bytes()).unwrap_or(i64::MAX)
}

/// Returns the accessible topology of a volume; empty if topology is disabled or the zone of volumes is ignored.
pub(super) fn topology(service: &ControllerService, cloud: &Cloud, volume: &ListedVolume) -> Vec<Topology> {
    if service.settings.args.with_topology && !cloud.config().block_storage.ignore_volume_az {
        zone(service, cloud, volume.zone.as_deref())
    } else {
        Vec::new()
    }
}

/// Returns the accessible topology of a zone of Cinder.
pub(super) fn zone(service: &ControllerService, cloud: &Cloud, zone: Option<&str>) -> Vec<Topology> {
    service.zone_names(&cloud.config()).topologies_of_zone(zone)
}

/// Returns the nodes that have the volume attached, without duplicates.
pub(super) fn nodes(volume: &ListedVolume) -> Vec<String> {
    let servers: BTreeSet<&ServerId> = volume.servers.iter().collect();
    servers.iter().map(ToString::to_string).collect()
}
