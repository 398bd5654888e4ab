// SPDX-License-Identifier: Apache-2.0
//! The zones in which a snapshot can be restored.

use cinder_cloud::Cloud;
use csi_proto::csi::v1::Topology;

use super::super::{ControllerService, encode};
use crate::disabled_capabilities::AlphaCapability;

/// Whether snapshots in this cloud report their accessible topology.
pub(super) fn cloud_reports_topology(service: &ControllerService, cloud: &Cloud) -> bool {
    reports_topology(service) && !cloud.config().block_storage.ignore_volume_az
}

/// Returns the accessible topology of a snapshot in this zone; empty if the zone is unknown.
pub(in super::super) fn topology(service: &ControllerService, cloud: &Cloud, zone: Option<&str>) -> Vec<Topology> {
    if cloud_reports_topology(service, cloud) {
        zone.map(|zone| encode::zone(service, cloud, Some(zone)))
            .unwrap_or_default()
    } else {
        Vec::new()
    }
}

/// Whether snapshots report their accessible topology.
pub(super) fn reports_topology(service: &ControllerService) -> bool {
    service.settings.args.with_topology
        && service
            .settings
            .disabled
            .allows(AlphaCapability::SnapshotAccessibilityConstraints)
}
