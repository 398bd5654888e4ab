// SPDX-License-Identifier: Apache-2.0
//! The zones in which a snapshot can be restored.

use cinder_cloud::Cloud;
use csi_proto::csi::v1::Topology;

use super::super::{ControllerService, encode};
use crate::disabled_capabilities::AlphaCapability;

/// Whether they do in this cloud.
pub(super) fn zones_matter(service: &ControllerService, cloud: &Cloud) -> bool {
    tells_zones(service) && !cloud.config().block_storage.ignore_volume_az
}

/// From where a snapshot in this zone can be used; nothing is said of one whose zone is unknown.
pub(in super::super) fn topology(service: &ControllerService, cloud: &Cloud, zone: Option<&str>) -> Vec<Topology> {
    if zones_matter(service, cloud) {
        zone.map(|zone| encode::zone(service, cloud, Some(zone)))
            .unwrap_or_default()
    } else {
        Vec::new()
    }
}

/// Whether snapshots tell from where they can be used.
pub(super) fn tells_zones(service: &ControllerService) -> bool {
    service.settings.args.with_topology
        && service
            .settings
            .disabled
            .allows(AlphaCapability::SnapshotAccessibilityConstraints)
}
