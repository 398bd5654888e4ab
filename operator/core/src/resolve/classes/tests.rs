// SPDX-License-Identifier: Apache-2.0

use cinder_csi_crds::DefaultStorageClass;
use rstest::rstest;

use super::*;

const NAME: &str = "cinder.csi.openstack.org";

fn mk_items(names: &[&str]) -> Spec {
    Spec {
        items: Some(names.iter().map(|name| StorageClassItem::named(*name)).collect()),
        ..Spec::default()
    }
}

fn mk_mark(name: &str, by: Option<&str>, made: &str) -> DefaultClassMark {
    DefaultClassMark {
        made: made.into(),
        name: name.into(),
        by: by.map(str::to_owned),
    }
}

fn decide(spec: &Spec, marked: &[DefaultClassMark]) -> Classes {
    classes(&ClassesInput {
        driver_name: NAME,
        usual_class: "cinder",
        spec,
        before: None,
        marked,
    })
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
fn second_default_class_is_never_marked(#[case] marked: Vec<DefaultClassMark>, #[case] expected: Option<&str>) {
    let classes = decide(&mk_items(&["a", "b"]), &marked);
    assert_eq!(classes.default_class(), expected);
    assert_eq!(classes.passed_over.is_some(), expected.is_none());
}

#[rstest]
#[case::the_first(DefaultStorageClass::default(), Some("a"))]
#[case::by_name(DefaultStorageClass { name: Some("b".into()), ..Default::default() }, Some("b"))]
#[case::one_that_is_not_there(DefaultStorageClass { name: Some("c".into()), ..Default::default() }, None)]
#[case::never(DefaultStorageClass { policy: DefaultClassPolicy::Never, name: None }, None)]
fn spec_selects_default_class(#[case] default: DefaultStorageClass, #[case] expected: Option<&str>) {
    let mut spec = mk_items(&["a", "b"]);
    spec.default = default;
    assert_eq!(decide(&spec, &[]).default_class(), expected);
}

#[test]
fn marked_default_item_precedes_first_item() {
    let mut spec = mk_items(&["a", "b"]);
    for item in spec.items.iter_mut().flatten() {
        item.is_default = item.name == "b";
    }
    let classes = decide(&spec, &[]);
    assert_eq!(classes.default_class(), Some("b"));
    assert!(!classes.items[1].insists);
}

#[test]
fn unmanaged_class_is_created_only_once() {
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
            usual_class: "cinder",
            spec: &spec,
            before: Some(&before),
            marked: &[],
        });
        let was_made: Vec<bool> = decided.items.iter().map(|class| class.was_made).collect();
        assert_eq!(was_made, expected);
    }
}

#[test]
fn removed_state_has_no_classes() {
    let mut spec = mk_items(&["a"]);
    spec.state = ClassesState::Removed;
    assert!(decide(&spec, &[]).items.is_empty());
}
