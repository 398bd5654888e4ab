// SPDX-License-Identifier: Apache-2.0
//! Evaluates the node pods: updated pods, pods to replace now, and pods that do not start.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use cinder_csi_crds::FailedNode;
use k8s_openapi::{apimachinery::pkg::util::intstr::IntOrString, jiff::Timestamp};

use crate::cluster::{NodePod, NodeTimes};

/// Maximum number of nodes without the driver in the status. Beyond it, nodes with a failing new pod count as
/// failures of the rollout.
const MOST_BROKEN: usize = 200;

/// Time until the next check of a newly recorded node.
const RECORDED_IN: Duration = Duration::from_secs(1);

/// The observed nodes of a driver.
#[derive(Debug)]
pub struct Nodes<'a> {
    /// Nodes where a pod should run and the kubelet responds, by name.
    pub ready: &'a BTreeMap<String, NodeTimes>,
    pub pods: &'a [NodePod],
    /// Nodes whose kubelet has registered the driver.
    pub registered: &'a BTreeSet<String>,
    /// Desired revision of pods. `None` while the DaemonSet controller has not created it yet.
    pub revision: Option<&'a str>,
    /// Time that the nodes of [`unrecorded_absences`] have been without the driver, as observed by the operator.
    pub lacking: &'a BTreeMap<String, Duration>,
    /// Nodes that were without the driver before their pods were replaced, according to the status.
    pub broken_before: &'a [String],
    /// Maximum number of nodes without the driver at the same time.
    pub max_unavailable: &'a IntOrString,
    /// Whether the operator replaces outdated pods.
    pub replaces: bool,
    /// Time for a new pod to become Ready and registered.
    pub deadline: Duration,
    pub now: Timestamp,
}

/// A pod to delete, so that a new one replaces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replacement {
    pub node: String,
    pub pod: String,
    pub uid: String,
}

/// Progress of the node pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeRollout {
    /// Number of nodes that respond and should have a pod.
    pub desired: usize,
    /// Number of nodes with a ready and registered pod of the desired revision.
    pub updated: usize,
    /// Number of nodes with a ready and registered pod of any revision.
    pub serving: usize,
    /// Number of nodes that lost the driver less than a deadline ago, without joining nodes.
    pub coming: usize,
    /// Number of nodes with a pod of another revision.
    pub outdated: usize,
    pub is_revision_known: bool,
    /// Nodes that have been without the driver for longer than the deadline, with a pod of any revision, sorted.
    pub failed: Vec<FailedNode>,
    /// Number of failed nodes that lost the driver by this rollout. The others lacked it before, or joined without
    /// it.
    pub lost: usize,
    /// Maximum number of nodes without the driver at the same time.
    pub limit: usize,
    /// Nodes to record, sorted. They were without the driver before their pods are replaced, or joined without it.
    pub broken_before: Vec<String>,
    /// Pods to delete now.
    pub replace: Vec<Replacement>,
    /// Time until a starting pod exceeds its deadline. No event reports this.
    pub look_again: Option<Duration>,
}

impl NodeRollout {
    /// Whether every responding node has an updated, ready pod.
    pub fn is_done(&self) -> bool {
        self.updated == self.desired
    }

    /// Whether no Ready node has a pod of another revision.
    pub fn has_only_new_pods(&self) -> bool {
        self.is_revision_known && self.outdated == 0
    }

    /// Whether the rollout has stopped, because it has removed the driver from the maximum number of nodes.
    pub fn is_stopped(&self) -> bool {
        self.lost > 0 && self.lost >= self.limit
    }

    /// Whether pods are still to be replaced, or more nodes than allowed, or all nodes, wait for the new pod.
    pub fn is_replacing(&self) -> bool {
        self.outdated > 0 || self.coming > self.limit || self.desired > 0 && self.serving == 0
    }
}

/// State of a node.
enum State<'a> {
    /// The node has an updated, ready pod.
    Done,
    /// The node has no ready pod yet, and some time remains.
    Coming { remaining: Duration },
    /// The deadline has passed.
    Failed(FailedNode),
    /// The old pod is ready.
    Outdated(&'a NodePod),
    /// The old pod is not ready, so its replacement loses nothing. Some time remains, or the deadline has passed.
    Broken(&'a NodePod, Result<Duration, FailedNode>),
}

/// Evaluates the nodes and selects the pods to replace.
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
                    Ok(remaining) => look_again.push(remaining),
                    Err(failed) => rollout.failed.push(failed),
                }
                broken.push((pod, is_young, is_known));
            }
            State::Coming { remaining } => {
                rollout.coming += usize::from(!is_joining);
                look_again.push(remaining);
            }
            State::Failed(failed) => {
                rollout.lost += usize::from(!is_known && !is_joining);
                rollout.failed.push(failed);
            }
        }
    }
    // The order by node name is stable. A second reconcile before the deletion is visible selects the same nodes.
    let is_full = rollout.broken_before.len() > MOST_BROKEN;
    rollout.broken_before.extend(joining);
    rollout.broken_before.truncate(MOST_BROKEN);
    rollout.broken_before.sort();
    if nodes.replaces && !rollout.is_stopped() {
        let budget = rollout.limit.saturating_sub(rollout.coming + rollout.lost);
        let (first, rest) = broken.split_at(budget.min(broken.len()));
        // A failure on a node counts unless the status records that the node lacked the driver before.
        let now = first
            .iter()
            .filter(|(_, _, is_known)| *is_known || is_full)
            .map(|(pod, ..)| *pod);
        let now: Vec<&NodePod> = now.collect();
        if now.len() < first.len() {
            look_again.push(RECORDED_IN);
        }
        let may_return = rest.iter().filter(|(_, is_young, _)| *is_young).count();
        let remaining = budget.saturating_sub(first.len() + may_return);
        let chosen = now.into_iter().chain(healthy.into_iter().take(remaining));
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

/// Returns the nodes without the driver for which no object records the start. They have no lasting pod, or a Ready
/// pod without a registration.
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
    let remaining = nodes
        .deadline
        .checked_sub(taken)
        .filter(|remaining| !remaining.is_zero());
    let remaining = remaining.ok_or_else(|| FailedNode {
        node: node.to_owned(),
        pod: pod.map(|pod| pod.name.clone()),
        reason: reason(pod),
    });
    match (pod, remaining) {
        (Some(pod), remaining) if !is_of_revision => State::Broken(pod, remaining),
        (_, Ok(remaining)) => State::Coming { remaining },
        (_, Err(failed)) => State::Failed(failed),
    }
}

/// Returns how long a node has been Ready and without the driver. An absence without a recorded start begins with its
/// first observation.
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

/// Whether an unregistered node still waits for its first pod, or has the pod that it received when it joined. A node
/// whose pod was replaced retains its registration.
fn is_joining(nodes: &Nodes<'_>, (node, times): (&str, &NodeTimes), pod: Option<&NodePod>) -> bool {
    let waits = match pod.filter(|pod| !pod.leaving) {
        Some(pod) => age(nodes, pod.created),
        None => nodes.lacking.get(node).copied().unwrap_or_default(),
    };
    let is_young = |created| age(nodes, Some(created)).saturating_sub(waits) < nodes.deadline;
    !nodes.registered.contains(node) && times.created.is_some_and(is_young)
}

/// Returns the time since a moment. Zero for an unknown or a future moment.
fn age(nodes: &Nodes<'_>, since: Option<Timestamp>) -> Duration {
    let age = since.and_then(|since| Duration::try_from(nodes.now.duration_since(since)).ok());
    age.unwrap_or_default()
}

/// Returns why a node is without the driver.
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

/// Returns one pod per node. A lasting pod takes precedence over one that is being deleted.
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

/// Returns a number, or a percentage of all rounded up, as DaemonSets interpret it. The minimum is one, because with
/// zero no pod would ever be replaced.
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
