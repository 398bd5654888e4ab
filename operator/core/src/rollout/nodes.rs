// SPDX-License-Identifier: Apache-2.0
//! The pods on the nodes: which are done, which are to be replaced now, which did not come up.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use cinder_csi_crds::FailedNode;
use k8s_openapi::{apimachinery::pkg::util::intstr::IntOrString, jiff::Timestamp};

use crate::cluster::{NodePod, NodeTimes};

/// How many nodes without the driver the status records. Beyond that, those whose new pod fails count as failures of the rollout.
const MOST_BROKEN: usize = 200;

/// How long until a node that was just recorded is looked at again.
const RECORDED_IN: Duration = Duration::from_secs(1);

/// The nodes of a driver, as they were found.
#[derive(Debug)]
pub struct Nodes<'a> {
    /// The nodes where a pod should run and the kubelet answers, by name.
    pub ready: &'a BTreeMap<String, NodeTimes>,
    /// The driver's pods on nodes.
    pub pods: &'a [NodePod],
    /// The nodes whose kubelet knows the driver.
    pub registered: &'a BTreeSet<String>,
    /// The revision that pods should be made from; `None` while the DaemonSet's controller has not made it yet.
    pub revision: Option<&'a str>,
    /// How long the nodes of [`unrecorded_absences`] have been without the driver, as far as the operator has observed.
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
    /// Number of nodes that lost the driver less than a deadline ago, without joining nodes.
    pub coming: usize,
    /// Nodes whose pod is of another revision.
    pub outdated: usize,
    /// Whether the desired revision is known.
    pub is_revision_known: bool,
    /// Nodes that have been without the driver for longer than a new pod may take, whatever its revision; sorted.
    pub failed: Vec<FailedNode>,
    /// How many of them have lost the driver by this rollout: the others were without it before, or joined without it.
    pub lost: usize,
    /// How many nodes may be without the driver at once.
    pub limit: usize,
    /// Nodes that were without the driver before their pods are replaced, or joined without it; sorted, to be recorded.
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

    /// Whether no Ready node has a pod of another revision.
    pub fn has_only_new_pods(&self) -> bool {
        self.is_revision_known && self.outdated == 0
    }

    /// Whether it goes no further, because it has taken the driver from as many nodes as may be without it at once.
    pub fn is_stopped(&self) -> bool {
        self.lost > 0 && self.lost >= self.limit
    }

    /// Whether pods are still to be replaced, or more nodes than allowed, or all, wait for the new pod.
    pub fn is_replacing(&self) -> bool {
        self.outdated > 0 || self.coming > self.limit || self.desired > 0 && self.serving == 0
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
        is_revision_known: nodes.revision.is_some(),
        ..NodeRollout::default()
    };
    let Some(revision) = nodes.revision else {
        rollout.serving = nodes.ready.keys().filter(|node| serving(nodes, node).is_some()).count();
        rollout.coming = rollout.desired;
        return rollout;
    };
    let by_node = newest_by_node(nodes.pods);
    let was_broken: BTreeSet<&str> = nodes.broken_before.iter().map(String::as_str).collect();
    let (mut healthy, mut broken, mut joining) = (Vec::new(), Vec::new(), Vec::new());
    let mut look_again = Vec::new();
    for (node, times) in nodes.ready {
        let is_known = was_broken.contains(node.as_str());
        let pod = by_node.get(node.as_str()).copied();
        let state = state(nodes, revision, (node, times), pod);
        let is_absent = matches!(state, State::Coming { .. } | State::Failed(_));
        let is_joining = is_absent && is_joining(nodes, (node, times), pod);
        if matches!(state, State::Broken(..)) || is_known && is_absent {
            rollout.broken_before.push(node.clone());
        } else if is_joining {
            joining.push(node.clone());
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
                rollout.coming += usize::from(!is_joining);
                look_again.push(left);
            }
            State::Failed(failed) => {
                rollout.lost += usize::from(!is_known && !is_joining);
                rollout.failed.push(failed);
            }
        }
    }
    // In the order of the nodes' names, so that one that looks again before the last deletion is seen chooses the same.
    let is_full = rollout.broken_before.len() > MOST_BROKEN;
    rollout.broken_before.extend(joining);
    rollout.broken_before.truncate(MOST_BROKEN);
    rollout.broken_before.sort();
    if nodes.replaces && !rollout.is_stopped() {
        let budget = rollout.limit.saturating_sub(rollout.coming + rollout.lost);
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

/// The nodes that are without the driver while no object records since when: without a pod that stays, or with a Ready pod and
/// without a registration.
pub fn unrecorded_absences<'a>(
    ready: &'a BTreeMap<String, NodeTimes>,
    pods: &[NodePod],
    registered: &BTreeSet<String>,
) -> BTreeSet<&'a str> {
    let by_node = newest_by_node(pods);
    let is_unrecorded = |node: &&str| {
        let pod = by_node.get(*node).filter(|pod| !pod.leaving);
        pod.is_none_or(|pod| pod.ready && !registered.contains(*node))
    };
    ready.keys().map(String::as_str).filter(is_unrecorded).collect()
}

fn state<'a>(
    nodes: &Nodes<'_>,
    revision: &str,
    (node, times): (&str, &NodeTimes),
    pod: Option<&'a NodePod>,
) -> State<'a> {
    let is_registered = nodes.registered.contains(node);
    let is_of_revision = pod.is_none_or(|pod| pod.leaving || pod.revision == revision);
    match pod.filter(|pod| !pod.leaving && pod.ready && is_registered) {
        Some(_) if is_of_revision => return State::Done,
        Some(pod) => return State::Outdated(pod),
        None => {}
    }
    let taken = absence(nodes, (node, times), pod.filter(|pod| !pod.leaving));
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

/// How long a node has been without the driver and Ready. An absence that no object records begins with its first observation.
fn absence(nodes: &Nodes<'_>, (node, times): (&str, &NodeTimes), staying: Option<&NodePod>) -> Duration {
    let observed = nodes.lacking.get(node).copied().unwrap_or_default();
    let absence = match staying {
        Some(pod) if pod.ready => age(nodes, pod.since).min(observed),
        Some(pod) => age(nodes, pod.since),
        None => observed,
    };
    times
        .ready
        .map_or(absence, |ready| absence.min(age(nodes, Some(ready))))
}

/// Whether an unregistered node still waits for its first pod, or has the pod that it got when it joined. A node whose pod was
/// replaced keeps its registration.
fn is_joining(nodes: &Nodes<'_>, (node, times): (&str, &NodeTimes), pod: Option<&NodePod>) -> bool {
    let waits = match pod.filter(|pod| !pod.leaving) {
        Some(pod) => age(nodes, pod.created),
        None => nodes.lacking.get(node).copied().unwrap_or_default(),
    };
    let is_young = |created| age(nodes, Some(created)).saturating_sub(waits) < nodes.deadline;
    !nodes.registered.contains(node) && times.created.is_some_and(is_young)
}

/// The time since a moment; none since an unknown or a future one.
fn age(nodes: &Nodes<'_>, since: Option<Timestamp>) -> Duration {
    let age = since.and_then(|since| Duration::try_from(nodes.now.duration_since(since)).ok());
    age.unwrap_or_default()
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
mod tests;
