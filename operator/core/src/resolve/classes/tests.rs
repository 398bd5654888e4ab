// SPDX-License-Identifier: Apache-2.0

use cinder_csi_crds::DefaultStorageClass;
use rstest::rstest;

use super::*;

const NAME: &str = "cinder.csi.openstack.org";

fn at(hours: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + hours * 3600).expect("a time")
}

fn mk_type(name: &str) -> VolumeTypeFact {
    VolumeTypeFact {
        name: name.into(),
        id: format!("id of {name}"),
        ..VolumeTypeFact::default()
    }
}

fn mk_items(names: &[&str]) -> Spec {
    Spec {
        items: Some(names.iter().map(|name| StorageClassItem::named(*name)).collect()),
        ..Spec::default()
    }
}

fn mk_types_wanted(change: impl FnOnce(&mut FromVolumeTypes)) -> Spec {
    let mut spec = mk_items(&[]);
    spec.from_volume_types.enabled = true;
    change(&mut spec.from_volume_types);
    spec
}

fn mk_mark(name: &str, by: Option<&str>, made: &str) -> Marked {
    Marked {
        made: made.into(),
        name: name.into(),
        by: by.map(str::to_owned),
    }
}

fn decide(spec: &Spec, facts: &ClassFacts, types: Option<&[VolumeTypeFact]>, now: Timestamp) -> Classes {
    classes(&ClassesInput {
        driver_name: NAME,
        prefix: "cinder-",
        usual_class: "cinder",
        spec,
        before: None,
        facts,
        volume_types: types,
        now,
    })
    .expect("a decision")
}

fn names(classes: &Classes) -> Vec<&str> {
    classes.items.iter().map(|class| class.item.name.as_str()).collect()
}

#[rstest]
#[case::there_is_none(vec![], Some("a"))]
#[case::it_is_ours(vec![mk_mark("a", Some(NAME), "2")], Some("a"))]
#[case::another_was_ours(vec![mk_mark("b", Some(NAME), "2")], Some("a"))]
#[case::somebody_marked_ours_himself(vec![mk_mark("a", None, "2")], Some("a"))]
#[case::somebody_marked_another_of_ours(vec![mk_mark("b", None, "9")], None)]
#[case::somebody_marked_his_own_later(vec![mk_mark("a", Some(NAME), "2"), mk_mark("his", None, "9")], None)]
#[case::another_driver_has_one(vec![mk_mark("z", Some("other"), "2")], None)]
#[case::both_marked_theirs_and_ours_is_older(
    vec![mk_mark("a", Some(NAME), "1"), mk_mark("z", Some("other"), "2")], Some("a"))]
#[case::both_marked_theirs_and_ours_is_younger(
    vec![mk_mark("a", Some(NAME), "2"), mk_mark("z", Some("other"), "1")], None)]
fn there_is_never_a_second_default_class(#[case] marked: Vec<Marked>, #[case] expected: Option<&str>) {
    let facts = ClassFacts {
        marked,
        ..ClassFacts::default()
    };
    let classes = decide(&mk_items(&["a", "b"]), &facts, None, at(0));
    assert_eq!(classes.default_class(), expected);
    assert_eq!(classes.passed_over.is_some(), expected.is_none());
}

#[rstest]
#[case::the_first(DefaultStorageClass::default(), Some("a"))]
#[case::by_name(DefaultStorageClass { name: Some("b".into()), ..Default::default() }, Some("b"))]
#[case::one_that_is_not_there(DefaultStorageClass { name: Some("c".into()), ..Default::default() }, None)]
#[case::never(DefaultStorageClass { policy: DefaultClassPolicy::Never, name: None }, None)]
fn the_default_class_is_chosen_by_the_spec(#[case] default: DefaultStorageClass, #[case] expected: Option<&str>) {
    let mut spec = mk_items(&["a", "b"]);
    spec.default = default;
    assert_eq!(
        decide(&spec, &ClassFacts::default(), None, at(0)).default_class(),
        expected
    );
}

#[test]
fn an_item_that_says_it_is_the_default_goes_before_the_first_one() {
    let mut spec = mk_items(&["a", "b"]);
    for item in spec.items.iter_mut().flatten() {
        item.is_default = item.name == "b";
    }
    let classes = decide(&spec, &ClassFacts::default(), None, at(0));
    assert_eq!(classes.default_class(), Some("b"));
    assert!(!classes.items[1].insists);
}

#[test]
fn a_class_that_was_made_once_is_not_made_again() {
    let mut spec = mk_items(&["a", "b"]);
    let before = StorageClassesStatus {
        created_once: vec!["a".into()],
        ..StorageClassesStatus::default()
    };
    for (state, expected) in [
        (ClassesState::Unmanaged, [true, false]),
        (ClassesState::Managed, [false; 2]),
    ] {
        spec.state = state;
        let decided = classes(&ClassesInput {
            driver_name: NAME,
            prefix: "cinder-",
            usual_class: "cinder",
            spec: &spec,
            before: Some(&before),
            facts: &ClassFacts::default(),
            volume_types: None,
            now: at(0),
        });
        let was_made: Vec<bool> = decided
            .expect("a decision")
            .items
            .iter()
            .map(|class| class.was_made)
            .collect();
        assert_eq!(was_made, expected);
    }
}

#[test]
fn removed_means_no_class_at_all() {
    let mut spec = mk_types_wanted(|_| {});
    spec.state = ClassesState::Removed;
    let types = [mk_type("ssd")];
    assert!(
        decide(&spec, &ClassFacts::default(), Some(&types), at(0))
            .items
            .is_empty()
    );
}

#[test]
fn every_volume_type_that_is_wanted_gets_a_class_of_a_name_that_kubernetes_takes() {
    let spec = mk_types_wanted(|wish| wish.exclude = Some("__.*".into()));
    let types = ["Fast NVMe", "__DEFAULT__", "fast.nvme", "ssd", "überschnell"].map(mk_type);

    let classes = decide(&spec, &ClassFacts::default(), Some(&types), at(0));

    let expected = [
        "cinder-fast-nvme",
        "cinder-fast-nvme-",
        "cinder-ssd",
        "cinder-berschnell",
    ];
    for (name, expected) in names(&classes).iter().zip(expected) {
        assert!(name.starts_with(expected), "{name} for {expected}");
    }
    assert_eq!(classes.items.len(), 4);
    assert_eq!(classes.items[0].item.volume_type.as_deref(), Some("Fast NVMe"));
    let mut unique = names(&classes);
    unique.dedup();
    assert_eq!(unique.len(), 4);
}

#[rstest]
#[case::all(None, None, &["cinder-hdd", "cinder-ssd", "cinder-ssd-2"])]
#[case::included(Some("ssd"), None, &["cinder-ssd"])]
#[case::excluded(Some("ssd.*"), Some(".*-2"), &["cinder-ssd"])]
fn expressions_match_whole_names(
    #[case] include: Option<&str>,
    #[case] exclude: Option<&str>,
    #[case] expected: &[&str],
) {
    let spec = mk_types_wanted(|wish| {
        wish.include = include.map(str::to_owned);
        wish.exclude = exclude.map(str::to_owned);
    });
    let types = ["hdd", "ssd", "ssd-2"].map(mk_type);
    assert_eq!(
        names(&decide(&spec, &ClassFacts::default(), Some(&types), at(0))),
        expected
    );
}

#[test]
fn the_class_of_a_type_that_is_gone_stays_for_a_day() {
    let spec = mk_types_wanted(|_| {});
    let types = [mk_type("hdd")];
    let gone = |missing_since| ClassFacts {
        of_types: BTreeMap::from([(
            "cinder-ssd".to_owned(),
            OfType {
                volume_type: "ssd".into(),
                missing_since,
            },
        )]),
        ..ClassFacts::default()
    };
    let since = |classes: &Classes| {
        let class = classes.items.iter().find(|class| class.item.name == "cinder-ssd");
        class.map(|class| class.of_type.as_ref().and_then(|of_type| of_type.missing_since))
    };

    let first = decide(&spec, &gone(None), Some(&types), at(100));
    assert_eq!(since(&first), Some(Some(at(100))));
    let later = decide(&spec, &gone(Some(at(100))), Some(&types), at(123));
    assert_eq!(since(&later), Some(Some(at(100))));
    let at_last = decide(&spec, &gone(Some(at(100))), Some(&types), at(124));
    assert_eq!(since(&at_last), None);
    // The type came back in between.
    let back = [mk_type("hdd"), mk_type("ssd")];
    assert_eq!(
        since(&decide(&spec, &gone(Some(at(100))), Some(&back), at(110))),
        Some(None)
    );
}

#[test]
fn a_class_keeps_its_type_when_types_of_a_like_name_come_and_go() {
    let spec = mk_types_wanted(|_| {});
    let made_of = |facts: &ClassFacts, types: &[&str]| -> BTreeMap<String, OfType> {
        let types: Vec<VolumeTypeFact> = types.iter().map(|name| mk_type(name)).collect();
        let classes = decide(&spec, facts, Some(&types), at(0)).items.into_iter();
        classes
            .filter_map(|class| Some((class.item.name, class.of_type?)))
            .collect()
    };
    let facts = |of_types| ClassFacts {
        of_types,
        ..ClassFacts::default()
    };
    let first = made_of(&ClassFacts::default(), &["ssd"]);
    assert_eq!(first["cinder-ssd"].volume_type, "ssd");
    let both = made_of(&facts(first), &["SSD", "ssd"]);
    assert_eq!((both["cinder-ssd"].volume_type.as_str(), both.len()), ("ssd", 2));
    let left = made_of(&facts(both.clone()), &["SSD"]);
    let types = |classes: &BTreeMap<String, OfType>| -> Vec<(String, String)> {
        let all = classes.iter();
        all.map(|(name, of_type)| (name.clone(), of_type.volume_type.clone()))
            .collect()
    };
    assert_eq!(types(&left), types(&both));
    // When the other one is forgotten, it still has the name under which claims know it.
    let mut forgotten = left;
    forgotten.remove("cinder-ssd");
    assert_eq!(types(&made_of(&facts(forgotten.clone()), &["SSD"])), types(&forgotten));
}

#[test]
fn where_there_are_too_many_types_those_with_a_class_keep_it() {
    let spec = mk_types_wanted(|_| {});
    let mut types: Vec<VolumeTypeFact> = (0..MOST_TYPES).map(|at| mk_type(&format!("t{at:03}"))).collect();
    let full = decide(&spec, &ClassFacts::default(), Some(&types), at(0));
    assert_eq!(full.left_out, [""; 0]);
    let facts = ClassFacts {
        of_types: full
            .items
            .iter()
            .filter_map(|class| Some((class.item.name.clone(), class.of_type.clone()?)))
            .collect(),
        ..ClassFacts::default()
    };
    types.insert(0, mk_type("a-new-one"));
    let crowded = decide(&spec, &facts, Some(&types), at(1));
    assert_eq!(names(&crowded), names(&full));
    assert_eq!(crowded.left_out, ["a-new-one"]);
}

#[rstest]
#[case::nobody_has_looked(None)]
#[case::the_list_was_empty(Some(vec![]))]
fn a_list_that_tells_nothing_removes_no_class(#[case] types: Option<Vec<VolumeTypeFact>>) {
    let spec = mk_types_wanted(|_| {});
    let facts = ClassFacts {
        of_types: BTreeMap::from([(
            "cinder-ssd".to_owned(),
            OfType {
                volume_type: "ssd".into(),
                missing_since: Some(at(0)),
            },
        )]),
        ..ClassFacts::default()
    };
    let classes = decide(&spec, &facts, types.as_deref(), at(1000));
    assert_eq!(names(&classes), ["cinder-ssd"]);
}

#[test]
fn an_expression_that_is_none_is_named() {
    let spec = mk_types_wanted(|wish| wish.include = Some("ssd(".into()));
    let problem = classes(&ClassesInput {
        driver_name: NAME,
        prefix: "cinder-",
        usual_class: "cinder",
        spec: &spec,
        before: None,
        facts: &ClassFacts::default(),
        volume_types: None,
        now: at(0),
    })
    .expect_err("a problem");
    assert!(
        problem.message.contains("fromVolumeTypes.include"),
        "{}",
        problem.message
    );
}
