// SPDX-License-Identifier: Apache-2.0

use rstest::rstest;

use super::*;
use crate::{
    cluster::{FIELD_MANAGER, kind},
    plan::Desired,
};

fn mk_controller(replicas: i32) -> OldController {
    OldController {
        kind: "Deployment",
        name: "csi-cinder-controllerplugin".to_owned(),
        uid: "c".to_owned(),
        replicas,
        note: None,
    }
}

fn now() -> Timestamp {
    "2026-01-01T10:00:00Z".parse().expect("a time")
}

/// Creates a controller with two pods that was stopped this many minutes ago.
fn mk_stopped(minutes: i64) -> OldController {
    let stopped = Timestamp::from_second(now().as_second() - minutes * 60).expect("a time");
    OldController {
        note: Some(Note {
            replicas: 2,
            stopped: Some(stopped),
            failed_generation: None,
            reason: None,
        }),
        ..mk_controller(0)
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

/// Creates a complete other installation on the nodes a, b and c.
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

/// Creates an installation whose controller was stopped this many minutes ago and has ended.
fn stopped_for(minutes: i64) -> Installation {
    Installation {
        controllers: vec![mk_stopped(minutes)],
        ..stopped()
    }
}

/// Creates an installation whose controller has ended, after this driver's controller was ready.
fn noted_as_served() -> Installation {
    let mut found = stopped();
    for note in found
        .controllers
        .iter_mut()
        .filter_map(|controller| controller.note.as_mut())
    {
        note.stopped = None;
    }
    found
}

/// Creates an installation whose controller has had its pods again since this generation of the spec.
fn given_back(generation: i64) -> Installation {
    let note = Note {
        replicas: 2,
        stopped: None,
        failed_generation: Some(generation),
        reason: Some("it crashed".to_owned()),
    };
    Installation {
        controllers: vec![OldController {
            note: Some(note),
            ..mk_controller(2)
        }],
        ..whole()
    }
}

/// Creates an installation whose controller has ended.
fn stopped() -> Installation {
    Installation {
        controllers: vec![mk_stopped(1)],
        controller_pods: Vec::new(),
        leases: Vec::new(),
        ..whole()
    }
}

fn nodes(names: &str) -> BTreeSet<String> {
    names.split_whitespace().map(str::to_owned).collect()
}

/// Returns the decision for this driver's own state. The letters of the state: `w` the spec requests the migration,
/// `f` the controller can start, `d` a DaemonSet exists. `t` a dry run passed, `T` a dry run failed, `c` a controller
/// exists, `C` all its pods are ready. `p` a controller pod exists, `D` this driver owns the CSIDriver.
fn decide(found: &Installation, ours: &str, running: &str, serving: &str, at_once: i32) -> Option<Migration> {
    decide_beside(Ok(&[]), found, ours, running, serving, at_once)
}

fn decide_beside(
    elsewhere: Result<&[String], &str>,
    found: &Installation,
    ours: &str,
    running: &str,
    serving: &str,
    at_once: i32,
) -> Option<Migration> {
    let has = |letter: char| ours.contains(letter);
    let own = |kind, is_there: bool| is_there.then(|| (Key::new(kind, None, "ours"), "o".to_owned()));
    let pods: Vec<String> = has('p').then(|| "ours-1".to_owned()).into_iter().collect();
    let refused = || Err("quota is exceeded".to_owned());
    plan_migration(
        found,
        &Ours {
            is_wanted: has('w'),
            generation: 7,
            can_follow: has('f'),
            findings: &[],
            elsewhere,
            controller: own(kind::DEPLOYMENT, has('c') || has('C')),
            controller_pods: &pods,
            is_controller_done: has('C'),
            trouble: "its image is not there",
            trial: has('t').then_some(Ok(())).or_else(|| has('T').then(refused)),
            has_driver: has('D'),
            daemon_set: own(kind::DAEMON_SET, has('d')),
            node_trouble: "no such image",
            now: now(),
            wanted: &nodes("a b c"),
            eligible: &nodes("a b c"),
            running: &nodes(running),
            serving: &nodes(serving),
            max_unavailable: &IntOrString::Int(at_once),
        },
    )
}

#[rstest]
#[case::before_ours("wf", "", AdoptionStep::Preparing)]
#[case::beside_node_pods("wfdt", "a", AdoptionStep::StartingNodes)]
fn installation_elsewhere_blocks_migration(#[case] ours: &str, #[case] running: &str, #[case] step: AdoptionStep) {
    let others = ["Deployment storage/csi".to_owned()];
    for (elsewhere, expected) in [
        (Ok(&others[..]), "Deployment storage/csi"),
        (Err("Forbidden"), "Forbidden"),
    ] {
        for found in [whole(), stopped()] {
            let migration = decide_beside(elsewhere, &found, ours, running, "", 1).expect("a migration");
            assert_eq!((migration.step, migration.acts.as_slice()), (step, &[][..]));
            let failure = migration.failure.expect("a reason");
            assert!(failure.contains(expected), "{failure}");
        }
    }
    // This driver's controller is already ready, so a hold would stop the replacement of node pods.
    let migration = decide_beside(Ok(&others), &noted_as_served(), "wfdCD", "a", "a", 1).expect("a migration");
    assert_eq!(migration.step, AdoptionStep::ReplacingNodes);
}

#[test]
fn open_findings_block_a_new_migration() {
    let finding = AdoptionFinding {
        reason: check::AdoptionFindingReason::InlineVolume,
        subject: "pods with in-line volumes".to_owned(),
        count: 1,
        names: Vec::new(),
        message: String::new(),
        remedy: String::new(),
    };
    let found = whole();
    let migration = await_findings(&[finding]);
    assert_eq!((migration.step, migration.acts.len()), (AdoptionStep::Preparing, 0));
    assert!(migration.failure.expect("a reason").contains("in-line volumes"));
    let is_checked = |found: &Installation, ours: &str| {
        let (wanted, running) = (nodes("a"), nodes(""));
        let own = |is_there: bool| is_there.then(|| (Key::new(kind::DAEMON_SET, None, "ours"), "o".to_owned()));
        let ours = Ours {
            is_wanted: ours.contains('w'),
            generation: 7,
            can_follow: ours.contains('f'),
            findings: &[],
            elsewhere: Ok(&[]),
            controller: None,
            controller_pods: &[],
            is_controller_done: false,
            trouble: "",
            trial: None,
            has_driver: false,
            daemon_set: own(ours.contains('d')),
            node_trouble: "",
            now: now(),
            wanted: &wanted,
            eligible: &wanted,
            running: &running,
            serving: &running,
            max_unavailable: &IntOrString::Int(1),
        };
        needs_check(found, &ours)
    };
    assert!(is_checked(&found, "wf"));
    for (found, ours) in [(&found, "f"), (&found, "w"), (&found, "wfd"), (&stopped(), "wf")] {
        assert!(!is_checked(found, ours), "{ours}");
    }
}

#[rstest]
#[case::the_spec_does_not_work(whole(), "w", "a", AdoptionStep::Preparing, 0, "Degraded")]
#[case::both_are_there(whole(), "wf", "a", AdoptionStep::StartingNodes, 0, "this driver's DaemonSet")]
#[case::no_pod_of_ours_runs(
    whole(),
    "wfdt",
    "",
    AdoptionStep::StartingNodes,
    0,
    "the node can pull its image: no such image"
)]
#[case::ours_is_not_tried(whole(), "wfd", "a", AdoptionStep::StartingNodes, 0, "a dry run")]
#[case::ours_is_refused(whole(), "wfdT", "a", AdoptionStep::StartingNodes, 0, "quota is exceeded")]
#[case::ours_can_start(whole(), "wfdt", "a", AdoptionStep::StoppingController, 1, "old-a")]
#[case::its_pods_end(
    Installation { controllers: vec![mk_stopped(1)], ..whole() }, "wfd", "a", AdoptionStep::StoppingController, 0, "old-a")]
#[case::its_leases_are_held(
    Installation { leases: whole().leases, ..stopped() }, "wfd", "a", AdoptionStep::StoppingController, 0, "external-attacher-leader")]
#[case::ours_holds_leases_of_the_same_name(
    Installation { leases: whole().leases, ..stopped() }, "wfcd", "a", AdoptionStep::StartingController, 0, "this driver's controller")]
#[case::it_has_ended(
    stopped(),
    "wfd",
    "a",
    AdoptionStep::StartingController,
    0,
    "this driver's controller"
)]
#[case::ours_comes(
    stopped(),
    "wfcd",
    "a",
    AdoptionStep::StartingController,
    0,
    "this driver's controller"
)]
#[case::ours_serves(stopped(), "wfCd", "a", AdoptionStep::StartingController, 1, "a note")]
#[case::that_is_noted(
    noted_as_served(),
    "wfCd",
    "a",
    AdoptionStep::StartingController,
    0,
    "the CSIDriver object"
)]
#[case::somebody_brought_it_back(
    Installation { controllers: vec![mk_controller(2)], ..stopped() }, "wfCdD", "a", AdoptionStep::StoppingController, 1, "")]
#[case::our_daemon_set_is_to_come(
    noted_as_served(),
    "wfCD",
    "a",
    AdoptionStep::ReplacingNodes,
    0,
    "this driver's DaemonSet"
)]
#[case::their_daemon_set_goes(noted_as_served(), "wfCdD", "a", AdoptionStep::ReplacingNodes, 1, "without its pods")]
#[case::it_is_on_its_way(
    Installation { daemon_sets: vec![mk_set(true)], ..noted_as_served() }, "wfCdD", "a", AdoptionStep::ReplacingNodes, 0, "without its pods")]
#[case::only_leftovers(
    Installation { daemon_sets: Vec::new(), node_pods: Vec::new(), ..noted_as_served() }, "wfCdD", "a", AdoptionStep::Done, 0, "")]
#[case::ours_had_its_time(stopped_for(6), "wfcdp", "a", AdoptionStep::GivingBack, 2, "to be removed")]
#[case::its_pods_are_left(stopped_for(6), "wfdp", "a", AdoptionStep::GivingBack, 0, "ours-1")]
#[case::nothing_of_it_is_left(stopped_for(6), "wfd", "a", AdoptionStep::GivingBack, 1, "its pods again")]
#[case::the_spec_broke_meanwhile(stopped_for(6), "w", "a", AdoptionStep::GivingBack, 1, "its pods again")]
#[case::it_serves_in_the_last_moment(stopped_for(6), "wfCd", "a", AdoptionStep::StartingController, 1, "a note")]
#[case::the_mode_is_taken_back(stopped_for(1), "fcdp", "a", AdoptionStep::GivingBack, 2, "to be removed")]
#[case::and_ours_has_ended(stopped_for(1), "f", "a", AdoptionStep::GivingBack, 1, "its pods again")]
#[case::and_nothing_was_stopped(whole(), "fd", "a", AdoptionStep::GivingBack, 1, "to be removed")]
#[case::it_was_given_back(given_back(7), "wfd", "a", AdoptionStep::GivenBack, 0, "a change of the spec")]
#[case::it_is_tried_again(given_back(6), "wfdt", "a", AdoptionStep::StoppingController, 1, "")]
fn next_step_follows_from_observed_state(
    #[case] found: Installation,
    #[case] ours: &str,
    #[case] running: &str,
    #[case] step: AdoptionStep,
    #[case] acts: usize,
    #[case] waits_for: &str,
) {
    let decided = decide(&found, ours, running, "", 1).expect("something is there");
    assert_eq!((decided.step, decided.acts.len()), (step, acts), "{decided:?}");
    assert!(decided.waits_for.contains(waits_for), "{}", decided.waits_for);
}

#[rstest]
#[case::nothing_is_there(Installation::default(), "wfCd")]
#[case::it_is_not_wanted_and_theirs_runs_alone(whole(), "f")]
#[case::it_is_not_wanted_and_ours_serves(noted_as_served(), "fCdD")]
fn missing_installation_needs_no_migration(#[case] found: Installation, #[case] ours: &str) {
    assert_eq!(decide(&found, ours, "a", "", 1), None);
}

#[test]
fn stopped_controller_is_recorded_and_restored() {
    let act = |found: &Installation, ours: &str| {
        let decided = decide(found, ours, "a", "", 1).expect("something is there");
        decided.acts.into_iter().next().expect("an act")
    };
    let two = Installation {
        controllers: vec![mk_controller(2)],
        ..whole()
    };
    let note = |stopped, failed_generation, reason: Option<&str>| Note {
        replicas: 2,
        stopped,
        failed_generation,
        reason: reason.map(str::to_owned),
    };
    assert_eq!(
        act(&two, "wfdt"),
        Act::ScaleDown(mk_controller(2), note(Some(now()), None, None))
    );
    assert_eq!(
        act(&stopped_for(6), "wfd"),
        Act::GiveBack(mk_stopped(6), Some(note(None, Some(7), Some("its image is not there"))))
    );
    assert_eq!(act(&stopped_for(1), "f"), Act::GiveBack(mk_stopped(1), None));
    assert_eq!(
        act(&stopped_for(1), "wfCd"),
        Act::Write(mk_stopped(1), note(None, None, None))
    );
}

#[test]
fn blocked_migration_reports_its_cause() {
    let failure = |found: &Installation, ours: &str| {
        let decided = decide(found, ours, "a", "", 1).expect("something is there");
        decided.failure.unwrap_or_default()
    };
    assert!(failure(&whole(), "wfdT").contains("quota is exceeded"));
    assert!(failure(&stopped_for(6), "wfcd").contains("its image is not there"));
    assert!(failure(&given_back(7), "wfd").contains("it crashed"));
    assert_eq!(failure(&whole(), "wfdt"), "");
}

#[rstest]
#[case::it_leaves_and_its_leases_are_over("a!", true, "b", "", "")]
#[case::a_lease_may_be_in_use("a!", false, "b", "a!", "")]
#[case::it_does_not_leave("a", true, "b", "a", "a")]
#[case::its_node_is_ready("a!", true, "a b", "a!", "a!")]
fn pod_on_dead_node_counts_as_ended(
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
    let decided = decide(&found, "wfd", "a", "", 1).expect("something is there");
    assert_eq!(
        decided.step == AdoptionStep::StoppingController,
        !of_controller.is_empty(),
        "{decided:?}"
    );
}

#[rstest]
#[case::none_of_ours_runs("a b c", "", "", 1, "")]
#[case::ours_waits_everywhere("a b c", "a b c", "", 1, "a")]
#[case::two_at_once("a b c", "a b c", "", 2, "a b")]
#[case::ours_runs_on_one("a b c", "b", "", 2, "b")]
#[case::the_last_one_is_not_done("b c", "a b c", "", 1, "")]
#[case::the_last_one_is_done("b c", "a b c", "a", 1, "b")]
#[case::a_pod_that_leaves_counts("a! b c", "a b c", "", 1, "")]
fn node_plugins_are_replaced_within_the_budget(
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
        ..noted_as_served()
    };
    let decided = decide(&found, "wfCdD", running, serving, at_once).expect("something is there");
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
fn nodes_without_own_pod_are_named() {
    let found = Installation {
        daemon_sets: Vec::new(),
        ..noted_as_served()
    };
    let told = |running| {
        decide(&found, "wfCdD", running, "", 1)
            .expect("something is there")
            .waits_for
    };
    assert!(told("a b c").ends_with("a, b, c to be replaced"), "{}", told("a b c"));
    assert!(told("a").contains("nothing is replaced, on b, c"), "{}", told("a"));
}

#[test]
fn excluded_nodes_are_named_with_remedy() {
    let found = Installation {
        daemon_sets: Vec::new(),
        node_pods: ["a", "z"].map(|node| mk_pod(node, false)).into(),
        ..noted_as_served()
    };
    let told = decide(&found, "wfCdD", "", "", 1)
        .expect("something is there")
        .waits_for;
    assert!(told.contains("from z: let its nodeSelector"), "{told}");
    assert!(told.ends_with("nothing is replaced, on a"), "{told}");
}

#[test]
fn migration_withholds_later_stages() {
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
        decide(found, ours, "a", "", 1)
            .expect("something is there")
            .withhold_stages(&mut plan);
        plan.actions.iter().map(|action| action.key().kind).collect()
    };
    let beside = ["ClusterRole", kind::DAEMON_SET];
    assert_eq!(kinds(&whole(), "w"), ["ClusterRole"]);
    assert_eq!(kinds(&whole(), "wf"), beside);
    assert_eq!(kinds(&whole(), "wfdt"), beside);
    assert_eq!(
        kinds(&stopped(), "wfd"),
        ["ClusterRole", kind::DEPLOYMENT, kind::DAEMON_SET]
    );
    assert_eq!(kinds(&stopped_for(6), "wfcd"), beside);
    assert_eq!(kinds(&given_back(7), "wfd"), beside);
    assert_eq!(kinds(&noted_as_served(), "wfCd").len(), 5);
}

#[test]
fn remaining_objects_are_named() {
    let found = Installation {
        daemon_sets: Vec::new(),
        node_pods: Vec::new(),
        ..noted_as_served()
    };
    let decided = decide(&found, "wfCdD", "", "", 1).expect("something is there");
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
fn only_released_objects_are_adopted(#[case] metadata: Value, #[case] expected: bool) {
    let owner = Owner {
        name: "d".to_owned(),
        uid: "u".to_owned(),
    };
    let key = Key::new(kind::DEPLOYMENT, Some("cinder-csi"), "cinder-csi-controller");
    let mut live = BTreeMap::from([(key.clone(), json!({"metadata": metadata}))]);
    adopt_orphans(&owner, &mut live);
    assert_eq!(owner.owns(&live[&key]), expected);
}
