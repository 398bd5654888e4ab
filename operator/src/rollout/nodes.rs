//! The pods on the nodes: which are done, which are to be replaced now, which did not come up.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use cinder_csi_crds::FailedNode;
use k8s_openapi::{apimachinery::pkg::util::intstr::IntOrString, jiff::Timestamp};

/// Label of pods that tells the revision of the DaemonSet that they were made from. Its controller sets it.
pub const REVISION_LABEL: &str = "controller-revision-hash";

/// A pod of the driver on a node, as far as it matters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodePod {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Where it runs.
    pub node: String,
    /// The revision that it was made from.
    pub revision: String,
    /// Whether it is Ready.
    pub ready: bool,
    /// Whether it is on its way out.
    pub leaving: bool,
    /// Since when it is as it is: Ready or not, or made.
    pub since: Option<Timestamp>,
    /// What holds it up, in the words of the kubelet or the scheduler.
    pub trouble: Option<String>,
}

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
    /// Nodes whose new pod did not come up in time, sorted.
    pub failed: Vec<FailedNode>,
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

    /// Whether it goes no further, because new pods did not come up.
    pub fn is_stopped(&self) -> bool {
        !self.failed.is_empty()
    }
}

/// How a node is.
enum State<'a> {
    /// As it should be.
    Done,
    /// The new pod has some time left.
    Coming { left: Duration },
    /// The new pod has taken too long.
    Failed(FailedNode),
    /// The old pod serves.
    Outdated(&'a NodePod),
    /// The old pod does not serve: nothing is lost by replacing it.
    Broken(&'a NodePod),
    /// There is no pod, or only one that ends.
    Missing,
}

/// Judges the nodes and says what is to be done about their pods.
pub fn node_rollout(nodes: &Nodes<'_>) -> NodeRollout {
    let Some(revision) = nodes.revision else {
        let serving = nodes.ready.iter().filter(|node| serving(nodes, node).is_some()).count();
        return NodeRollout {
            desired: nodes.ready.len(),
            serving,
            ..NodeRollout::default()
        };
    };
    let mut rollout = NodeRollout {
        desired: nodes.ready.len(),
        ..NodeRollout::default()
    };
    let by_node = newest_by_node(nodes.pods);
    let (mut healthy, mut broken) = (Vec::new(), Vec::new());
    let mut unavailable = 0;
    for node in nodes.ready {
        match state(nodes, revision, node, by_node.get(node.as_str()).copied()) {
            State::Done => {
                rollout.updated += 1;
                rollout.serving += 1;
            }
            State::Outdated(pod) => {
                rollout.serving += 1;
                rollout.outdated += 1;
                healthy.push(pod);
            }
            State::Broken(pod) => {
                rollout.outdated += 1;
                unavailable += 1;
                broken.push(pod);
            }
            State::Coming { left } => {
                unavailable += 1;
                rollout.look_again = Some(rollout.look_again.map_or(left, |already| already.min(left)));
            }
            State::Failed(failed) => {
                unavailable += 1;
                rollout.failed.push(failed);
            }
            State::Missing => unavailable += 1,
        }
    }
    if !nodes.replaces || rollout.is_stopped() {
        return rollout;
    }
    let budget = scaled(nodes.max_unavailable, rollout.desired).saturating_sub(unavailable);
    // In the order of the nodes' names, so that one that looks again before the last deletion is seen chooses the same.
    let chosen = broken.into_iter().chain(healthy.into_iter().take(budget));
    rollout.replace = chosen
        .map(|pod| Replacement {
            node: pod.node.clone(),
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
        })
        .collect();
    rollout
}

fn state<'a>(nodes: &Nodes<'_>, revision: &str, node: &str, pod: Option<&'a NodePod>) -> State<'a> {
    let Some(pod) = pod.filter(|pod| !pod.leaving) else {
        return State::Missing;
    };
    let is_registered = nodes.registered.contains(node);
    let serves = pod.ready && is_registered;
    match (pod.revision == revision, serves) {
        (true, true) => State::Done,
        (false, true) => State::Outdated(pod),
        (false, false) => State::Broken(pod),
        (true, false) => {
            let taken = pod
                .since
                .map_or(Duration::ZERO, |since| nodes.now.duration_since(since).unsigned_abs());
            match nodes.deadline.checked_sub(taken) {
                Some(left) if !left.is_zero() => State::Coming { left },
                _ => State::Failed(FailedNode {
                    node: node.to_owned(),
                    pod: Some(pod.name.clone()),
                    reason: match (&pod.trouble, pod.ready) {
                        (Some(trouble), false) => trouble.clone(),
                        (None, false) => "the pod does not become Ready".to_owned(),
                        (_, true) => "the pod is Ready, and the kubelet does not list the driver in the node's CSINode"
                            .to_owned(),
                    },
                }),
            }
        }
    }
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
pub(crate) fn scaled(wanted: &IntOrString, all: usize) -> usize {
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
            max_unavailable: IntOrString::Int(1),
        }
    }

    fn judge(world: &World) -> NodeRollout {
        let all: BTreeSet<String> = world.pods.iter().map(|pod| pod.node.clone()).collect();
        let mut registered = all.clone();
        registered.retain(|node| !world.unregistered.contains(&node.as_str()));
        node_rollout(&Nodes {
            ready: &all,
            pods: &world.pods,
            registered: &registered,
            revision: Some("new"),
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
    #[case::what_serves_nobody_is_replaced_first_and_costs_nothing("a=old- b=old? c=old!", &["b", "c"])]
    #[case::nothing_after_a_failure("a=new! b=old- c=old?", &[])]
    fn pods_are_replaced_within_the_budget(#[case] nodes: &str, #[case] expected: &[&str]) {
        assert_eq!(replaced(&judge(&mk(nodes))), expected);
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
            max_unavailable: &IntOrString::Int(1),
            replaces: true,
            deadline: Duration::from_mins(5),
            now: now(),
        });
        assert_eq!((rollout.desired, rollout.updated, rollout.serving), (2, 0, 1));
        assert!(rollout.replace.is_empty());
    }
}
