// SPDX-License-Identifier: Apache-2.0

use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn segment(zone: &str) -> Topology {
    in_region(zone, None)
}

fn in_region(zone: &str, region: Option<&str>) -> Topology {
    let zone = (TOPOLOGY_ZONE.to_owned(), zone.to_owned());
    let region = region.map(|region| (REGION.to_owned(), region.to_owned()));
    Topology {
        segments: region.into_iter().chain([zone]).collect(),
    }
}

fn requirement(preferred: &[&str], requisite: &[&str]) -> TopologyRequirement {
    let topologies = |zones: &[&str]| zones.iter().map(|zone| segment(zone)).collect();
    TopologyRequirement {
        preferred: topologies(preferred),
        requisite: topologies(requisite),
    }
}

fn names(map: &[(&str, &str)]) -> ZoneNames {
    let zone_map = map.iter().map(|&(nova, cinder)| (nova.to_owned(), cinder.to_owned()));
    let options = TopologyOptions {
        zone_map: zone_map.collect(),
        ..TopologyOptions::default()
    };
    ZoneNames::new(&options, ZoneLabels::Encoded)
}

fn read(preferred: &[&str], requisite: &[&str]) -> Zones {
    Zones::from_requirement(Some(&requirement(preferred, requisite)), &names(&[]))
}

#[rstest]
#[case(&["b", "a"], &["a", "b"], Some("b"))]
#[case(&[], &["a", "b"], Some("a"))]
#[case(&["b"], &[], Some("b"))]
#[case(&[], &[], None)]
fn preferred_zone_precedes_requisite_zone(
    #[case] preferred: &[&str],
    #[case] requisite: &[&str],
    #[case] first: Option<&str>,
) {
    assert_eq!(read(preferred, requisite).first(), first);
}

#[test]
fn other_segments_do_not_affect_zones() {
    let other = Topology {
        segments: BTreeMap::from([("example.com/rack".into(), "r".into())]),
    };
    let requirement = TopologyRequirement {
        requisite: vec![other.clone()],
        preferred: vec![other],
    };
    let zones = Zones::from_requirement(Some(&requirement), &names(&[]));
    assert_eq!((zones.first(), zones.required().len()), (None, 0));
}

#[rstest]
#[case(&["a", "b"], "b", true)]
#[case(&["a", "b"], "c", false)]
#[case(&["x--zone_20one"], "zone one", true)]
#[case(&["zone-one"], "zone one", false)]
#[case(&[], "c", true)]
fn volume_must_be_in_requisite_zone(#[case] requisite: &[&str], #[case] zone: &str, #[case] allowed: bool) {
    assert_eq!(read(&[], requisite).allows(zone), allowed);
}

// kubernetes/cloud-provider-openstack#1379, #2634
#[rstest]
#[case("nova", "nova")]
#[case("Zone_1.a", "Zone_1.a")]
#[case("zone one", "x--zone_20one")]
#[case("-zone:1-", "x---zone_3a1_2d")]
#[case("Größe", "x--Gr_c3_b6_c3_9fe")]
#[case("x--a", "x--x--a")]
#[case(&"z".repeat(63), &"z".repeat(63))]
fn zone_names_round_trip_as_labels_issue_1379_issue_2634(#[case] zone: &str, #[case] label: &str) {
    assert_eq!(label_value(zone), label);
    assert!(is_label_value(label), "{label}");
    assert_eq!(zone_of_label(label).as_deref(), Some(zone));
    let zones = read(&[], &[label]);
    assert_eq!(zones.first(), Some(zone), "Cinder is asked for the real name");
    assert_eq!(zones.accessible_from(Some(zone)), [segment(label)]);
}

#[rstest]
#[case(&"z".repeat(64))]
#[case(&"ü".repeat(30))]
fn too_long_zone_name_has_no_label(#[case] zone: &str) {
    assert_eq!(label_value(zone), "");
    assert_eq!(names(&[]).topologies_of_zone(Some(zone)), []);
}

#[rstest]
#[case("x--_")]
#[case("x--a_2")]
#[case("x--a_ZZ")]
#[case("x--nova")]
#[case("x--_ff")]
fn rejects_malformed_zone_encoding(#[case] label: &str) {
    assert_eq!(zone_of_label(label), None);
    assert_eq!(names(&[]).storage_zone(label), label);
}

#[rstest]
#[case("zone one", "zone-one")]
#[case("-zone:1-", "zone-1")]
#[case("Größe", "Gr--e")]
#[case(&"z".repeat(70), &"z".repeat(63))]
#[case("::", "")]
fn sanitised_labels_match_go_driver(#[case] zone: &str, #[case] label: &str) {
    assert_eq!(ZoneLabels::Sanitised.label(zone), label);
    let names = ZoneNames::new(&TopologyOptions::default(), ZoneLabels::Sanitised);
    let zones = Zones::from_requirement(Some(&requirement(&[], &["zone-one"])), &names);
    assert!(zones.allows("zone one") && !zones.allows("zone two"));
}

// kubernetes/cloud-provider-openstack#1735, #1300
#[test]
fn zone_map_translates_nova_zones_issue_1735_issue_1300() {
    let names = names(&[("nova a", "ceph"), ("nova-b", "ceph"), ("c", "d")]);
    let label = label_value("nova a");
    let zones = Zones::from_requirement(Some(&requirement(&[&label], &[&label, "nova-b", "e"])), &names);
    assert_eq!(zones.first(), Some("ceph"));
    assert_eq!(zones.required(), ["ceph", "e"]);
    assert!(zones.allows("ceph") && zones.allows("e") && !zones.allows("nova-b"));
    assert_eq!(
        zones.accessible_from(Some("ceph")),
        [segment(&label), segment("nova-b")]
    );
    assert_eq!(zones.accessible_from(Some("e")), [segment("e")]);
}

#[test]
fn ignored_zone_returns_requested_topology() {
    let asked = TopologyRequirement {
        requisite: vec![in_region("a", Some("r")), in_region("b", Some("r"))],
        preferred: vec![in_region("b", Some("r"))],
    };
    let zones = Zones::from_requirement(Some(&asked), &names(&[]));
    assert_eq!(zones.requested_topology(), asked.preferred);
    assert_eq!(read(&[], &["a"]).requested_topology(), [segment("a")]);
}

#[test]
fn volume_topology_includes_common_region() {
    let of = |regions: [Option<&str>; 2]| {
        let asked = TopologyRequirement {
            requisite: regions.map(|region| in_region("a", region)).into(),
            preferred: Vec::new(),
        };
        Zones::from_requirement(Some(&asked), &names(&[])).accessible_from(Some("a"))
    };
    assert_eq!(of([Some("r"), Some("r")]), [in_region("a", Some("r"))]);
    assert_eq!(of([Some("r"), Some("s")]), [segment("a")]);
    assert_eq!(of([Some("r"), None]), [segment("a")]);
}

#[test]
fn configured_segments_apply_to_every_volume() {
    let options = TopologyOptions {
        segments: BTreeMap::from([("example.com/site".to_owned(), "west".to_owned())]),
        ..TopologyOptions::default()
    };
    let names = ZoneNames::new(&options, ZoneLabels::Encoded);
    assert_eq!(
        names.topologies_of_zone(Some("a"))[0].segments["example.com/site"],
        "west"
    );
    assert_eq!(names.topologies_of_zone(None)[0].segments, options.segments);
}

#[test]
fn cloud_is_identified_by_segments_or_region() {
    let west = CloudSegments::new(&TopologyOptions::default(), Some("west"));
    assert!(west.matches(&in_region("a", Some("west"))));
    assert!(!west.matches(&in_region("a", Some("east"))) && west.excludes(&in_region("a", Some("east"))));
    assert!(!west.matches(&segment("a")) && !west.excludes(&segment("a")));
    let nothing = CloudSegments::new(&TopologyOptions::default(), None);
    assert!(!nothing.matches(&in_region("a", Some("west"))) && !nothing.excludes(&in_region("a", Some("west"))));
    let asked = TopologyRequirement {
        requisite: vec![in_region("a", Some("east")), in_region("b", Some("west"))],
        preferred: vec![in_region("a", Some("east"))],
    };
    let ours = west.restrict(&asked);
    assert_eq!(
        (ours.requisite, ours.preferred),
        (vec![in_region("b", Some("west"))], vec![])
    );
}

proptest! {
    #[test]
    fn encoded_zone_labels_round_trip(zone in "\\PC{1,24}") {
        let label = label_value(&zone);
        if label.is_empty() {
            prop_assert!(zone.len() * 3 + CODED.len() > LABEL_LIMIT);
        } else {
            prop_assert!(is_label_value(&label), "{}", label);
            prop_assert_eq!(zone_of_label(&label), Some(zone));
        }
    }

    #[test]
    fn any_label_decodes_without_panic(label in "(x--)?[-_.0-9a-fz]{0,20}") {
        drop(names(&[]).storage_zone(&label));
    }

    #[test]
    fn zone_labels_are_unique(one in "[a-z ü_.-]{1,8}", other in "[a-z ü_.-]{1,8}") {
        prop_assume!(one != other);
        prop_assert!(label_value(&one) != label_value(&other));
    }
}
