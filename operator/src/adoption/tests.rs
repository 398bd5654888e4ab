use rstest::rstest;

use super::*;
use crate::{
    objects::{FIELD_MANAGER, kind},
    plan::Desired,
};

fn mk_controller(replicas: i32) -> OldController {
    OldController {
        kind: "Deployment",
        name: "csi-cinder-controllerplugin".to_owned(),
        uid: "c".to_owned(),
        replicas,
    }
}

fn mk_pod(node: &str, leaving: bool) -> OldObject {
    OldObject {
        name: format!("old-{node}"),
        uid: node.to_owned(),
        node: node.to_owned(),
        leaving,
    }
}

fn mk_set(leaving: bool) -> OldObject {
    OldObject {
        name: "csi-cinder-nodeplugin".to_owned(),
        uid: "d".to_owned(),
        leaving,
        ..OldObject::default()
    }
}

/// All of the other installation on the nodes a, b and c.
fn whole() -> Installation {
    Installation {
        controllers: vec![mk_controller(1)],
        controller_pods: vec![mk_pod("a", false)],
        leases: vec!["Lease kube-system/external-attacher-leader".to_owned()],
        are_leases_over: false,
        daemon_sets: vec![mk_set(false)],
        node_pods: ["a", "b", "c"].map(|node| mk_pod(node, false)).into(),
        leftovers: vec!["Deployment kube-system/csi-cinder-controllerplugin".to_owned()],
    }
}

/// Its controller has ended.
fn stopped() -> Installation {
    Installation {
        controllers: vec![mk_controller(0)],
        controller_pods: Vec::new(),
        leases: Vec::new(),
        ..whole()
    }
}

fn nodes(names: &str) -> BTreeSet<String> {
    names.split_whitespace().map(str::to_owned).collect()
}

/// The decision when our own part is as the letters say: `f` can follow, `c` a controller, `C` one that is done, `d` a DaemonSet.
fn decide(found: &Installation, ours: &str, running: &str, serving: &str, at_once: i32) -> Option<Takeover> {
    takeover(
        found,
        &Ours {
            can_follow: ours.contains('f'),
            has_controller: ours.contains(['c', 'C']),
            is_controller_done: ours.contains('C'),
            has_daemon_set: ours.contains('d'),
            wanted: &nodes("a b c"),
            eligible: &nodes("a b c"),
            running: &nodes(running),
            serving: &nodes(serving),
            max_unavailable: &IntOrString::Int(at_once),
        },
    )
}

#[rstest]
#[case::the_spec_does_not_work(whole(), "", AdoptionStep::Preparing, 0, "Degraded")]
#[case::both_are_there(whole(), "f", AdoptionStep::StoppingController, 1, "old-a")]
#[case::its_pods_end(
    Installation { controllers: vec![mk_controller(0)], ..whole() }, "f", AdoptionStep::StoppingController, 0, "old-a")]
#[case::its_leases_are_held(
    Installation { leases: whole().leases, ..stopped() }, "f", AdoptionStep::StoppingController, 0, "external-attacher-leader")]
#[case::ours_holds_leases_of_the_same_name(
    Installation { leases: whole().leases, ..stopped() }, "fc", AdoptionStep::StartingController, 0, "this driver's controller")]
#[case::it_has_ended(stopped(), "f", AdoptionStep::StartingController, 0, "this driver's controller")]
#[case::somebody_brought_it_back(
    Installation { controllers: vec![mk_controller(2)], ..stopped() }, "fCd", AdoptionStep::StoppingController, 1, "")]
#[case::our_daemon_set_is_to_come(stopped(), "fC", AdoptionStep::ReplacingNodes, 0, "this driver's DaemonSet")]
#[case::their_daemon_set_goes(stopped(), "fCd", AdoptionStep::ReplacingNodes, 1, "without its pods")]
#[case::it_is_on_its_way(
    Installation { daemon_sets: vec![mk_set(true)], ..stopped() }, "fCd", AdoptionStep::ReplacingNodes, 0, "without its pods")]
#[case::only_leftovers(
    Installation { daemon_sets: Vec::new(), node_pods: Vec::new(), ..stopped() }, "fCd", AdoptionStep::Done, 0, "")]
fn the_next_step_follows_from_what_is_there(
    #[case] found: Installation,
    #[case] ours: &str,
    #[case] step: AdoptionStep,
    #[case] acts: usize,
    #[case] waits_for: &str,
) {
    let decided = decide(&found, ours, "", "", 1).expect("something is there");
    assert_eq!((decided.step, decided.acts.len()), (step, acts));
    assert!(decided.waits_for.contains(waits_for), "{}", decided.waits_for);
}

#[rstest]
#[case::it_leaves_and_its_leases_are_over("a!", true, "b", "", "")]
#[case::a_lease_may_be_in_use("a!", false, "b", "a!", "")]
#[case::it_does_not_leave("a", true, "b", "a", "a")]
#[case::its_node_is_ready("a!", true, "a b", "a!", "a!")]
fn a_pod_on_a_dead_node_counts_as_ended(
    #[case] pods: &str,
    #[case] are_leases_over: bool,
    #[case] ready: &str,
    #[case] of_controller: &str,
    #[case] on_nodes: &str,
) {
    let all = |names: &str| -> Vec<OldObject> {
        let pods = names.split_whitespace();
        pods.map(|name| mk_pod(name.trim_end_matches('!'), name.ends_with('!')))
            .collect()
    };
    let mut found = Installation {
        controllers: vec![mk_controller(0)],
        controller_pods: all(pods),
        node_pods: all(pods),
        leases: Vec::new(),
        are_leases_over,
        ..whole()
    };
    let ready = nodes(ready);
    found.leave_dead_pods(|node| ready.contains(node));
    assert_eq!(
        (&found.controller_pods, &found.node_pods),
        (&all(of_controller), &all(on_nodes))
    );
    let decided = decide(&found, "f", "", "", 1).expect("something is there");
    assert_eq!(
        decided.step == AdoptionStep::StoppingController,
        !of_controller.is_empty(),
        "{decided:?}"
    );
}

#[test]
fn where_nothing_is_found_there_is_nothing_to_take_over() {
    assert_eq!(decide(&Installation::default(), "fCd", "", "", 1), None);
}

#[rstest]
#[case::none_of_ours_runs("a b c", "", "", 1, "")]
#[case::ours_waits_everywhere("a b c", "a b c", "", 1, "a")]
#[case::two_at_once("a b c", "a b c", "", 2, "a b")]
#[case::ours_runs_on_one("a b c", "b", "", 2, "b")]
#[case::the_last_one_is_not_done("b c", "a b c", "", 1, "")]
#[case::the_last_one_is_done("b c", "a b c", "a", 1, "b")]
#[case::a_pod_that_leaves_counts("a! b c", "a b c", "", 1, "")]
fn node_plugins_go_where_one_of_ours_waits_and_no_more_than_allowed_at_once(
    #[case] old: &str,
    #[case] running: &str,
    #[case] serving: &str,
    #[case] at_once: i32,
    #[case] expected: &str,
) {
    let pods = old
        .split_whitespace()
        .map(|node| mk_pod(node.trim_end_matches('!'), node.ends_with('!')));
    let found = Installation {
        daemon_sets: Vec::new(),
        node_pods: pods.collect(),
        ..stopped()
    };
    let decided = decide(&found, "fCd", running, serving, at_once).expect("something is there");
    let replaced: BTreeSet<String> = decided
        .acts
        .iter()
        .map(|act| match act {
            Act::Replace(pod) => pod.node.clone(),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(replaced, nodes(expected));
}

#[test]
fn nodes_where_no_pod_of_ours_runs_are_named() {
    let found = Installation {
        daemon_sets: Vec::new(),
        ..stopped()
    };
    let told = |running| {
        decide(&found, "fCd", running, "", 1)
            .expect("something is there")
            .waits_for
    };
    assert!(told("a b c").ends_with("a, b, c to be replaced"), "{}", told("a b c"));
    assert!(told("a").contains("nothing is replaced, on b, c"), "{}", told("a"));
}

#[test]
fn nodes_where_no_pod_of_ours_will_ever_run_are_named_with_what_to_do() {
    let found = Installation {
        daemon_sets: Vec::new(),
        node_pods: ["a", "z"].map(|node| mk_pod(node, false)).into(),
        ..stopped()
    };
    let told = decide(&found, "fCd", "", "", 1).expect("something is there").waits_for;
    assert!(told.contains("from z: let its nodeSelector"), "{told}");
    assert!(told.ends_with("nothing is replaced, on a"), "{told}");
}

#[test]
fn no_controller_and_no_node_plugin_of_ours_comes_before_its_time() {
    let create = |kind, stage| Action::Create(Desired::new(Key::new(kind, None, "x"), stage, json!({"metadata": {}})));
    let kinds = |found: &Installation, ours: &str| -> Vec<&'static str> {
        let mut plan = Plan {
            actions: vec![
                create("ClusterRole", Stage::Base),
                create(kind::CSI_DRIVER, Stage::CsiDriver),
                create(kind::DEPLOYMENT, Stage::Controller),
                create(kind::DAEMON_SET, Stage::Node),
                create(kind::STORAGE_CLASS, Stage::StorageClasses),
            ],
            ..Plan::default()
        };
        decide(found, ours, "", "", 1)
            .expect("something is there")
            .hold_back(&mut plan);
        plan.actions.iter().map(|action| action.key().kind).collect()
    };
    assert_eq!(kinds(&whole(), "f"), ["ClusterRole"]);
    assert_eq!(
        kinds(&stopped(), "f"),
        ["ClusterRole", kind::CSI_DRIVER, kind::DEPLOYMENT]
    );
    assert_eq!(kinds(&stopped(), "fC").len(), 5);
}

#[test]
fn what_is_left_is_named() {
    let found = Installation {
        daemon_sets: Vec::new(),
        node_pods: Vec::new(),
        ..stopped()
    };
    let decided = decide(&found, "fCd", "", "", 1).expect("something is there");
    assert_eq!(decided.leftovers, found.leftovers);
}

#[rstest]
#[case::let_go(json!({"managedFields": [{"manager": FIELD_MANAGER, "operation": "Apply"}]}), true)]
#[case::of_another_object(json!({"labels": {(INSTANCE_LABEL): "other"}, "managedFields": [{"manager": FIELD_MANAGER, "operation": "Apply"}]}), false)]
#[case::made_by_somebody(json!({"managedFields": [{"manager": "kubectl", "operation": "Apply"}]}), false)]
#[case::a_copy(
    json!({"creationTimestamp": "2026-01-02T00:00:00Z",
        "managedFields": [{"manager": FIELD_MANAGER, "operation": "Apply", "time": "2026-01-01T00:00:00Z"}]}),
    false
)]
fn only_what_an_operator_let_go_of_is_taken_up(#[case] metadata: Value, #[case] expected: bool) {
    let owner = Owner {
        name: "d".to_owned(),
        uid: "u".to_owned(),
    };
    let key = Key::new(kind::DEPLOYMENT, Some("cinder-csi"), "cinder-csi-controller");
    let mut live = BTreeMap::from([(key.clone(), json!({"metadata": metadata}))]);
    take_up(&owner, &mut live);
    assert_eq!(owner.owns(&live[&key]), expected);
}
