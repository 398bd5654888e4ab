// SPDX-License-Identifier: Apache-2.0
//! Tests of the removal.

use rstest::rstest;

use super::*;

const ALL: [&str; 6] = [
    kind::STORAGE_CLASS,
    kind::DEPLOYMENT,
    kind::DAEMON_SET,
    kind::SECRET,
    "ClusterRole",
    kind::CSI_DRIVER,
];

fn now() -> Timestamp {
    "2026-01-01T10:00:00Z".parse().expect("a time")
}

fn mk_live(kinds: &[&'static str]) -> BTreeMap<Key, Value> {
    let entry = |kind: &&'static str| {
        let key = Key::new(kind, None, "x");
        (key, json!({"metadata": {"name": "x", "uid": kind}}))
    };
    kinds.iter().map(entry).collect()
}

static NOWHERE: Stranded = Stranded {
    controller: Vec::new(),
    node: Vec::new(),
};

/// Creates an input in which nothing needs the driver.
fn mk_remains<'a>(blockers: &'a Blockers, live: &'a BTreeMap<Key, Value>) -> Remains<'a> {
    Remains {
        blockers,
        policy: DeletionPolicy::Block,
        is_forced: false,
        drain_timeout: Duration::from_mins(5),
        live,
        registered: &[],
        out_of_reach: &[],
        stranded: &NOWHERE,
        can_unregister: true,
        now: now(),
    }
}

fn step(live: &BTreeMap<Key, Value>, registered: &[String]) -> Step {
    next_step(&Remains {
        registered,
        ..mk_remains(&Blockers::default(), live)
    })
}

fn mk_blockers(volumes: &[&str], attachments: &[&str], snapshots: &[&str]) -> Blockers {
    let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Blockers {
        volumes: own(volumes),
        attachments: own(attachments),
        snapshots: own(snapshots),
        ..Blockers::default()
    }
}

fn deletes(step: &Step) -> Vec<&'static str> {
    match step {
        Step::Delete { objects } => objects.iter().map(|(key, _)| key.kind).collect(),
        other => panic!("{other:?}"),
    }
}

#[rstest]
#[case::a_volume(mk_blockers(&["pv1"], &[], &[]))]
#[case::an_attachment(mk_blockers(&[], &["va1"], &[]))]
#[case::a_snapshot(mk_blockers(&[], &[], &["s1"]))]
#[case::a_volume_that_is_being_made(Blockers { claims: vec!["ns/c1".to_owned()], ..Blockers::default() })]
#[case::a_group_snapshot(Blockers { group_snapshots: vec!["g1".to_owned()], ..Blockers::default() })]
fn blockers_prevent_all_deletions(#[case] blockers: Blockers) {
    let live = mk_live(&ALL);
    let remains = mk_remains(&blockers, &live);
    assert_eq!(next_step(&remains), Step::Blocked);
    let unacknowledged = Remains {
        policy: DeletionPolicy::Force,
        ..remains
    };
    assert_eq!(next_step(&unacknowledged), Step::Blocked);
    let forced = Remains {
        is_forced: true,
        ..unacknowledged
    };
    assert_eq!(deletes(&next_step(&forced)), [kind::STORAGE_CLASS]);
}

#[test]
fn orphan_policy_releases_objects_despite_blockers() {
    let (live, blockers) = (mk_live(&ALL), mk_blockers(&["pv1"], &[], &[]));
    let remains = Remains {
        policy: DeletionPolicy::Orphan,
        ..mk_remains(&blockers, &live)
    };
    let Step::Release { objects } = next_step(&remains) else {
        panic!("not released")
    };
    assert_eq!(objects.len(), ALL.len());
}

#[test]
fn foreign_volumes_do_not_block_empty_removal() {
    let blockers = mk_blockers(&["pv1"], &[], &[]);
    assert_eq!(next_step(&mk_remains(&blockers, &mk_live(&[]))), Step::Finished);
}

#[test]
fn objects_are_deleted_in_dependency_order() {
    let mut live = mk_live(&ALL);
    let mut order = Vec::new();
    loop {
        let next = step(&live, &[]);
        if next == Step::Finished {
            break;
        }
        order.push(deletes(&next));
        live.retain(|key, _| !order.iter().flatten().any(|gone| *gone == key.kind));
    }
    assert_eq!(
        order,
        [
            vec![kind::STORAGE_CLASS],
            vec![kind::DEPLOYMENT],
            vec![kind::DAEMON_SET],
            vec!["ClusterRole", kind::SECRET],
            vec![kind::CSI_DRIVER],
        ]
    );
}

#[test]
fn next_kind_waits_for_complete_deletion() {
    let mut live = mk_live(&ALL[1..]);
    for (key, object) in &mut live {
        if key.kind == kind::DEPLOYMENT {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
    }
    assert_eq!(
        step(&live, &[]),
        Step::Wait {
            what: "the controller's pods to end".to_owned()
        }
    );
}

#[rstest]
#[case::not_begun(None, true, Step::Unregister)]
#[case::under_way(Some("2026-01-01T09:59:00Z"), true,
    Step::Wait { what: "the kubelets of these nodes to unregister the driver: n1".to_owned() })]
#[case::took_too_long(Some("2026-01-01T09:54:00Z"), true,
    Step::Delete { objects: vec![(Key::new(kind::DAEMON_SET, None, "x"), "DaemonSet".to_owned())] })]
#[case::impossible(None, false,
    Step::Delete { objects: vec![(Key::new(kind::DAEMON_SET, None, "x"), "DaemonSet".to_owned())] })]
fn node_pods_are_deleted_after_unregistration_or_timeout(
    #[case] since: Option<&str>,
    #[case] can_unregister: bool,
    #[case] expected: Step,
) {
    let mut live = mk_live(&[kind::DAEMON_SET, kind::CSI_DRIVER]);
    if let (Some(since), Some(daemon_set)) = (since, live.values_mut().next_back()) {
        hasten_unregistration(daemon_set, since.parse().expect("a time"));
        assert_eq!(
            daemon_set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"],
            "100%"
        );
    }
    let registered = ["n1".to_owned()];
    let blockers = Blockers::default();
    let remains = Remains {
        registered: &registered,
        can_unregister,
        ..mk_remains(&blockers, &live)
    };
    assert_eq!(next_step(&remains), expected);
}

#[rstest]
#[case::it_asks(json!({"spec": {"nodeAllocatableUpdatePeriodSeconds": 60}}), Step::StopUpdates)]
#[case::it_does_not_ask(json!({"spec": {}}), Step::Unregister)]
#[case::kubelets_may_not_know_yet(json!({"metadata": {"annotations": {(UPDATES_STOPPED_SINCE): "2026-01-01T09:59:55Z"}}}),
    Step::Wait { what: "the kubelets to end their updates of the driver's entry in CSINode".to_owned() })]
#[case::kubelets_know(
    json!({"metadata": {"annotations": {(UPDATES_STOPPED_SINCE): "2026-01-01T09:59:49Z"}}}), Step::Unregister)]
#[case::another_client_put_it_back(json!({"metadata": {"annotations": {(UPDATES_STOPPED_SINCE): "2026-01-01T09:59:49Z"}},
    "spec": {"nodeAllocatableUpdatePeriodSeconds": 60}}), Step::Unregister)]
fn kubelets_stop_writing_the_registration_before_it_ends(#[case] driver: Value, #[case] expected: Step) {
    let mut live = mk_live(&[kind::DAEMON_SET]);
    live.insert(Key::new(kind::CSI_DRIVER, None, "x"), driver);
    assert_eq!(step(&live, &["n1".to_owned()]), expected);
}

#[rstest]
#[case::there_is_time_left("2026-01-01T09:56:00Z", json!([FOREGROUND]), &["n1"], Some("drainTimeout: n1"))]
#[case::a_pod_on_another_node_is_left("2026-01-01T09:54:00Z", json!([FOREGROUND]), &[], Some("pods to end"))]
#[case::only_pods_that_cannot_end_are_left("2026-01-01T09:54:00Z", json!([FOREGROUND]), &["n1"], None)]
#[case::something_else_keeps_it("2026-01-01T09:54:00Z", json!(["example.org/x"]), &["n1"], Some("drainTimeout: n1"))]
fn pods_on_dead_nodes_are_abandoned(
    #[values(kind::DEPLOYMENT, kind::DAEMON_SET)] of: &'static str,
    #[case] since: &str,
    #[case] finalizers: Value,
    #[case] dead: &[&str],
    #[case] waits_for: Option<&str>,
) {
    let mut live = mk_live(&[of]);
    for object in live.values_mut() {
        object["metadata"]["deletionTimestamp"] = json!(since);
        object["metadata"]["finalizers"] = finalizers.clone();
    }
    let nodes: Vec<String> = dead.iter().map(|&node| node.to_owned()).collect();
    let stranded = Stranded {
        controller: nodes.clone(),
        node: nodes.clone(),
    };
    let blockers = Blockers::default();
    let step = next_step(&Remains {
        stranded: &stranded,
        ..mk_remains(&blockers, &live)
    });
    match (step, waits_for) {
        (Step::Wait { what }, Some(expected)) => assert!(what.contains(expected), "{what}"),
        (step, Some(_)) => panic!("{step:?}"),
        (step, None) => {
            let objects = vec![(Key::new(of, None, "x"), of.to_owned())];
            assert_eq!(step, Step::Abandon { objects, nodes });
        }
    }
}

#[rstest]
#[case::a_moment(30, true)]
#[case::for_good(61, false)]
fn removal_waits_a_minute_for_unready_node(#[case] seconds: i64, #[case] waits: bool) {
    let mut live = mk_live(&[kind::DAEMON_SET]);
    let since = Timestamp::from_second(now().as_second() - seconds).expect("a time");
    for daemon_set in live.values_mut() {
        hasten_unregistration(daemon_set, since);
    }
    let out_of_reach = ["n1".to_owned()];
    let blockers = Blockers::default();
    let remains = Remains {
        out_of_reach: &out_of_reach,
        ..mk_remains(&blockers, &live)
    };
    let step = next_step(&remains);
    assert_eq!(matches!(step, Step::Wait { .. }), waits, "{step:?}");
}

#[test]
fn message_names_ten_blockers_and_counts_others() {
    let names: Vec<String> = (1..=12).map(|number| format!("pv{number}")).collect();
    let blockers = Blockers {
        volumes: names,
        ..Blockers::default()
    };
    let sentence = blockers.sentence(DeletionPolicy::Block);
    assert!(
        sentence.contains("12 PersistentVolumes (pv") && sentence.contains("pv10 and 2 more"),
        "{sentence}"
    );
    assert!(
        !sentence.contains("pv11") && !sentence.contains("VolumeAttachment"),
        "{sentence}"
    );
}
