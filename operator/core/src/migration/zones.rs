// SPDX-License-Identifier: Apache-2.0
//! Zone labels of nodes and PersistentVolumes, compared with the labels that this driver would report.
//!
//! The kubelet rejects a driver that reports another value for an existing label. A volume is used only on nodes with
//! its label.

use std::collections::{BTreeMap, BTreeSet};

use cinder_csi_crds::{CinderCSIDriverSpec, TopologyMode};
use cinder_csi_driver::topology::ZoneLabels;

use super::finding::{AdoptionFinding, AdoptionFindingReason, Sample, finding};

pub use cinder_csi_driver::parameters::TOPOLOGY_ZONE;

/// Maximum number of different labels to compare.
const MOST_LABELS: usize = 128;
/// The flag with which the driver writes labels as cinder-csi-plugin does.
const SANITISED: &str = "--zone-labels=sanitised";

/// The zone labels of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ZoneLabelFacts {
    /// The zones of Nova in all clouds. `None` while a cloud has not returned them.
    pub compute_zones: Option<BTreeSet<String>>,
    /// Whether the driver would report zones. `None` if only the spec determines it.
    pub is_enabled: Option<bool>,
    nodes: BTreeMap<String, Sample>,
    volumes: BTreeMap<String, Sample>,
    /// Objects with further labels than [`MOST_LABELS`].
    omitted: Sample,
}

impl ZoneLabelFacts {
    pub fn add_node(&mut self, node: &str, label: &str) {
        add(&mut self.nodes, &mut self.omitted, label, format!("Node {node}"));
    }

    /// Adds a label in the node affinity of a PersistentVolume.
    pub fn add_volume(&mut self, volume: &str, label: &str) {
        add(
            &mut self.volumes,
            &mut self.omitted,
            label,
            format!("PersistentVolume {volume}"),
        );
    }
}

fn add(labels: &mut BTreeMap<String, Sample>, omitted: &mut Sample, label: &str, object: String) {
    if labels.len() < MOST_LABELS || labels.contains_key(label) {
        labels.entry(label.to_owned()).or_default().add(object);
    } else {
        omitted.add(object);
    }
}

/// The form of the zone labels that the driver would report.
enum LabelForm {
    Same(ZoneLabels),
    /// The controller and the nodes use different forms. Contains the kind of the workload without the flag.
    Mixed(&'static str),
}

fn label_form(spec: &CinderCSIDriverSpec) -> LabelForm {
    let has_flag = |kind| {
        let mut patches = spec.overrides.iter().filter(|patch| patch.target.kind == kind);
        patches.any(|patch| patch.patch.contains(SANITISED))
    };
    match (has_flag("Deployment"), has_flag("DaemonSet")) {
        (true, true) => LabelForm::Same(ZoneLabels::Sanitised),
        (false, false) => LabelForm::Same(ZoneLabels::Encoded),
        (true, false) => LabelForm::Mixed("DaemonSet"),
        (false, true) => LabelForm::Mixed("Deployment"),
    }
}

/// Returns the labels that differ, and the labels that cannot be compared.
pub(super) fn findings(spec: &CinderCSIDriverSpec, facts: &ZoneLabelFacts) -> Vec<AdoptionFinding> {
    let is_unused = spec.topology.mode == TopologyMode::Disabled || facts.is_enabled == Some(false);
    if is_unused || (facts.nodes.is_empty() && facts.volumes.is_empty()) {
        return Vec::new();
    }
    let Some(zones) = &facts.compute_zones else {
        let labelled = facts.nodes.values().chain(facts.volumes.values());
        return vec![finding(
            AdoptionFindingReason::NotChecked,
            "zone labels of nodes and PersistentVolumes",
            &labelled.fold(Sample::default(), Sample::with),
            "what changes here is not known: the zones of Nova have not been read, so that labels are not compared",
            "Create the CinderCSIDriver with spec.adoption.mode Refuse, and check again when condition CredentialsValid is True",
        )];
    };
    let labels = match label_form(spec) {
        LabelForm::Same(labels) => labels,
        LabelForm::Mixed(without) if zones.iter().any(|zone| has_two_forms(zone)) => {
            let labelled = facts.nodes.values().chain(facts.volumes.values());
            return vec![mixed_forms(without, &labelled.fold(Sample::default(), Sample::with))];
        }
        LabelForm::Mixed(_) => ZoneLabels::Encoded,
    };
    let other = match labels {
        ZoneLabels::Encoded => ZoneLabels::Sanitised,
        ZoneLabels::Sanitised => ZoneLabels::Encoded,
    };
    let reported: BTreeSet<String> = zones.iter().map(|zone| labels.label(zone)).collect();
    let existing: BTreeSet<&String> = facts.nodes.keys().chain(facts.volumes.keys()).collect();
    let differing = existing.into_iter().filter(|label| !reported.contains(*label));
    let found = differing.filter_map(|label| match zones.iter().find(|zone| other.label(zone) == *label) {
        Some(zone) => Some(difference(facts, label, zone, labels)),
        None => facts.nodes.get(label).map(|nodes| unexplained(label, nodes)),
    });
    let omitted = (!facts.omitted.is_empty()).then(|| omitted(&facts.omitted));
    found.chain(omitted).collect()
}

fn has_two_forms(zone: &str) -> bool {
    ZoneLabels::Encoded.label(zone) != ZoneLabels::Sanitised.label(zone)
}

fn mixed_forms(without: &str, labelled: &Sample) -> AdoptionFinding {
    finding(
        AdoptionFindingReason::ZoneLabel,
        format!("{SANITISED} without the {without}"),
        labelled,
        "the controller and the nodes of this driver would use different labels for one zone, so that new volumes would have labels that no \
         node has",
        format!("Add {SANITISED} to the {without} too, or remove it from spec.overrides"),
    )
}

fn omitted(objects: &Sample) -> AdoptionFinding {
    finding(
        AdoptionFindingReason::NotChecked,
        format!("further values of {TOPOLOGY_ZONE}"),
        objects,
        format!("what changes here is not known: at most {MOST_LABELS} different labels are compared"),
        "Compare the labels of these objects with the zones of their servers and volumes in OpenStack",
    )
}

fn difference(facts: &ZoneLabelFacts, label: &str, zone: &str, labels: ZoneLabels) -> AdoptionFinding {
    let objects = [&facts.nodes, &facts.volumes]
        .into_iter()
        .filter_map(|all| all.get(label));
    let objects = objects.fold(Sample::default(), Sample::with);
    let message = format!(
        "this driver would report {:?} for zone {zone:?}: the kubelet refuses to register a driver that reports another value than the node \
         has, and pods with these PersistentVolumes would find no node",
        labels.label(zone)
    );
    let remedy = match labels {
        ZoneLabels::Encoded => format!(
            "Let this driver write the same labels as the Go driver: add {SANITISED} to controller and nodes by spec.overrides \
             (docs/overrides.md, Flags: zone-labels)"
        ),
        ZoneLabels::Sanitised => format!("Remove {SANITISED} from spec.overrides"),
    };
    let subject = format!("{TOPOLOGY_ZONE}={label}");
    finding(AdoptionFindingReason::ZoneLabel, subject, &objects, message, remedy)
}

fn unexplained(label: &str, nodes: &Sample) -> AdoptionFinding {
    finding(
        AdoptionFindingReason::NotChecked,
        format!("{TOPOLOGY_ZONE}={label}"),
        nodes,
        "what changes here is not known: no zone of Nova has this name, and the kubelet refuses a driver that reports another value than the \
         node has",
        format!(
            "Compare the label with the zone of the server in Nova. If it differs: `kubectl label node NODE {TOPOLOGY_ZONE}-`"
        ),
    )
}

#[cfg(test)]
mod tests {
    use cinder_csi_crds::{Cloud, Override};
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn mk_facts(zones: &[&str], node: &str, volume: &str) -> ZoneLabelFacts {
        let mut facts = ZoneLabelFacts {
            compute_zones: Some(zones.iter().map(|&zone| zone.to_owned()).collect()),
            ..ZoneLabelFacts::default()
        };
        facts.add_node("n1", node);
        facts.add_volume("pv-1", volume);
        facts
    }

    fn mk_spec(has_flag: bool) -> CinderCSIDriverSpec {
        mk_flagged(if has_flag { &["Deployment", "DaemonSet"] } else { &[] })
    }

    /// A spec with the flag for these kinds.
    fn mk_flagged(kinds: &[&str]) -> CinderCSIDriverSpec {
        let mut spec = CinderCSIDriverSpec::new(vec![Cloud::from_secret("s")]);
        spec.overrides = kinds
            .iter()
            .map(|kind| {
                let patch = json!({"target": {"kind": kind, "name": "cinder-csi"}, "type": "json",
                    "patch": "- {op: add, path: /spec/template/spec/containers/0/args/-, value: --zone-labels=sanitised}\n"});
                serde_json::from_value::<Override>(patch).expect("an override")
            })
            .collect();
        spec
    }

    #[rstest]
    #[case::same("nova", "nova", false, None)]
    #[case::sanitised("zone one", "zone-one", false, Some("--zone-labels=sanitised to controller"))]
    #[case::sanitised_with_the_flag("zone one", "zone-one", true, None)]
    #[case::encoded("zone one", "x--zone_20one", false, None)]
    #[case::encoded_with_the_flag("zone one", "x--zone_20one", true, Some("Remove --zone-labels=sanitised"))]
    fn other_zone_labels_are_findings(
        #[case] zone: &str,
        #[case] label: &str,
        #[case] has_flag: bool,
        #[case] remedy: Option<&str>,
    ) {
        let found = findings(&mk_spec(has_flag), &mk_facts(&["other", zone], label, label));
        assert_eq!(found.len(), usize::from(remedy.is_some()), "{found:?}");
        if let Some(remedy) = remedy {
            assert_eq!((found[0].reason, found[0].count), (AdoptionFindingReason::ZoneLabel, 2));
            assert_eq!(found[0].names, ["Node n1", "PersistentVolume pv-1"]);
            assert!(found[0].remedy.contains(remedy), "{found:?}");
        }
    }

    #[rstest]
    #[case::nodes_only("DaemonSet", "zone one", Some("Deployment"))]
    #[case::controller_only("Deployment", "zone one", Some("DaemonSet"))]
    #[case::equal_forms("DaemonSet", "nova", None)]
    fn flag_of_one_workload_is_a_finding(#[case] kind: &str, #[case] zone: &str, #[case] without: Option<&str>) {
        let label = ZoneLabels::Sanitised.label(zone);
        let found = findings(&mk_flagged(&[kind]), &mk_facts(&[zone], &label, &label));
        assert_eq!(found.len(), usize::from(without.is_some()), "{found:?}");
        if let Some(without) = without {
            assert_eq!(found[0].reason, AdoptionFindingReason::ZoneLabel);
            assert!(found[0].remedy.contains(&format!("to the {without} too")), "{found:?}");
        }
    }

    #[test]
    fn omitted_labels_are_reported() {
        let mut facts = mk_facts(&["nova"], "nova", "nova");
        for number in 0..MOST_LABELS {
            facts.add_node(&format!("node-{number}"), &format!("zone-{number}"));
        }
        let found = findings(&mk_spec(false), &facts);
        let last = found.last().expect("a finding");
        assert_eq!(
            (last.reason, last.count),
            (AdoptionFindingReason::NotChecked, 1),
            "{last:?}"
        );
        assert!(last.message.contains("128"), "{last:?}");
    }

    #[test]
    fn labels_without_a_zone_are_not_checked() {
        let found = findings(&mk_spec(false), &mk_facts(&["nova"], "gone", "elsewhere"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].reason, AdoptionFindingReason::NotChecked);
        assert!(
            found[0]
                .remedy
                .contains("kubectl label node NODE topology.cinder.csi.openstack.org/zone-")
        );
    }

    #[test]
    fn unknown_zones_are_not_checked() {
        let facts = ZoneLabelFacts {
            compute_zones: None,
            ..mk_facts(&[], "zone-one", "zone-one")
        };
        let found = findings(&mk_spec(false), &facts);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            (found[0].reason, found[0].count),
            (AdoptionFindingReason::NotChecked, 2)
        );
    }

    #[rstest]
    #[case::by_the_spec(TopologyMode::Disabled, None)]
    #[case::by_the_clouds(TopologyMode::Auto, Some(false))]
    fn labels_are_not_compared_without_zones(#[case] mode: TopologyMode, #[case] is_enabled: Option<bool>) {
        let mut spec = mk_spec(false);
        spec.topology.mode = mode;
        let facts = ZoneLabelFacts {
            is_enabled,
            ..mk_facts(&["zone one"], "zone-one", "zone-one")
        };
        assert_eq!(findings(&spec, &facts), []);
    }
}
