//! Availability zones: which one to ask Cinder for, and what to tell Kubernetes about the volume.

use std::collections::BTreeMap;

use csi_proto::csi::v1::{Topology, TopologyRequirement};

use crate::parameters::TOPOLOGY_ZONE;

/// The zones that a request names, in order of preference.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Zones {
    preferred: Vec<String>,
    requisite: Vec<String>,
}

impl Zones {
    /// Reads the requirement of a request. Segments without a zone say nothing to us.
    pub fn of(requirement: Option<&TopologyRequirement>) -> Self {
        requirement.map_or_else(Self::default, |requirement| Self {
            preferred: zones(&requirement.preferred),
            requisite: zones(&requirement.requisite),
        })
    }

    /// The zone to ask for: the first preferred one, else the first requisite one.
    pub fn first(&self) -> Option<&str> {
        self.preferred
            .first()
            .or_else(|| self.requisite.first())
            .map(String::as_str)
    }

    /// The zones of which the volume must be in one; empty when any will do.
    pub fn required(&self) -> &[String] {
        &self.requisite
    }

    /// Whether a volume in `zone` can be reached from where it must be.
    pub fn allow(&self, zone: &str) -> bool {
        self.requisite.is_empty()
            || self
                .requisite
                .iter()
                .any(|required| label_value(required) == label_value(zone))
    }

    /// The answer for a volume whose own zone is of no interest: the zones that were asked for.
    pub fn as_asked(&self) -> Vec<Topology> {
        let asked = if self.preferred.is_empty() {
            &self.requisite
        } else {
            &self.preferred
        };
        asked.iter().map(|zone| segment(zone)).collect()
    }
}

/// The answer for a volume in `zone`, as nodes name it.
pub fn of_zone(zone: Option<&str>) -> Vec<Topology> {
    zone.filter(|zone| !zone.is_empty())
        .map(|zone| segment(&label_value(zone)))
        .into_iter()
        .collect()
}

fn zones(topologies: &[Topology]) -> Vec<String> {
    let mut zones: Vec<String> = Vec::new();
    for zone in topologies
        .iter()
        .filter_map(|topology| topology.segments.get(TOPOLOGY_ZONE))
    {
        if !zone.is_empty() && !zones.contains(zone) {
            zones.push(zone.clone());
        }
    }
    zones
}

fn segment(zone: &str) -> Topology {
    Topology {
        segments: BTreeMap::from([(TOPOLOGY_ZONE.to_owned(), zone.to_owned())]),
    }
}

/// A zone's name as a label value, which is what nodes carry: other characters become `-`, at most 63 of them, letters or
/// digits at both ends.
pub fn label_value(zone: &str) -> String {
    let allowed = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') {
            c
        } else {
            '-'
        }
    };
    let value: String = zone.chars().map(allowed).collect();
    let value = value.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let value = value.get(..63).unwrap_or(value);
    value.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn requirement(preferred: &[&str], requisite: &[&str]) -> TopologyRequirement {
        let topologies = |zones: &[&str]| zones.iter().map(|zone| segment(zone)).collect();
        TopologyRequirement {
            preferred: topologies(preferred),
            requisite: topologies(requisite),
        }
    }

    #[rstest]
    #[case(&["b", "a"], &["a", "b"], Some("b"))]
    #[case(&[], &["a", "b"], Some("a"))]
    #[case(&["b"], &[], Some("b"))]
    #[case(&[], &[], None)]
    fn the_preferred_zone_goes_before_the_requisite_one(
        #[case] preferred: &[&str],
        #[case] requisite: &[&str],
        #[case] first: Option<&str>,
    ) {
        assert_eq!(Zones::of(Some(&requirement(preferred, requisite))).first(), first);
    }

    #[test]
    fn segments_of_other_keys_say_nothing() {
        let other = Topology {
            segments: BTreeMap::from([("topology.kubernetes.io/region".into(), "r".into())]),
        };
        let requirement = TopologyRequirement {
            requisite: vec![other.clone()],
            preferred: vec![other],
        };
        assert_eq!(Zones::of(Some(&requirement)), Zones::default());
    }

    #[rstest]
    #[case(&["a", "b"], "b", true)]
    #[case(&["a", "b"], "c", false)]
    #[case(&["zone-one"], "zone one", true)]
    #[case(&[], "c", true)]
    fn a_volume_must_be_in_a_requisite_zone(#[case] requisite: &[&str], #[case] zone: &str, #[case] allowed: bool) {
        assert_eq!(Zones::of(Some(&requirement(&[], requisite))).allow(zone), allowed);
    }

    #[rstest]
    #[case("nova", "nova")]
    #[case("zone one", "zone-one")]
    #[case("-zone:1-", "zone-1")]
    #[case("Größe", "Gr--e")]
    #[case(&"z".repeat(70), &"z".repeat(63))]
    #[case("::", "")]
    fn zones_become_label_values(#[case] zone: &str, #[case] value: &str) {
        assert_eq!(label_value(zone), value);
    }
}
