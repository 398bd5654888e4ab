//! Whether the zones of nodes and volumes fit together.

use std::collections::BTreeSet;

use crate::{
    decide::{CloudView, Report},
    reasons::TopologyConsistent,
    status::{Verdict, verdict},
    text::join_truncated,
};

pub(in crate::status) fn topology_consistent(report: &Report) -> Verdict<TopologyConsistent> {
    let Report { facts, decision, .. } = report;
    let ignores = !facts.clouds.is_empty() && facts.clouds.iter().all(|cloud| cloud.ignores_zones);
    if !decision.has_topology || ignores {
        return verdict(
            TopologyConsistent::AsExpected,
            "the zones of volumes are of no interest",
        );
    }
    let known: Vec<&CloudView> = facts
        .clouds
        .iter()
        .filter(|cloud| !cloud.state.facts.volume_zones.is_empty() && !cloud.state.facts.compute_zones.is_empty())
        .collect();
    // Which cloud a node is in is not known here: a zone is well that is well in one of them.
    if known.is_empty() || known.len() < facts.clouds.len() {
        return verdict(
            TopologyConsistent::AsExpected,
            "the zones of the clouds are not known yet",
        );
    }
    let Mismatch { gone, unmatched } = mismatch(facts.volumes.node_zones.iter(), &known);
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
                join_truncated(&volume_zones(&known))
            ),
        );
    }
    verdict(
        TopologyConsistent::AsExpected,
        "every zone of the nodes has its zone in Cinder",
    )
}

/// Zones of nodes that do not fit.
struct Mismatch {
    /// Nova no longer has them.
    gone: Vec<String>,
    /// Cinder has no zone for them.
    unmatched: Vec<String>,
}

fn mismatch<'a>(zones: impl Iterator<Item = &'a String>, clouds: &[&CloudView]) -> Mismatch {
    let (mut gone, mut unmatched) = (Vec::new(), Vec::new());
    for zone in zones {
        let fits = |cloud: &&CloudView| {
            let wanted = cloud.zone_map.get(zone).unwrap_or(zone);
            cloud.ignores_zones || cloud.state.facts.volume_zones.contains(wanted)
        };
        let exists = |cloud: &&CloudView| cloud.state.facts.compute_zones.contains(zone);
        if !clouds.iter().any(exists) {
            gone.push(zone.clone());
        } else if !clouds.iter().any(fits) {
            unmatched.push(zone.clone());
        }
    }
    Mismatch { gone, unmatched }
}

/// How many zones of nodes do not fit: those that Nova lost, and those without one in Cinder.
pub fn mismatched_zones(report: &Report) -> (usize, usize) {
    let Report { facts, decision, .. } = report;
    let clouds: Vec<&CloudView> = facts.clouds.iter().collect();
    let is_known = !clouds.is_empty()
        && clouds
            .iter()
            .all(|cloud| !cloud.state.facts.volume_zones.is_empty() && !cloud.state.facts.compute_zones.is_empty());
    if !decision.has_topology || !is_known {
        return (0, 0);
    }
    let Mismatch { gone, unmatched } = mismatch(facts.volumes.node_zones.iter(), &clouds);
    (gone.len(), unmatched.len())
}

fn volume_zones(clouds: &[&CloudView]) -> Vec<String> {
    let all: BTreeSet<&String> = clouds
        .iter()
        .flat_map(|cloud| &cloud.state.facts.volume_zones)
        .collect();
    all.into_iter().cloned().collect()
}
