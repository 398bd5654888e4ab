// SPDX-License-Identifier: Apache-2.0
//! Compares the zones of nodes with the zones of the clouds.

use super::{cloud::CloudView, outcome::Report};

/// The numbers of zones of nodes without a counterpart in a cloud.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ZoneMismatch {
    /// Zones that Nova does not have.
    pub missing: usize,
    /// Zones of Nova without a zone of Cinder.
    pub unmatched: usize,
}

impl Report<'_> {
    /// Whether the driver uses the zones of volumes.
    fn uses_zones(&self) -> bool {
        let clouds = &self.facts.clouds;
        let ignores = !clouds.is_empty() && clouds.iter().all(|cloud| cloud.ignores_zones);
        self.decision.has_topology && !ignores
    }

    /// Counts the zones of nodes that no cloud matches. The count is 0 if the driver uses no zones, or if the zones of a cloud are
    /// unknown. The cloud of a node is unknown: a match in any cloud is enough.
    pub fn zone_mismatch(&self) -> ZoneMismatch {
        let clouds = &self.facts.clouds;
        let is_known = |cloud: &CloudView| {
            !cloud.state.facts.volume_zones.is_empty() && !cloud.state.facts.compute_zones.is_empty()
        };
        let mut mismatch = ZoneMismatch::default();
        if !self.uses_zones() || clouds.is_empty() || !clouds.iter().all(is_known) {
            return mismatch;
        }
        for zone in &self.outcome.volumes.node_zones {
            let fits = |cloud: &CloudView| {
                let volume_zone = cloud.zone_map.get(zone).unwrap_or(zone);
                cloud.ignores_zones || cloud.state.facts.volume_zones.contains(volume_zone)
            };
            if !clouds
                .iter()
                .any(|cloud| cloud.state.facts.compute_zones.contains(zone))
            {
                mismatch.missing += 1;
            } else if !clouds.iter().any(fits) {
                mismatch.unmatched += 1;
            }
        }
        mismatch
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::{
        clouds::CloudFacts,
        decide::{Decision, Facts, Outcome},
    };

    #[rstest]
    #[case::fits(&["a"], |_: &mut CloudView| {}, (0, 0))]
    #[case::cinder_lacks_it(&["a", "b"], |_: &mut CloudView| {}, (0, 1))]
    #[case::mapped(&["b"], |cloud: &mut CloudView| { cloud.zone_map.insert("b".to_owned(), "a".to_owned()); }, (0, 0))]
    #[case::nova_lost_it(&["c"], |_: &mut CloudView| {}, (1, 0))]
    #[case::ignored(&["c"], |cloud: &mut CloudView| cloud.ignores_zones = true, (0, 0))]
    #[case::not_known_yet(&["c"], |cloud: &mut CloudView| cloud.state.facts = CloudFacts::default(), (0, 0))]
    fn zones_of_nodes_are_compared(
        #[case] zones: &[&str],
        #[case] change: fn(&mut CloudView),
        #[case] (missing, unmatched): (usize, usize),
    ) {
        let mut cloud = CloudView::default();
        cloud.state.facts.compute_zones = vec!["a".to_owned(), "b".to_owned()];
        cloud.state.facts.volume_zones = vec!["a".to_owned()];
        change(&mut cloud);
        let (mut facts, mut outcome) = (Facts::default(), Outcome::default());
        facts.clouds = vec![cloud];
        outcome.volumes.node_zones = zones.iter().map(|zone| (*zone).to_owned()).collect();
        let mismatch = |has_topology| {
            let decision = Decision {
                has_topology,
                ..Decision::default()
            };
            let report = Report {
                facts: &facts,
                decision: &decision,
                outcome: &outcome,
            };
            report.zone_mismatch()
        };
        assert_eq!(mismatch(false), ZoneMismatch::default());
        assert_eq!(mismatch(true), ZoneMismatch { missing, unmatched });
    }
}
