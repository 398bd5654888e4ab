// SPDX-License-Identifier: Apache-2.0
//! Whether the zones of nodes and volumes fit together.

use crate::{
    decide::{Report, ZoneMismatch},
    reasons::TopologyConsistent,
    status::{Verdict, verdict},
    text::join_truncated,
};

pub(in crate::status) fn topology_consistent(report: &Report) -> Verdict<TopologyConsistent> {
    if !report.heeds_zones() {
        return verdict(
            TopologyConsistent::AsExpected,
            "the zones of volumes are of no interest",
        );
    }
    let Some(ZoneMismatch { gone, unmatched }) = report.zone_mismatch() else {
        return verdict(
            TopologyConsistent::AsExpected,
            "the zones of the clouds are not known yet",
        );
    };
    if !gone.is_empty() {
        return verdict(
            TopologyConsistent::ZoneRemoved,
            format!(
                "nodes are in zones that Nova no longer has: {}; volumes for pods there cannot be made in their zone: move the \
                 nodes, or bring the zone back",
                join_truncated(&gone)
            ),
        );
    }
    if !unmatched.is_empty() {
        return verdict(
            TopologyConsistent::ZoneMismatch,
            format!(
                "nodes are in zones of Nova that Cinder does not have: {}; Cinder has: {}. Say which belong together in \
                 spec.clouds[].availabilityZoneMap, or set spec.topology.mode to Disabled",
                join_truncated(&unmatched),
                join_truncated(&report.volume_zones())
            ),
        );
    }
    verdict(
        TopologyConsistent::AsExpected,
        "every zone of the nodes has its zone in Cinder",
    )
}
