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
    Zones::of(Some(&requirement(preferred, requisite)), &names(&[]))
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
    assert_eq!(read(preferred, requisite).first(), first);
}

#[test]
fn segments_of_other_keys_say_nothing_about_zones() {
    let other = Topology {
        segments: BTreeMap::from([("example.com/rack".into(), "r".into())]),
    };
    let requirement = TopologyRequirement {
        requisite: vec![other.clone()],
        preferred: vec![other],
    };
    let zones = Zones::of(Some(&requirement), &names(&[]));
    assert_eq!((zones.first(), zones.required().len()), (None, 0));
}

#[rstest]
#[case(&["a", "b"], "b", true)]
#[case(&["a", "b"], "c", false)]
#[case(&["x--zone_20one"], "zone one", true)]
#[case(&["zone-one"], "zone one", false)]
#[case(&[], "c", true)]
fn a_volume_must_be_in_a_requisite_zone(#[case] requisite: &[&str], #[case] zone: &str, #[case] allowed: bool) {
    assert_eq!(read(&[], requisite).allow(zone), allowed);
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
fn zone_names_with_spaces_or_unicode_become_labels_and_come_back_issue_1379_issue_2634(
    #[case] zone: &str,
    #[case] label: &str,
) {
    assert_eq!(label_value(zone), label);
    assert!(is_label_value(label), "{label}");
    assert_eq!(zone_of_label(label).as_deref(), Some(zone));
    let zones = read(&[], &[label]);
    assert_eq!(zones.first(), Some(zone), "Cinder is asked for the real name");
    assert_eq!(zones.of_volume(Some(zone)), [segment(label)]);
}

#[rstest]
#[case(&"z".repeat(64))]
#[case(&"ü".repeat(30))]
fn a_zone_that_no_label_can_hold_has_none(#[case] zone: &str) {
    assert_eq!(label_value(zone), "");
    assert_eq!(names(&[]).of_zone(Some(zone)), []);
}

#[rstest]
#[case("x--_")]
#[case("x--a_2")]
#[case("x--a_ZZ")]
#[case("x--nova")]
#[case("x--_ff")]
fn what_nobody_writes_is_no_coded_zone(#[case] label: &str) {
    assert_eq!(zone_of_label(label), None);
    assert_eq!(names(&[]).storage_zone(label), label);
}

#[rstest]
#[case("zone one", "zone-one")]
#[case("-zone:1-", "zone-1")]
#[case("Größe", "Gr--e")]
#[case(&"z".repeat(70), &"z".repeat(63))]
#[case("::", "")]
fn labels_of_the_go_driver_are_kept_on_request(#[case] zone: &str, #[case] label: &str) {
    assert_eq!(ZoneLabels::Sanitised.label(zone), label);
    let names = ZoneNames::new(&TopologyOptions::default(), ZoneLabels::Sanitised);
    let zones = Zones::of(Some(&requirement(&[], &["zone-one"])), &names);
    assert!(zones.allow("zone one") && !zones.allow("zone two"));
}

// kubernetes/cloud-provider-openstack#1735, #1300
#[test]
fn zones_of_nova_and_cinder_with_different_names_are_mapped_issue_1735_issue_1300() {
    let names = names(&[("nova a", "ceph"), ("nova-b", "ceph"), ("c", "d")]);
    let label = label_value("nova a");
    let zones = Zones::of(Some(&requirement(&[&label], &[&label, "nova-b", "e"])), &names);
    assert_eq!(zones.first(), Some("ceph"));
    assert_eq!(zones.required(), ["ceph", "e"]);
    assert!(zones.allow("ceph") && zones.allow("e") && !zones.allow("nova-b"));
    assert_eq!(zones.of_volume(Some("ceph")), [segment(&label), segment("nova-b")]);
    assert_eq!(zones.of_volume(Some("e")), [segment("e")]);
}

#[test]
fn a_zone_of_no_interest_is_answered_with_all_that_was_asked_for() {
    let asked = TopologyRequirement {
        requisite: vec![in_region("a", Some("r")), in_region("b", Some("r"))],
        preferred: vec![in_region("b", Some("r"))],
    };
    let zones = Zones::of(Some(&asked), &names(&[]));
    assert_eq!(zones.as_asked(), asked.preferred);
    assert_eq!(read(&[], &["a"]).as_asked(), [segment("a")]);
}

#[test]
fn a_volume_is_told_with_the_region_that_all_nodes_asked_for_have() {
    let of = |regions: [Option<&str>; 2]| {
        let asked = TopologyRequirement {
            requisite: regions.map(|region| in_region("a", region)).into(),
            preferred: Vec::new(),
        };
        Zones::of(Some(&asked), &names(&[])).of_volume(Some("a"))
    };
    assert_eq!(of([Some("r"), Some("r")]), [in_region("a", Some("r"))]);
    assert_eq!(of([Some("r"), Some("s")]), [segment("a")]);
    assert_eq!(of([Some("r"), None]), [segment("a")]);
}

#[test]
fn segments_of_the_configuration_go_with_every_volume_of_the_cloud() {
    let options = TopologyOptions {
        segments: BTreeMap::from([("example.com/site".to_owned(), "west".to_owned())]),
        ..TopologyOptions::default()
    };
    let names = ZoneNames::new(&options, ZoneLabels::Encoded);
    assert_eq!(names.of_zone(Some("a"))[0].segments["example.com/site"], "west");
    assert_eq!(names.of_zone(None)[0].segments, options.segments);
}

#[test]
fn a_cloud_is_known_by_its_segments_or_else_by_its_region() {
    let west = Marks::new(&TopologyOptions::default(), Some("west"));
    assert!(west.meet(&in_region("a", Some("west"))));
    assert!(!west.meet(&in_region("a", Some("east"))) && west.exclude(&in_region("a", Some("east"))));
    assert!(!west.meet(&segment("a")) && !west.exclude(&segment("a")));
    let nothing = Marks::new(&TopologyOptions::default(), None);
    assert!(!nothing.meet(&in_region("a", Some("west"))) && !nothing.exclude(&in_region("a", Some("west"))));
    let asked = TopologyRequirement {
        requisite: vec![in_region("a", Some("east")), in_region("b", Some("west"))],
        preferred: vec![in_region("a", Some("east"))],
    };
    let ours = west.only(&asked);
    assert_eq!(
        (ours.requisite, ours.preferred),
        (vec![in_region("b", Some("west"))], vec![])
    );
}

proptest! {
    #[test]
    fn every_zone_that_has_a_label_comes_back_from_it(zone in "\\PC{1,24}") {
        let label = label_value(&zone);
        if label.is_empty() {
            prop_assert!(zone.len() * 3 + CODED.len() > LABEL_LIMIT);
        } else {
            prop_assert!(is_label_value(&label), "{}", label);
            prop_assert_eq!(zone_of_label(&label), Some(zone));
        }
    }

    #[test]
    fn no_label_makes_the_reader_panic(label in "(x--)?[-_.0-9a-fz]{0,20}") {
        drop(names(&[]).storage_zone(&label));
    }

    #[test]
    fn two_zones_never_have_one_label(one in "[a-z ü_.-]{1,8}", other in "[a-z ü_.-]{1,8}") {
        prop_assume!(one != other);
        prop_assert!(label_value(&one) != label_value(&other));
    }
}
