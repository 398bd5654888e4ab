// SPDX-License-Identifier: Apache-2.0
//! Whether the zones of nodes and volumes fit together.

use std::collections::BTreeSet;

use super::{CloudView, Report};

/// Zones of nodes that do not fit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ZoneMismatch {
    /// Nova no longer has them.
    pub gone: Vec<String>,
    /// Cinder has no zone for them.
    pub unmatched: Vec<String>,
}

impl Report {
    /// Whether the zones of volumes matter.
    pub fn heeds_zones(&self) -> bool {
        let clouds = &self.facts.clouds;
        let ignores = !clouds.is_empty() && clouds.iter().all(|cloud| cloud.ignores_zones);
        self.decision.has_topology && !ignores
    }

    /// The zones of nodes that do not fit; `None` where zones do not matter, or those of a cloud are not known yet. Which cloud a node is
    /// in is not known here: a zone is well that is well in one of them.
    pub fn zone_mismatch(&self) -> Option<ZoneMismatch> {
        let clouds = &self.facts.clouds;
        let is_known = |cloud: &CloudView| {
            !cloud.state.facts.volume_zones.is_empty() && !cloud.state.facts.compute_zones.is_empty()
        };
        if !self.heeds_zones() || clouds.is_empty() || !clouds.iter().all(is_known) {
            return None;
        }
        let mut mismatch = ZoneMismatch::default();
        for zone in &self.facts.volumes.node_zones {
            let fits = |cloud: &CloudView| {
                let wanted = cloud.zone_map.get(zone).unwrap_or(zone);
                cloud.ignores_zones || cloud.state.facts.volume_zones.contains(wanted)
            };
            if !clouds
                .iter()
                .any(|cloud| cloud.state.facts.compute_zones.contains(zone))
            {
                mismatch.gone.push(zone.clone());
            } else if !clouds.iter().any(fits) {
                mismatch.unmatched.push(zone.clone());
            }
        }
        Some(mismatch)
    }

    /// The zones that Cinder has in any of the clouds.
    pub fn volume_zones(&self) -> Vec<String> {
        let clouds = self.facts.clouds.iter();
        let all: BTreeSet<&String> = clouds.flat_map(|cloud| &cloud.state.facts.volume_zones).collect();
        all.into_iter().cloned().collect()
    }
}
