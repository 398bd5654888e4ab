// SPDX-License-Identifier: Apache-2.0

use rstest::rstest;
use serde_json::json;

use super::*;
use crate::{cluster::KubernetesVersion, manifests::Stage, plan::RetainedMetadata};

/// Creates a release from its version, and the minor version of Kubernetes after an `@`.
fn mk_release(text: &str) -> Release {
    let (version, minor) = text.split_once('@').unwrap_or((text, "36"));
    let kubernetes = KubernetesVersion::parse("1", minor);
    Release {
        version: version.to_owned(),
        inputs: kubernetes.map(|_| TemplateInputs {
            kubernetes,
            ..TemplateInputs::default()
        }),
    }
}

/// Creates a gate between releases. Every workload of another release is due.
fn mk_gate(controller: &str, node: &str, target: &str) -> Gate {
    let release = |text: &str| (!text.is_empty()).then(|| mk_release(text));
    let mut gate = Gate {
        controller: release(controller),
        node: release(node),
        target: mk_release(target),
        ..Gate::default()
    };
    let is_due = |kind: &&str| gate.release(kind).is_some_and(|release| !release.is_same(&gate.target));
    gate.due = WORKLOADS.into_iter().filter(is_due).collect();
    gate
}

fn token(release: &str) -> String {
    mk_release(release).inputs.expect("inputs").token()
}

fn manual(approved: Option<&str>) -> Update {
    Update {
        policy: UpdatePolicy::Manual,
        approved_version: approved.map(str::to_owned),
        ..Update::default()
    }
}

#[rstest]
#[case::nothing_is_installed(mk_gate("", "", "0.2.0"), manual(None), None)]
#[case::automatic(mk_gate("0.1.0", "0.1.0", "0.2.0"), Update::default(), None)]
#[case::the_same_version(mk_gate("0.2.0", "0.2.0", "0.2.0"), manual(None), None)]
#[case::not_approved(mk_gate("0.1.0", "0.1.0", "0.2.0"), manual(None), Some(Hold::Approval))]
#[case::another_one_approved(mk_gate("0.1.0", "0.1.0", "0.2.0"), manual(Some("0.3.0")), Some(Hold::Approval))]
#[case::approved(mk_gate("0.1.0", "0.1.0", "0.2.0"), manual(Some("v0.2.0")), None)]
#[case::approved_skip(mk_gate("0.1.0", "0.1.0", "0.3.0"), manual(Some("0.3.0")), Some(Hold::Skip))]
#[case::begun(mk_gate("0.2.0", "0.1.0", "0.2.0"), manual(None), None)]
#[case::a_later_one_while_one_is_under_way(mk_gate("0.2.1", "0.2.0", "0.3.0"), manual(None), Some(Hold::Approval))]
#[case::back(mk_gate("0.10.0", "0.10.0", "0.9.0"), Update::default(), Some(Hold::Downgrade))]
#[case::forth_though_the_text_sorts_before(mk_gate("0.9.0", "0.9.0", "0.10.0"), Update::default(), None)]
#[case::from_a_candidate_to_the_release(mk_gate("0.2.0-rc.1", "0.2.0-rc.1", "0.2.0"), Update::default(), None)]
#[case::from_the_release_to_a_candidate(
    mk_gate("0.2.0", "0.2.0", "0.2.0-rc.1"),
    Update::default(),
    Some(Hold::Downgrade)
)]
#[case::back_when_allowed_and_approved(
    mk_gate("0.2.0", "0.2.0", "0.1.0"), Update { allow_downgrade: true, ..manual(Some("0.1.0")) }, None)]
#[case::back_when_allowed_and_not_approved(
    mk_gate("0.2.0", "0.2.0", "0.1.0"), Update { allow_downgrade: true, ..manual(None) }, Some(Hold::Approval))]
#[case::same_version(
    mk_gate("0.2.0@35", "0.2.0@35", "0.2.0@36"),
    manual(Some("0.2.0")),
    Some(Hold::Approval)
)]
#[case::content_approved(mk_gate("0.2.0@35", "0.2.0@35", "0.2.0@36"), manual(Some(&format!("0.2.0+{}", token("0.2.0@36")))), None)]
#[case::other_content_approved(
    mk_gate("0.2.0@35", "0.2.0@35", "0.2.0@36"), manual(Some(&format!("0.2.0+{}", token("0.2.0@34")))), Some(Hold::Approval))]
#[case::content_automatic(mk_gate("0.2.0@35", "0.2.0@35", "0.2.0@36"), Update::default(), None)]
#[case::content_begun(mk_gate("0.2.0@36", "0.2.0@35", "0.2.0@36"), manual(None), None)]
#[case::other_content_of_approved_version(
    mk_gate("0.2.0@35", "0.1.0", "0.2.0@36"),
    manual(Some("0.2.0")),
    Some(Hold::Approval)
)]
#[case::version_by_content(mk_gate("0.1.0", "0.1.0", "0.2.0"), manual(Some(&format!("v0.2.0+{}", token("0.2.0")))), None)]
#[case::lost_record(mk_gate("0.2.0@?", "0.2.0@?", "0.2.0"), manual(Some("0.2.0")), Some(Hold::Approval))]
fn permitted_update_begins(#[case] versions: Gate, #[case] update: Update, #[case] expected: Option<Hold>) {
    assert_eq!(gate(versions, &update).hold, expected);
}

fn mk_held() -> Gate {
    Gate {
        hold: Some(Hold::Approval),
        ..mk_gate("0.1.0", "0.1.0", "0.2.0")
    }
}

#[rstest]
#[case::patch("0.1.0", "0.1.9", None)]
#[case::next("0.1.0", "0.2.3", None)]
#[case::next_from_candidate("0.1.0-rc.1", "0.2.0", None)]
#[case::one_between("0.1.4", "0.3.0", Some("0.2"))]
#[case::many_between("1.2.0", "1.10.0", Some("1.3"))]
#[case::candidate("0.1.0", "0.3.0-rc.1", Some("0.2"))]
#[case::first_of_major("0.7.0", "1.0.2", None)]
#[case::second_of_major("0.7.0", "1.1.0", Some("1.0"))]
#[case::major_between("0.7.0", "2.0.0", Some("1.0"))]
#[case::back("0.3.0", "0.1.0", None)]
#[case::back_over_major("1.0.0", "0.1.0", None)]
#[case::prefixed("v0.1.0", "0.3.0", Some("0.2"))]
#[case::invalid("latest", "0.3.0", None)]
fn update_skips_no_minor_version(#[case] from: &str, #[case] to: &str, #[case] expected: Option<&str>) {
    assert_eq!(skipped_version(from, to).as_deref(), expected);
    let gate = gate(mk_gate(from, from, to), &Update::default());
    assert_eq!(gate.hold == Some(Hold::Skip), expected.is_some(), "{gate:?}");
}

#[rstest]
#[case::half_updated("0.2.0", "0.1.0", Some("0.1.0"))]
#[case::begun("0.3.0", "0.1.0", None)]
fn oldest_workload_decides_about_skip(#[case] controller: &str, #[case] node: &str, #[case] expected: Option<&str>) {
    let gate = gate(mk_gate(controller, node, "0.3.0"), &Update::default());
    let from = gate.hold.as_ref().and(gate.find_skip());
    assert_eq!(from.map(|(from, _)| from), expected);
}

#[rstest]
#[case::another_version(mk_held(), true, &[])]
#[case::same_version(Gate { hold: Some(Hold::Approval), ..mk_gate("0.2.0@35", "0.2.0@35", "0.2.0") }, true, &["prune", "recreate"])]
#[case::controller_is_due(mk_gate("0.2.0@35", "0.2.0@35", "0.2.0"), true, &["prune"])]
#[case::controller_is_on_its_way(mk_gate("0.2.0", "0.2.0@35", "0.2.0"), false, &["prune"])]
#[case::nodes_are_due(mk_gate("0.2.0", "0.2.0@35", "0.2.0"), true, &["prune", "recreate"])]
#[case::change_of_spec(mk_gate("0.2.0", "0.2.0", "0.2.0"), false, &["prune", "recreate"])]
fn classes_follow_controller(#[case] gate: Gate, #[case] is_controller_done: bool, #[case] expected: &[&str]) {
    let key = |name: &str| Key::new(kind::STORAGE_CLASS, None, name);
    let desired = Desired::new(key("recreate"), Stage::StorageClasses, json!({"metadata": {}}));
    let mut plan = Plan {
        actions: vec![
            Action::Prune {
                key: key("prune"),
                uid: "u".to_owned(),
            },
            Action::Recreate {
                desired,
                uid: "u".to_owned(),
                fields: Vec::new(),
                resource_version: String::new(),
                kept: RetainedMetadata::default(),
            },
        ],
        ..Plan::default()
    };
    withhold_updates(&mut plan, &gate, &BTreeMap::new(), is_controller_done);
    let names: Vec<&str> = plan.actions.iter().map(|action| action.key().name.as_str()).collect();
    assert_eq!(names, expected);
}

#[rstest]
#[case::not_held(mk_gate("0.2.0@35", "0.2.0@34", "0.2.0@36"), Some("36"), Some("36"))]
#[case::held(Gate { hold: Some(Hold::Approval), ..mk_gate("0.2.0@35", "0.2.0@34", "0.2.0@36") }, Some("35"), Some("35"))]
#[case::controller_is_missing(Gate { hold: Some(Hold::Approval), ..mk_gate("", "0.2.0@34", "0.2.0@36") }, Some("34"), Some("34"))]
#[case::lost_record(Gate { hold: Some(Hold::Approval), ..mk_gate("0.2.0@?", "0.2.0@34", "0.2.0@36") }, None, Some("34"))]
#[case::another_version(mk_held(), None, None)]
fn held_nodes_follow_controller(#[case] gate: Gate, #[case] controller: Option<&str>, #[case] node: Option<&str>) {
    let minor = |kind| gate.goal(kind)?.kubernetes.map(|version| version.minor.to_string());
    let goals = WORKLOADS.map(minor);
    assert_eq!(goals, [controller, node].map(|minor| minor.map(str::to_owned)));
}

#[test]
fn target_has_token_only_within_version() {
    assert_eq!(mk_gate("0.1.0", "0.1.0", "0.2.0").target_name(), "0.2.0");
    assert_eq!(mk_gate("0.2.0", "0.2.0", "0.2.0").target_name(), "0.2.0");
    let expected = format!("0.2.0+{}", token("0.2.0@36"));
    assert_eq!(mk_gate("0.2.0@35", "0.2.0@36", "0.2.0@36").target_name(), expected);
}

fn mk_role(rules: &Value) -> Value {
    json!({"metadata": {"name": "x"}, "rules": rules})
}

fn mk_rule(verbs: &str) -> Value {
    let verbs: Vec<&str> = verbs.split(' ').collect();
    json!({"apiGroups": [""], "resources": ["nodes"], "verbs": verbs})
}

#[rstest]
#[case::it_lacks_a_right(json!([mk_rule("get")]), json!([mk_rule("get list")]), json!([mk_rule("get"), mk_rule("get list")]))]
#[case::it_is_missing_all(json!([]), json!([mk_rule("get")]), json!([mk_rule("get")]))]
#[case::it_has_more(json!([mk_rule("get list")]), json!([mk_rule("get")]), json!([mk_rule("get list")]))]
fn pods_of_two_versions_retain_both_rights(#[case] has: Value, #[case] needs: Value, #[case] becomes: Value) {
    let key = Key::new(CLUSTER_ROLE, None, "x");
    let desired = Desired::new(key.clone(), Stage::Base, mk_role(&needs));
    let mut there = desired.object.clone();
    there["rules"] = has;
    let live = BTreeMap::from([(key, there)]);
    let planned = Plan {
        actions: vec![Action::Repair {
            desired,
            uid: "u".to_owned(),
            fields: vec!["rules".to_owned()],
        }],
        ..Plan::default()
    };
    for (gate, is_done) in [(mk_held(), true), (mk_gate("0.2.0", "0.2.0", "0.2.0"), false)] {
        let mut plan = planned.clone();
        withhold_updates(&mut plan, &gate, &live, is_done);
        let Some(Action::Repair { desired, .. }) = plan.actions.first() else {
            panic!("{plan:?}")
        };
        assert_eq!(desired.object["rules"], becomes);
    }
    let mut plan = planned.clone();
    withhold_updates(&mut plan, &mk_gate("0.2.0", "0.2.0", "0.2.0"), &live, true);
    assert_eq!(plan, planned, "where only one version is left it has its own rights");
}

#[test]
fn rollout_only_adds_subjects_to_bindings() {
    let subject = |name: &str| json!({"kind": "ServiceAccount", "namespace": "cinder-csi", "name": name});
    let key = Key::new(kind::CLUSTER_ROLE_BINDING, None, "x");
    let binding = |subjects: Value| json!({"metadata": {"name": "x"}, "subjects": subjects});
    let desired = Desired::new(key.clone(), Stage::Base, binding(json!([subject("new")])));
    let mut there = desired.object.clone();
    there["subjects"] = json!([subject("old")]);
    let live = BTreeMap::from([(key, there)]);
    let subjects_after = |is_done: bool| {
        let mut plan = Plan {
            actions: vec![Action::Update {
                desired: desired.clone(),
                uid: "u".to_owned(),
            }],
            ..Plan::default()
        };
        withhold_updates(&mut plan, &mk_gate("0.2.0", "0.2.0", "0.2.0"), &live, is_done);
        let Some(Action::Update { desired, .. }) = plan.actions.pop() else {
            panic!("no update")
        };
        desired.object["subjects"].clone()
    };
    assert_eq!(subjects_after(false), json!([subject("old"), subject("new")]));
    assert_eq!(subjects_after(true), json!([subject("new")]));
}

#[rstest]
#[case::a_rollout(false, 1)]
#[case::none(true, 2)]
fn rights_are_removed_after_the_last_leader(#[case] is_controller_done: bool, #[case] left: usize) {
    let prune = |kind| Action::Prune {
        key: Key::new(kind, None, "x"),
        uid: "u".to_owned(),
    };
    let mut plan = Plan {
        actions: vec![prune(CLUSTER_ROLE), prune(kind::STORAGE_CLASS)],
        ..Plan::default()
    };
    let gate = mk_gate("0.2.0", "0.2.0", "0.2.0");
    withhold_updates(&mut plan, &gate, &BTreeMap::new(), is_controller_done);
    assert_eq!(plan.actions.len(), left);
}

#[test]
fn missing_workload_is_replaced_at_installed_version() {
    let key = Key::new(kind::DEPLOYMENT, None, "x");
    let made = json!({"metadata": {"labels": {(VERSION_LABEL): "0.2.0"}}, "spec": {"template": {"spec": "new"}}});
    let desired = Desired::new(key.clone(), Stage::Controller, made);
    let owner = Owner {
        name: "d".to_owned(),
        uid: "u".to_owned(),
    };
    let held = Gate {
        controller: None,
        ..mk_held()
    };
    for (template, image) in [(Some(json!({"spec": "old"})), "old"), (None, "new")] {
        let mut stand_in = stand_in(&desired, &held, template).object;
        assert_eq!(stand_in["spec"]["template"]["spec"], image);
        stand_in["metadata"]["ownerReferences"] = json!([{"uid": "u"}]);
        let live = BTreeMap::from([(key.clone(), stand_in)]);
        let gate = Gate::of(&owner, &live, &LastApplied::default(), mk_release("0.2.0"));
        assert_eq!(gate.from(), Some("0.1.0"));
    }
}
