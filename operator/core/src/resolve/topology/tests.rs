// SPDX-License-Identifier: Apache-2.0

use rstest::rstest;

use super::*;

fn at(minutes: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + minutes * 60).expect("a time")
}

fn mk_question<'a>(spec: &'a Spec, before: Option<&'a TopologyStatus>, minutes: i64) -> TopologyInput<'a> {
    TopologyInput {
        spec,
        is_consistent: Some(true),
        compute_zones: None,
        before,
        made: Some(at(0)),
        zoned_volumes: 0,
        is_confirmed: false,
        now: at(minutes),
    }
}

fn mk_spec(mode: TopologyMode) -> Spec {
    Spec {
        mode,
        ..Spec::default()
    }
}

/// Simulates checks over time with the given results, and returns whether zones are used after each.
fn looks(begin: Option<TopologyStatus>, steps: &[(i64, Option<bool>)]) -> Vec<bool> {
    let spec = mk_spec(TopologyMode::Auto);
    let mut status = begin;
    let mut results = Vec::new();
    for (minutes, is_consistent) in steps {
        let decided = topology(&TopologyInput {
            is_consistent: *is_consistent,
            ..mk_question(&spec, status.as_ref(), *minutes)
        });
        results.push(decided.enabled);
        status = Some(decided.status);
    }
    results
}

#[rstest]
#[case::the_first_look_counts_at_once(&[(0, Some(true))], &[true])]
#[case::and_when_zones_differ_too(&[(0, Some(false))], &[false])]
#[case::a_new_result_counts_at_the_third_time(
    &[(0, Some(true)), (10, Some(false)), (20, Some(false)), (30, Some(false))], &[true, true, true, false])]
#[case::looks_within_one_interval_are_one(
    &[(0, Some(true)), (10, Some(false)), (11, Some(false)), (12, Some(false)), (13, Some(false))],
    &[true, true, true, true, true])]
#[case::the_old_result_in_between_begins_the_count_anew(
    &[(0, Some(true)), (10, Some(false)), (20, Some(false)), (30, Some(true)), (40, Some(false)), (50, Some(false))],
    &[true; 6])]
#[case::a_failed_look_never_counts(
    &[(0, Some(true)), (10, Some(false)), (20, None), (30, None), (40, None), (50, Some(false)), (60, Some(false))],
    &[true, true, true, true, true, true, false])]
fn new_result_applies_after_three_equal_checks(#[case] steps: &[(i64, Option<bool>)], #[case] expected: &[bool]) {
    assert_eq!(looks(None, steps), expected);
}

#[test]
fn topology_status_is_stable() {
    let spec = mk_spec(TopologyMode::Auto);
    let first = topology(&mk_question(&spec, None, 0)).status;
    let later = topology(&mk_question(&spec, Some(&first), 500)).status;
    assert_eq!(first, later);
}

#[rstest]
#[case::a_moment(1, (true, false))]
#[case::too_long(5, (false, true))]
fn new_driver_waits_for_zones(#[case] minutes: i64, #[case] expected: (bool, bool)) {
    let spec = mk_spec(TopologyMode::Auto);
    let decided = topology(&TopologyInput {
        is_consistent: None,
        ..mk_question(&spec, None, minutes)
    });
    assert_eq!((decided.enabled, decided.is_decided), expected);
}

#[rstest]
#[case::in_use(true, 2, false, true)]
#[case::not_in_use(true, 0, false, false)]
#[case::confirmed(true, 2, true, false)]
#[case::never_on(false, 2, false, false)]
fn bound_volumes_prevent_disabling_zones(
    #[case] was_enabled: bool,
    #[case] zoned_volumes: usize,
    #[case] is_confirmed: bool,
    #[case] stays: bool,
) {
    let spec = mk_spec(TopologyMode::Disabled);
    let before = settled(was_enabled, "Enabled");
    let decided = topology(&TopologyInput {
        zoned_volumes,
        is_confirmed,
        ..mk_question(&spec, Some(&before), 10)
    });
    assert_eq!((decided.enabled, decided.refusal.is_some()), (stays, stays));
    // The next check has the same result.
    let again = topology(&TopologyInput {
        zoned_volumes,
        is_confirmed,
        ..mk_question(&spec, Some(&decided.status), 20)
    });
    assert_eq!(again.enabled, stays);
    assert_eq!(again.status, decided.status);
}

#[test]
fn bound_volumes_retain_zones_without_status() {
    let spec = mk_spec(TopologyMode::Auto);
    let decided = topology(&TopologyInput {
        is_consistent: Some(false),
        zoned_volumes: 1,
        ..mk_question(&spec, None, 10)
    });
    assert_eq!((decided.enabled, decided.refusal.is_some()), (true, true));
}

#[rstest]
#[case::equal(&["a", "b"], &["a", "b", "c"], &[], Some(true))]
#[case::one_is_missing(&["a", "b"], &["a"], &[], Some(false))]
#[case::it_has_another_name(&["a", "b"], &["a", "two"], &[("b", "two")], Some(true))]
#[case::and_that_is_wrong(&["a", "b"], &["a", "b"], &[("b", "two")], Some(false))]
#[case::nova_has_not_told(&[], &["a"], &[], None)]
#[case::cinder_has_not_told(&["a"], &[], &[], None)]
fn zones_are_compared_by_name_and_map(
    #[case] compute: &[&str],
    #[case] volume: &[&str],
    #[case] map: &[(&str, &str)],
    #[case] expected: Option<bool>,
) {
    let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let mut cloud = Cloud::from_secret("s");
    cloud.availability_zone_map = map
        .iter()
        .map(|(nova, cinder)| ((*nova).to_owned(), (*cinder).to_owned()))
        .collect();
    let facts = CloudFacts {
        compute_zones: own(compute),
        volume_zones: own(volume),
    };
    let facts = BTreeMap::from([(cloud.name.clone(), facts)]);
    let silent = BTreeSet::from([cloud.name.clone()]);
    assert_eq!(is_consistent(&[cloud.clone()], &facts, &BTreeSet::new()), expected);
    assert_eq!(
        is_consistent(&[cloud.clone()], &BTreeMap::new(), &BTreeSet::new()),
        None
    );
    assert_eq!(is_consistent(&[cloud], &facts, &silent), None);
}

#[rstest]
#[case("rack", true)]
#[case("topology.example.org/rack_1", true)]
#[case("no spaces", false)]
#[case("a/b/c", false)]
#[case("-x", false)]
#[case("", false)]
fn invalid_label_key_is_named(#[case] key: &str, #[case] is_good: bool) {
    let mut spec = mk_spec(TopologyMode::Enabled);
    spec.additional = BTreeMap::from([(key.to_owned(), "v".to_owned())]);
    assert_eq!(problem(&spec).is_none(), is_good);
}

#[test]
fn nova_zones_need_response_of_every_cloud() {
    let mk_cloud = |name: &str| Cloud {
        name: name.to_owned(),
        ..Cloud::from_secret("s")
    };
    let mk_facts = |zones: &[&str]| CloudFacts {
        compute_zones: zones.iter().map(|&zone| zone.to_owned()).collect(),
        volume_zones: Vec::new(),
    };
    let clouds = [mk_cloud("east"), mk_cloud("west")];
    let mut facts = BTreeMap::from([("east".to_owned(), mk_facts(&["a", "b"]))]);
    let zones = |facts: &BTreeMap<String, CloudFacts>, silent: &[&str]| {
        let silent = silent.iter().map(|&name| name.to_owned()).collect();
        compute_zones(&clouds, facts, &silent)
    };
    assert_eq!(zones(&facts, &[]), None);
    facts.insert("west".to_owned(), mk_facts(&[]));
    assert_eq!(zones(&facts, &[]), None);
    facts.insert("west".to_owned(), mk_facts(&["b", "c"]));
    let all = ["a", "b", "c"].map(str::to_owned);
    assert_eq!(zones(&facts, &[]), Some(all.into()));
    assert_eq!(zones(&facts, &["west"]), None);
}
