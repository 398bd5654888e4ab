//! Volumes of Cinder as CSI shows them. One builder for every RPC, so that they never tell different stories.

use std::collections::{BTreeMap, BTreeSet};

use cinder_cloud::{Cloud, ServerId, Volume};
use csi_proto::csi::v1::{self as csi, Topology};

use super::ControllerService;

/// A volume with its topology. Its context is empty: blank volumes need nothing at the node.
pub(super) fn volume(volume: &Volume, accessible_topology: Vec<Topology>) -> csi::Volume {
    csi::Volume {
        capacity_bytes: i64::try_from(volume.size.bytes()).unwrap_or(i64::MAX),
        volume_id: volume.id.to_string(),
        volume_context: BTreeMap::new(),
        content_source: None,
        accessible_topology,
    }
}

/// Where a volume can be used: its own zone, or nothing said where zones are off or of no interest.
pub(super) fn topology(service: &ControllerService, cloud: &Cloud, volume: &Volume) -> Vec<Topology> {
    if service.settings.topology && !cloud.config().block_storage.ignore_volume_az {
        service.zone_names(cloud).of_zone(volume.availability_zone.as_deref())
    } else {
        Vec::new()
    }
}

/// The nodes on which a volume is, each once.
pub(super) fn nodes(volume: &Volume) -> Vec<String> {
    let servers: BTreeSet<ServerId> = volume.servers().into_iter().collect();
    servers.iter().map(ToString::to_string).collect()
}
