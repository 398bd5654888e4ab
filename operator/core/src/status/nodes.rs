// SPDX-License-Identifier: Apache-2.0
//! Nodes without the driver, and whether their number exceeds the limit.

use std::collections::BTreeSet;

use cinder_csi_crds::CinderCSIDriverStatus;

use super::verdict::{Verdict, verdict};
use crate::{
    cluster::{NodesView, describe_nodes},
    decide::Outcome,
    problem::Problem,
    reasons::{Available, Degraded},
    text::{in_words, join_truncated},
};

/// The nodes without the driver, by cause. Each node has one cause.
pub(super) struct AbsentNodes<'a> {
    outcome: &'a Outcome,
    /// Ready nodes whose kubelet has not registered the driver.
    unregistered: BTreeSet<&'a str>,
    /// Ready nodes whose kubelet has registered the driver, and whose pod is not ready.
    down: BTreeSet<&'a str>,
    /// Maximum number of nodes without the driver.
    limit: usize,
}

impl<'a> AbsentNodes<'a> {
    /// Lists the nodes that have been without the driver for longer than the registration deadline.
    pub(super) fn of(outcome: &'a Outcome) -> Self {
        let failed = outcome.node_rollout.iter().flat_map(|rollout| &rollout.failed);
        let failed: BTreeSet<&str> = failed.map(|failed| failed.node.as_str()).collect();
        let missing: BTreeSet<&str> = outcome.nodes.unregistered.iter().map(String::as_str).collect();
        let limit = outcome.node_rollout.as_ref().map_or(1, |rollout| rollout.limit);
        Self {
            outcome,
            unregistered: failed.intersection(&missing).copied().collect(),
            down: failed.difference(&missing).copied().collect(),
            limit: limit.max(1),
        }
    }

    /// Adds unregistered nodes within the deadline, if the driver has never served or no node has it.
    fn with_starting(mut self, previous: Option<&CinderCSIDriverStatus>) -> Self {
        let nodes = &self.outcome.nodes;
        if nodes.registered == 0 || !has_served(previous) {
            self.unregistered.extend(nodes.unregistered.iter().map(String::as_str));
        }
        self
    }

    fn count(&self) -> usize {
        self.unregistered.len() + self.down.len() + self.outcome.nodes.unserved.len()
    }

    /// Whether their number exceeds spec.node.update.maxUnavailable, or equals all Ready nodes.
    fn are_too_many(&self) -> bool {
        let nodes = &self.outcome.nodes;
        let ready = nodes.desired.saturating_sub(nodes.not_ready.len());
        self.count() > self.limit || ready > 0 && self.unregistered.len() + self.down.len() >= ready
    }

    /// Whether a problem affects so few nodes that the driver can be upgraded.
    pub(super) fn are_tolerated(&self, problem: &Problem) -> bool {
        [Degraded::NodePodsFailing, Degraded::NodesWithoutDriver].contains(&problem.reason) && !self.are_too_many()
    }

    /// Returns the most frequent cause.
    fn reason(&self) -> Available {
        let counts = [
            (self.outcome.nodes.unserved.len(), Available::NodesWithoutDriver),
            (self.down.len(), Available::NodePodsDown),
            (self.unregistered.len(), Available::NodesUnregistered),
        ];
        let most = counts.into_iter().max_by_key(|(count, _)| *count);
        most.map_or(Available::NodesUnregistered, |(_, reason)| reason)
    }

    fn message(&self) -> String {
        let nodes = &self.outcome.nodes;
        let names = |names: &BTreeSet<&str>| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            join_truncated(&names)
        };
        let of_all = |count: usize| format!("{count} of {}", in_words(nodes.needed(), "node"));
        let mut parts = Vec::new();
        if !self.unregistered.is_empty() {
            parts.push(format!(
                "{} have no CSINode entry of the driver, and their pods cannot use volumes: {}; check the node pods there and their logs",
                of_all(self.unregistered.len()),
                names(&self.unregistered)
            ));
        }
        if !self.down.is_empty() {
            parts.push(format!(
                "on {} the driver's pod does not serve, and no volume can be mounted or unmounted: {}; condition Degraded has the causes",
                of_all(self.down.len()),
                names(&self.down)
            ));
        }
        if !nodes.unserved.is_empty() {
            parts.push(without_driver(nodes));
        }
        parts.push(format!(
            "spec.node.update.maxUnavailable allows {}",
            in_words(self.limit, "node")
        ));
        parts.join(". ")
    }
}

/// Whether all nodes have the newest pod, except so few nodes without the driver that the rollout counts as complete.
pub(super) fn is_settled(outcome: &Outcome) -> bool {
    let absent = AbsentNodes::of(outcome);
    outcome.node_rollout.as_ref().is_some_and(|nodes| {
        let has_ended = nodes.outdated == 0 && nodes.updated + nodes.failed.len() == nodes.desired;
        nodes.is_done() || has_ended && !absent.are_too_many()
    })
}

/// Whether an unregistered node is within the deadline, or too many have exceeded it.
pub(super) fn awaits_registration(outcome: &Outcome) -> bool {
    let (all, lost) = (
        outcome.nodes.unregistered.len(),
        AbsentNodes::of(outcome).unregistered.len(),
    );
    all > lost || lost > 0 && !is_settled(outcome)
}

/// Counts the nodes that have been without the driver for longer than the registration deadline.
pub fn absent_nodes(outcome: &Outcome) -> usize {
    AbsentNodes::of(outcome).count()
}

/// Returns the verdict if too many nodes are without the driver.
pub(super) fn unavailable(previous: Option<&CinderCSIDriverStatus>, outcome: &Outcome) -> Option<Verdict<Available>> {
    let absent = AbsentNodes::of(outcome).with_starting(previous);
    absent
        .are_too_many()
        .then(|| verdict(absent.reason(), absent.message()))
}

/// Returns the message about a serving driver, with the number of nodes.
pub(super) fn available(outcome: &Outcome) -> String {
    let (nodes, absent) = (&outcome.nodes, AbsentNodes::of(outcome));
    let extent = match absent.count() {
        0 if nodes.unregistered.is_empty() => {
            "the driver is registered on every Ready node that should have it".to_owned()
        }
        0 => format!(
            "the driver is registered on {} of {}; the others start it",
            nodes.registered,
            in_words(nodes.desired, "node")
        ),
        count => format!(
            "{count} of {} are without the driver, not more than spec.node.update.maxUnavailable allows ({}): condition Degraded \
             names them",
            in_words(nodes.needed(), "node"),
            absent.limit
        ),
    };
    format!("the controller serves, and {extent}")
}

/// Whether the driver has served the nodes before.
fn has_served(status: Option<&CinderCSIDriverStatus>) -> bool {
    let available = status.and_then(|status| status.condition(cinder_csi_crds::ConditionType::Available));
    is_in_place(status) || available.is_some_and(|available| available.status == "True")
}

/// Whether a version of the driver has been installed in all pods before.
pub(super) fn is_in_place(status: Option<&CinderCSIDriverStatus>) -> bool {
    status.is_some_and(|status| status.version.is_some())
}

/// Returns the message about nodes with volumes and without the node plugin.
pub(super) fn without_driver(nodes: &NodesView) -> String {
    format!(
        "volumes are attached on {} where no pod of the driver runs, because the DaemonSet excludes them (nodeSelector, affinity, \
         tolerations): {}. Pods there can neither unmount their volumes nor be deleted; let spec.node include the nodes again, or \
         restore their labels and taints, until the volumes are detached",
        in_words(nodes.unserved.len(), "node"),
        describe_nodes(&nodes.unserved)
    )
}
