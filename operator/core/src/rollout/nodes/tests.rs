// SPDX-License-Identifier: Apache-2.0

use rstest::rstest;

use super::*;

fn now() -> Timestamp {
    "2026-01-01T10:00:00Z".parse().expect("a time")
}

/// Creates a pod by its node. The revision is `new` or `old`. State: `-` no fault, `?` not Ready, `!` not Ready for
/// long, `x` being deleted.
fn mk_pod(node: &str, revision: &str, wrong: &str) -> NodePod {
    let seconds = if wrong == "!" { 301 } else { 10 };
    NodePod {
        name: format!("pod-{node}"),
        uid: format!("uid-{node}"),
        node: node.to_owned(),
        revision: revision.to_owned(),
        ready: wrong == "-" || wrong == "x",
        leaving: wrong == "x",
        created: Timestamp::from_second(now().as_second() - seconds).ok(),
        since: Timestamp::from_second(now().as_second() - seconds).ok(),
        trouble: (wrong == "!").then(|| "CrashLoopBackOff: back-off 5m0s".to_owned()),
    }
}

struct World {
    pods: Vec<NodePod>,
    unregistered: Vec<&'static str>,
    /// Nodes that have been without the driver for longer than the deadline, as observed.
    lacking: Vec<&'static str>,
    broken_before: Vec<&'static str>,
    /// Ages of nodes in seconds. Other ages are unknown.
    ages: Vec<(&'static str, i64)>,
    max_unavailable: IntOrString,
}

/// Creates nodes from text such as `a=new- b=old? c=`.
fn mk(text: &str) -> World {
    let mut pods = Vec::new();
    for word in text.split_whitespace() {
        let (node, rest) = word.split_once('=').expect("node=pod");
        if rest.is_empty() {
            pods.push(NodePod {
                node: node.to_owned(),
                leaving: true,
                ..NodePod::default()
            });
        } else {
            pods.push(mk_pod(node, &rest[..3], &rest[3..]));
        }
    }
    World {
        pods,
        unregistered: Vec::new(),
        lacking: Vec::new(),
        broken_before: Vec::new(),
        ages: Vec::new(),
        max_unavailable: IntOrString::Int(1),
    }
}

fn times(world: &World) -> BTreeMap<String, NodeTimes> {
    let mut all: BTreeMap<String, NodeTimes> = world
        .pods
        .iter()
        .map(|pod| (pod.node.clone(), NodeTimes::default()))
        .collect();
    for (node, age) in &world.ages {
        let joined = Timestamp::from_second(now().as_second() - age).ok();
        let times = NodeTimes {
            created: joined,
            ready: joined,
        };
        all.insert((*node).to_owned(), times);
    }
    all
}

fn judge(world: &World) -> NodeRollout {
    let all = times(world);
    let mut registered: BTreeSet<String> = all.keys().cloned().collect();
    registered.retain(|node| !world.unregistered.contains(&node.as_str()));
    let own = |names: &[&str]| -> Vec<String> { names.iter().map(|&name| name.to_owned()).collect() };
    let lacking = own(&world.lacking)
        .into_iter()
        .map(|node| (node, Duration::from_secs(301)));
    node_rollout(&Nodes {
        ready: &all,
        pods: &world.pods,
        registered: &registered,
        revision: Some("new"),
        lacking: &lacking.collect(),
        broken_before: &own(&world.broken_before),
        max_unavailable: &world.max_unavailable,
        replaces: true,
        deadline: Duration::from_mins(5),
        now: now(),
    })
}

fn replaced(rollout: &NodeRollout) -> Vec<&str> {
    rollout.replace.iter().map(|pod| pod.node.as_str()).collect()
}

#[rstest]
#[case::all_done("a=new- b=new-", &[])]
#[case::one_after_the_other("a=old- b=old- c=old-", &["a"])]
#[case::while_one_comes_up_no_other("a=new? b=old-", &[])]
#[case::while_one_leaves_no_other("a=oldx b=old-", &[])]
#[case::while_one_is_missing_no_other("a= b=old-", &[])]
#[case::the_next_after_one_is_done("a=new- b=old- c=old-", &["b"])]
#[case::what_does_not_serve_is_replaced_first("a=old- b=old? c=old-", &["b"])]
#[case::broken_ones_within_the_budget_too("a=old- b=old? c=old!", &["b"])]
#[case::nothing_after_as_many_failures_as_may_be("a=new! b=old- c=old?", &[])]
fn pods_are_replaced_within_the_budget(#[case] nodes: &str, #[case] expected: &[&str]) {
    let world = World {
        broken_before: vec!["b", "c"],
        ..mk(nodes)
    };
    assert_eq!(replaced(&judge(&world)), expected);
}

#[rstest]
#[case::one_failure_of_three_leaves_two("a=new! b=old- c=old- d=old- e=old-", &[], &["b", "c"], false)]
#[case::as_many_as_may_be_stop_it("a=new! b=new! c=new! d=old- e=old-", &[], &[], true)]
#[case::those_that_were_broken_before_do_not_count("a=new! b=new! c=new! d=old- e=old-", &["a", "b", "c"], &["d", "e"], false)]
#[case::one_that_was_not_does("a=new! b=new! c=new! d=old- e=old-", &["a", "b"], &["d", "e"], false)]
#[case::broken_ones_come_before_the_others("a=old- b=old- c=old! d=old! e=old-", &["c", "d"], &["c", "d", "a"], false)]
#[case::one_that_may_come_back_by_itself_keeps_its_place("a=new? b=new? c=old- d=old? e=old?", &["d", "e"], &["d"], false)]
fn failures_count_against_max_unavailable(
    #[case] nodes: &str,
    #[case] broken_before: &[&'static str],
    #[case] expected: &[&str],
    #[case] is_stopped: bool,
) {
    let world = World {
        broken_before: broken_before.to_vec(),
        max_unavailable: IntOrString::Int(3),
        ..mk(nodes)
    };
    let rollout = judge(&world);
    assert_eq!(
        (replaced(&rollout), rollout.is_stopped()),
        (expected.to_vec(), is_stopped)
    );
}

#[test]
fn broken_node_is_recorded_before_replacement() {
    let mut world = mk("a=old! b=old- c=new-");
    let rollout = judge(&world);
    assert_eq!(rollout.broken_before, ["a"]);
    assert!(rollout.replace.is_empty(), "{rollout:?}");
    assert_eq!(rollout.look_again, Some(RECORDED_IN));

    world.broken_before = vec!["a"];
    assert_eq!(replaced(&judge(&world)), ["a"]);

    for after in ["a= b=old-", "a=new? b=old-", "a=new! b=old-"] {
        let world = World {
            broken_before: vec!["a"],
            ..mk(after)
        };
        assert_eq!(judge(&world).broken_before, ["a"], "{after}");
    }
    world.pods = mk("a=new- b=old-").pods;
    assert_eq!(judge(&world).broken_before, [] as [&str; 0], "it has come up");
}

#[test]
fn recorded_nodes_are_bounded_by_status() {
    let nodes: Vec<String> = (0..=MOST_BROKEN).map(|number| format!("n{number:03}=old!")).collect();
    let rollout = judge(&mk(&nodes.join(" ")));
    assert_eq!(rollout.broken_before.len(), MOST_BROKEN);
    assert_eq!(replaced(&rollout), ["n000"], "none waits for a record that has no room");
}

#[rstest]
#[case::pod_fails("a=old! b=new- c=new-", &[], &["a"])]
#[case::whatever_revision("a=old! b=new! c=new-", &[], &["a", "b"])]
#[case::not_before_their_time("a=old! b=new? c=old?", &[], &["a"])]
#[case::no_pod_for_long("a= b= c=new-", &["a", "b"], &["a", "b"])]
#[case::no_pod_for_a_moment("a= b= c=new-", &["a"], &["a"])]
fn names_nodes_without_driver_for_long(
    #[case] nodes: &str,
    #[case] lacking: &[&'static str],
    #[case] expected: &[&str],
) {
    let world = World {
        lacking: lacking.to_vec(),
        ..mk(nodes)
    };
    let rollout = judge(&world);
    let failed: Vec<&str> = rollout.failed.iter().map(|failed| failed.node.as_str()).collect();
    assert_eq!(failed, expected, "{rollout:?}");
}

/// The age of a node that joined before its pod of 10 s, or of 301 s, was created.
const YOUNG: i64 = 311;

#[rstest]
#[case::comes_up("a=new? b=old- c=new-", &["b"])]
#[case::is_not_registered("a=new- b=old- c=new-", &["b"])]
#[case::has_no_pod("a= b=old- c=new-", &["b"])]
#[case::does_not_come_up("a=new! b=old- c=new-", &["b"])]
fn joining_node_takes_no_budget(#[case] nodes: &str, #[case] expected: &[&str]) {
    let joins = |age| World {
        unregistered: vec!["a"],
        ages: vec![("a", age)],
        ..mk(nodes)
    };
    let age = if nodes.starts_with("a=new!") { YOUNG } else { 20 };
    let rollout = judge(&joins(age));
    assert_eq!(replaced(&rollout), expected, "{rollout:?}");
    assert_eq!((rollout.lost, rollout.coming), (0, 0), "{rollout:?}");
    assert_eq!(rollout.broken_before, ["a"]);
    assert_eq!(
        replaced(&judge(&joins(100_000))),
        [] as [&str; 0],
        "an old node has lost the driver"
    );
}

#[test]
fn joined_node_remains_uncounted_after_another_pod() {
    let world = World {
        unregistered: vec!["a"],
        broken_before: vec!["a"],
        ages: vec![("a", 100_000)],
        ..mk("a=new! b=old- c=new-")
    };
    let rollout = judge(&world);
    assert_eq!((rollout.lost, replaced(&rollout)), (0, vec!["b"]), "{rollout:?}");
}

#[rstest]
#[case::its_pod_comes_up("a=new? b=old- c=new-")]
#[case::it_has_no_pod("a= b=old- c=new-")]
fn young_node_with_replaced_pod_takes_budget(#[case] nodes: &str) {
    let world = World {
        ages: vec![("a", 20)],
        ..mk(nodes)
    };
    let rollout = judge(&world);
    assert_eq!((rollout.coming, replaced(&rollout)), (1, Vec::new()), "{rollout:?}");
}

#[test]
fn records_joining_nodes_after_broken_ones() {
    let broken: Vec<String> = (0..MOST_BROKEN).map(|number| format!("n{number:03}=old!")).collect();
    let world = World {
        unregistered: vec!["a"],
        ages: vec![("a", 20)],
        ..mk(&format!("{} a=new?", broken.join(" ")))
    };
    let recorded = judge(&world).broken_before;
    assert!(recorded.len() == MOST_BROKEN && !recorded.contains(&"a".to_owned()));
}

#[rstest]
#[case::lost_its_registration_now("a=new-", &[])]
#[case::has_no_pod("a=", &[])]
#[case::became_ready_now("a=new!", &[("a", 20)])]
#[case::kubelet_is_ahead("a=new!", &[("a", -20)])]
fn unknown_absence_starts_now(#[case] nodes: &str, #[case] ages: &[(&'static str, i64)]) {
    let mut world = World {
        unregistered: vec!["a"],
        ages: ages.to_vec(),
        ..mk(nodes)
    };
    for pod in &mut world.pods {
        pod.since = Timestamp::from_second(now().as_second() - 100_000).ok();
    }
    let rollout = judge(&world);
    assert!(rollout.failed.is_empty() && rollout.lost == 0, "{rollout:?}");
}

#[test]
fn broken_pod_of_old_revision_is_named() {
    let rollout = judge(&mk("a=old! b=old-"));
    assert_eq!(rollout.failed[0].reason, "CrashLoopBackOff: back-off 5m0s");
    assert!(!rollout.is_stopped(), "it is no failure of a rollout");
}

#[test]
fn node_without_pod_fails_after_deadline() {
    let mut world = mk("a= b=new-");
    world.lacking = vec!["a"];
    let rollout = judge(&world);
    assert_eq!(rollout.failed[0].reason, "the pod was deleted and does not end");
}

#[test]
fn absences_without_record_are_observed() {
    let world = mk("a= b=new- c=new- d=new? e=");
    let mut all = times(&world);
    all.insert("f".to_owned(), NodeTimes::default());
    let registered = ["a", "b"].map(str::to_owned).into();
    let unrecorded = unrecorded_absences(&all, &world.pods, &registered);
    assert_eq!(unrecorded, ["a", "c", "e", "f"].into());
}

#[rstest]
#[case(IntOrString::Int(2), 2)]
#[case(IntOrString::String("10%".to_owned()), 1)]
#[case(IntOrString::String("21%".to_owned()), 3)]
#[case(IntOrString::String("100%".to_owned()), 10)]
fn percentage_is_rounded_up(#[case] max_unavailable: IntOrString, #[case] expected: usize) {
    let world = World {
        max_unavailable,
        ..mk("a=old- b=old- c=old- d=old- e=old- f=old- g=old- h=old- i=old- j=old-")
    };
    assert_eq!(judge(&world).replace.len(), expected);
}

#[test]
fn ready_pod_is_incomplete_before_registration() {
    let world = World {
        unregistered: vec!["a"],
        ..mk("a=new- b=old-")
    };
    let rollout = judge(&world);
    assert_eq!((rollout.updated, rollout.serving, rollout.outdated), (0, 1, 1));
    assert!(rollout.replace.is_empty() && !rollout.is_stopped());
    assert_eq!(rollout.look_again, Some(Duration::from_mins(5)));
}

#[test]
fn late_pod_is_named_with_its_reason() {
    let rollout = judge(&mk("a=new! b=old-"));
    assert!(rollout.is_stopped() && !rollout.is_done());
    assert_eq!(
        rollout.failed,
        [FailedNode {
            node: "a".to_owned(),
            pod: Some("pod-a".to_owned()),
            reason: "CrashLoopBackOff: back-off 5m0s".to_owned()
        }]
    );
}

#[test]
fn ready_pod_without_registration_fails() {
    let mut world = mk("a=new- b=old-");
    (world.unregistered, world.lacking) = (vec!["a"], vec!["a"]);
    world.pods[0].since = Timestamp::from_second(now().as_second() - 301).ok();
    let rollout = judge(&world);
    assert!(rollout.failed[0].reason.contains("CSINode"), "{rollout:?}");
}

#[test]
fn unknown_revision_replaces_no_pod() {
    let world = mk("a=old- b=old?");
    let all: BTreeSet<String> = ["a", "b"].map(str::to_owned).into();
    let rollout = node_rollout(&Nodes {
        ready: &times(&world),
        pods: &world.pods,
        registered: &all,
        revision: None,
        lacking: &BTreeMap::new(),
        broken_before: &[],
        max_unavailable: &IntOrString::Int(1),
        replaces: true,
        deadline: Duration::from_mins(5),
        now: now(),
    });
    assert_eq!((rollout.desired, rollout.updated, rollout.serving), (2, 0, 1));
    assert!(rollout.replace.is_empty());
}
