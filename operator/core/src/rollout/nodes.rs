// SPDX-License-Identifier: Apache-2.0
//! The pods on the nodes: which are done, which are to be replaced now, which did not come up.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use cinder_csi_crds::FailedNode;
use k8s_openapi::{apimachinery::pkg::util::intstr::IntOrString, jiff::Timestamp};

use crate::cluster::NodePod;

/// How many nodes without the driver the status records. Beyond that, those whose new pod fails count as failures of the rollout.
const MOST_BROKEN: usize = 200;

/// How long until a node that was just recorded is looked at again.
const RECORDED_IN: Duration = Duration::from_secs(1);

/// The nodes of a driver, as they were found.
#[derive(Debug)]
pub struct Nodes<'a> {
    /// Names of the nodes where a pod should run and the kubelet answers.
    pub ready: &'a BTreeSet<String>,
    /// The driver's pods on nodes.
    pub pods: &'a [NodePod],
    /// The nodes whose kubelet knows the driver.
    pub registered: &'a BTreeSet<String>,
    /// The revision that pods should be made from; `None` while the DaemonSet's controller has not made it yet.
    pub revision: Option<&'a str>,
    /// How long nodes have had no pod, or only one that ends; none of those that have one.
    pub lacking: &'a BTreeMap<String, Duration>,
    /// Nodes that were without the driver before their pods were replaced, as the status has recorded them.
    pub broken_before: &'a [String],
    /// How many nodes may be without the driver at once.
    pub max_unavailable: &'a IntOrString,
    /// Whether outdated pods are replaced at all.
    pub replaces: bool,
    /// How long a new pod may take to be Ready and registered.
    pub deadline: Duration,
    /// The present time.
    pub now: Timestamp,
}

/// A pod that is to be deleted, so that a new one takes its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replacement {
    /// Where.
    pub node: String,
    /// Its name.
    pub pod: String,
    /// Its uid.
    pub uid: String,
}

/// How far the node pods are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeRollout {
    /// Nodes that answer and should have a pod.
    pub desired: usize,
    /// Nodes whose pod is of the wanted revision, serves and is registered.
    pub updated: usize,
    /// Nodes with a pod of whatever revision that serves and is registered.
    pub serving: usize,
    /// Nodes whose pod is of another revision.
    pub outdated: usize,
    /// Nodes that have been without the driver for longer than a new pod may take, whatever its revision; sorted.
    pub failed: Vec<FailedNode>,
    /// How many of them have lost the driver by this rollout: the others were without it before.
    pub lost: usize,
    /// How many nodes may be without the driver at once.
    pub limit: usize,
    /// Nodes that were without the driver before their pods are replaced, sorted; to be recorded.
    pub broken_before: Vec<String>,
    /// The pods to be deleted now.
    pub replace: Vec<Replacement>,
    /// When a pod that is coming up will have taken too long; nothing else may tell of that.
    pub look_again: Option<Duration>,
}

impl NodeRollout {
    /// Whether every node that answers has what it should have.
    pub fn is_done(&self) -> bool {
        self.updated == self.desired
    }

    /// Whether it goes no further, because it has taken the driver from as many nodes as may be without it at once.
    pub fn is_stopped(&self) -> bool {
        self.lost > 0 && self.lost >= self.limit
    }

    /// Whether more nodes are without the driver, and for longer, than a rollout may bring about.
    pub fn is_down(&self) -> bool {
        self.failed.len() > self.limit.max(1)
    }
}

/// How a node is.
enum State<'a> {
    /// As it should be.
    Done,
    /// It has no pod that serves yet, and some time left.
    Coming { left: Duration },
    /// It has taken too long.
    Failed(FailedNode),
    /// The old pod serves.
    Outdated(&'a NodePod),
    /// The old pod does not serve: nothing is lost by replacing it. It has some time left, or has taken too long.
    Broken(&'a NodePod, Result<Duration, FailedNode>),
}

/// Judges the nodes and says what is to be done about their pods.
pub fn node_rollout(nodes: &Nodes<'_>) -> NodeRollout {
    let mut rollout = NodeRollout {
        desired: nodes.ready.len(),
        limit: scaled(nodes.max_unavailable, nodes.ready.len()),
        ..NodeRollout::default()
    };
    let Some(revision) = nodes.revision else {
        rollout.serving = nodes.ready.iter().filter(|node| serving(nodes, node).is_some()).count();
        return rollout;
    };
    let by_node = newest_by_node(nodes.pods);
    let was_broken: BTreeSet<&str> = nodes.broken_before.iter().map(String::as_str).collect();
    let (mut healthy, mut broken) = (Vec::new(), Vec::new());
    // Nodes that are without the driver now and not for long.
    let mut coming = 0;
    let mut look_again = Vec::new();
    for node in nodes.ready {
        let is_known = was_broken.contains(node.as_str());
        let state = state(nodes, revision, node, by_node.get(node.as_str()).copied());
        if matches!(state, State::Broken(..)) || is_known && matches!(state, State::Coming { .. } | State::Failed(_)) {
            rollout.broken_before.push(node.clone());
        }
        match state {
            State::Done => {
                rollout.updated += 1;
                rollout.serving += 1;
            }
            State::Outdated(pod) => {
                rollout.serving += 1;
                rollout.outdated += 1;
                healthy.push(pod);
            }
            State::Broken(pod, taken) => {
                rollout.outdated += 1;
                let is_young = taken.is_ok();
                match taken {
                    Ok(left) => look_again.push(left),
                    Err(failed) => rollout.failed.push(failed),
                }
                broken.push((pod, is_young, is_known));
            }
            State::Coming { left } => {
                coming += 1;
                look_again.push(left);
            }
            State::Failed(failed) => {
                rollout.lost += usize::from(!is_known);
                rollout.failed.push(failed);
            }
        }
    }
    // In the order of the nodes' names, so that one that looks again before the last deletion is seen chooses the same.
    let is_full = rollout.broken_before.len() > MOST_BROKEN;
    rollout.broken_before.truncate(MOST_BROKEN);
    if nodes.replaces && !rollout.is_stopped() {
        let budget = rollout.limit.saturating_sub(coming + rollout.lost);
        let (first, rest) = broken.split_at(budget.min(broken.len()));
        // What fails on a node counts unless it is recorded that the node was broken before.
        let now = first
            .iter()
            .filter(|(_, _, is_known)| *is_known || is_full)
            .map(|(pod, ..)| *pod);
        let now: Vec<&NodePod> = now.collect();
        if now.len() < first.len() {
            look_again.push(RECORDED_IN);
        }
        let may_return = rest.iter().filter(|(_, is_young, _)| *is_young).count();
        let left = budget.saturating_sub(first.len() + may_return);
        let chosen = now.into_iter().chain(healthy.into_iter().take(left));
        rollout.replace = chosen.map(Replacement::of).collect();
    }
    rollout.look_again = look_again.into_iter().min();
    rollout
}

impl Replacement {
    fn of(pod: &NodePod) -> Self {
        Self {
            node: pod.node.clone(),
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
        }
    }
}

/// The nodes where no pod is, or only one that ends.
pub fn without_pod<'a>(ready: &'a BTreeSet<String>, pods: &[NodePod]) -> BTreeSet<&'a str> {
    let staying: BTreeSet<&str> = pods
        .iter()
        .filter(|pod| !pod.leaving)
        .map(|pod| pod.node.as_str())
        .collect();
    ready
        .iter()
        .map(String::as_str)
        .filter(|node| !staying.contains(node))
        .collect()
}

fn state<'a>(nodes: &Nodes<'_>, revision: &str, node: &str, pod: Option<&'a NodePod>) -> State<'a> {
    let is_registered = nodes.registered.contains(node);
    let is_of_revision = pod.is_none_or(|pod| pod.leaving || pod.revision == revision);
    match pod.filter(|pod| !pod.leaving && pod.ready && is_registered) {
        Some(_) if is_of_revision => return State::Done,
        Some(pod) => return State::Outdated(pod),
        None => {}
    }
    let taken = match pod.filter(|pod| !pod.leaving) {
        Some(pod) => pod
            .since
            .map_or(Duration::ZERO, |since| nodes.now.duration_since(since).unsigned_abs()),
        None => nodes.lacking.get(node).copied().unwrap_or_default(),
    };
    let left = nodes.deadline.checked_sub(taken).filter(|left| !left.is_zero());
    let left = left.ok_or_else(|| FailedNode {
        node: node.to_owned(),
        pod: pod.map(|pod| pod.name.clone()),
        reason: reason(pod),
    });
    match (pod, left) {
        (Some(pod), left) if !is_of_revision => State::Broken(pod, left),
        (_, Ok(left)) => State::Coming { left },
        (_, Err(failed)) => State::Failed(failed),
    }
}

/// Why a node is without the driver.
fn reason(pod: Option<&NodePod>) -> String {
    let reason = match pod {
        None => "the DaemonSet's controller has made no pod: `kubectl describe` of the DaemonSet shows why",
        Some(pod) if pod.leaving => "the pod was deleted and does not end",
        Some(NodePod { ready: true, .. }) => {
            "the pod is Ready, and the kubelet does not list the driver in the node's CSINode"
        }
        Some(NodePod {
            trouble: Some(trouble), ..
        }) => trouble.as_str(),
        Some(_) => "the pod does not become Ready",
    };
    reason.to_owned()
}

/// The pod of each node: one that stays before one that leaves.
fn newest_by_node(pods: &[NodePod]) -> BTreeMap<&str, &NodePod> {
    let mut by_node = BTreeMap::new();
    for pod in pods {
        let known = by_node.entry(pod.node.as_str()).or_insert(pod);
        if known.leaving && !pod.leaving {
            *known = pod;
        }
    }
    by_node
}

fn serving<'a>(nodes: &'a Nodes<'_>, node: &str) -> Option<&'a NodePod> {
    let is_of_node = |pod: &&NodePod| pod.node == node && pod.ready && !pod.leaving;
    nodes
        .pods
        .iter()
        .find(is_of_node)
        .filter(|_| nodes.registered.contains(node))
}

/// A number, or a percentage of all rounded up, as DaemonSets take it; at least one, or nothing would ever be replaced.
pub fn scaled(wanted: &IntOrString, all: usize) -> usize {
    let number = match wanted {
        IntOrString::Int(number) => usize::try_from(*number).unwrap_or_default(),
        IntOrString::String(text) => {
            let percent: usize = text.trim_end_matches('%').parse().unwrap_or_default();
            (all * percent).div_ceil(100)
        }
    };
    number.max(1)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T10:00:00Z".parse().expect("a time")
    }

    /// A pod by its node; revision `new` or `old`, and what is wrong: `-` nothing, `?` not Ready, `!` not Ready for long,
    /// `x` leaving.
    fn mk_pod(node: &str, revision: &str, wrong: &str) -> NodePod {
        let seconds = if wrong == "!" { 301 } else { 10 };
        NodePod {
            name: format!("pod-{node}"),
            uid: format!("uid-{node}"),
            node: node.to_owned(),
            revision: revision.to_owned(),
            ready: wrong == "-" || wrong == "x",
            leaving: wrong == "x",
            since: Timestamp::from_second(now().as_second() - seconds).ok(),
            trouble: (wrong == "!").then(|| "CrashLoopBackOff: back-off 5m0s".to_owned()),
        }
    }

    struct World {
        pods: Vec<NodePod>,
        unregistered: Vec<&'static str>,
        /// Nodes that have had no pod for longer than the deadline.
        lacking: Vec<&'static str>,
        broken_before: Vec<&'static str>,
        max_unavailable: IntOrString,
    }

    /// Nodes as `a=new- b=old? c=`.
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
            max_unavailable: IntOrString::Int(1),
        }
    }

    fn judge(world: &World) -> NodeRollout {
        let all: BTreeSet<String> = world.pods.iter().map(|pod| pod.node.clone()).collect();
        let mut registered = all.clone();
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
    fn failures_count_against_what_may_be_unavailable(
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
    fn that_a_node_was_broken_is_recorded_before_its_pod_goes() {
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
    fn no_more_nodes_are_recorded_than_the_status_takes() {
        let nodes: Vec<String> = (0..=MOST_BROKEN).map(|number| format!("n{number:03}=old!")).collect();
        let rollout = judge(&mk(&nodes.join(" ")));
        assert_eq!(rollout.broken_before.len(), MOST_BROKEN);
        assert_eq!(replaced(&rollout), ["n000"], "none waits for a record that has no room");
    }

    #[rstest]
    #[case::as_many_as_a_rollout_may_take("a=old! b=new- c=new-", &[], false)]
    #[case::more_of_whatever_revision("a=old! b=new! c=new-", &[], true)]
    #[case::not_before_their_time("a=old! b=new? c=old?", &[], false)]
    #[case::no_pod_for_long("a= b= c=new-", &["a", "b"], true)]
    #[case::no_pod_for_a_moment("a= b= c=new-", &["a"], false)]
    fn more_nodes_without_the_driver_than_may_be_are_down(
        #[case] nodes: &str,
        #[case] lacking: &[&'static str],
        #[case] expected: bool,
    ) {
        let world = World {
            lacking: lacking.to_vec(),
            ..mk(nodes)
        };
        let rollout = judge(&world);
        assert_eq!(rollout.is_down(), expected, "{rollout:?}");
    }

    #[test]
    fn a_broken_pod_of_an_old_revision_is_named_also_where_none_is_replaced() {
        let rollout = judge(&mk("a=old! b=old-"));
        assert_eq!(rollout.failed[0].reason, "CrashLoopBackOff: back-off 5m0s");
        assert!(!rollout.is_stopped(), "it is no failure of a rollout");
    }

    #[test]
    fn a_node_without_a_pod_for_long_has_failed() {
        let mut world = mk("a= b=new-");
        world.lacking = vec!["a"];
        let rollout = judge(&world);
        assert_eq!(rollout.failed[0].reason, "the pod was deleted and does not end");
        let without: BTreeSet<String> = ["a", "b", "c"].map(str::to_owned).into();
        assert_eq!(without_pod(&without, &world.pods), ["a", "c"].into());
    }

    #[rstest]
    #[case(IntOrString::Int(2), 2)]
    #[case(IntOrString::String("10%".to_owned()), 1)]
    #[case(IntOrString::String("21%".to_owned()), 3)]
    #[case(IntOrString::String("100%".to_owned()), 10)]
    fn a_percentage_is_rounded_up(#[case] max_unavailable: IntOrString, #[case] expected: usize) {
        let world = World {
            max_unavailable,
            ..mk("a=old- b=old- c=old- d=old- e=old- f=old- g=old- h=old- i=old- j=old-")
        };
        assert_eq!(judge(&world).replace.len(), expected);
    }

    #[test]
    fn a_ready_pod_is_not_done_before_the_kubelet_lists_the_driver() {
        let world = World {
            unregistered: vec!["a"],
            ..mk("a=new- b=old-")
        };
        let rollout = judge(&world);
        assert_eq!((rollout.updated, rollout.serving, rollout.outdated), (0, 1, 1));
        assert!(rollout.replace.is_empty() && !rollout.is_stopped());
        assert_eq!(rollout.look_again, Some(Duration::from_secs(290)));
    }

    #[test]
    fn a_pod_that_does_not_come_up_in_time_is_named_with_the_reason() {
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
    fn a_pod_that_is_ready_for_long_and_not_registered_has_failed_too() {
        let mut world = mk("a=new- b=old-");
        world.unregistered = vec!["a"];
        world.pods[0].since = Timestamp::from_second(now().as_second() - 301).ok();
        let rollout = judge(&world);
        assert!(rollout.failed[0].reason.contains("CSINode"), "{rollout:?}");
    }

    #[test]
    fn while_the_revision_is_not_known_nothing_is_replaced() {
        let world = mk("a=old- b=old?");
        let all: BTreeSet<String> = ["a", "b"].map(str::to_owned).into();
        let rollout = node_rollout(&Nodes {
            ready: &all,
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
}
