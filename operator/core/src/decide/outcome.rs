// SPDX-License-Identifier: Apache-2.0
//! What came of a decision.

use k8s_openapi::api::core::v1::PodSpec;

use super::{Decision, Facts, Workload};
use crate::{cluster::NodesView, plan::FailedWrite, problem::Problem, record::DriverRecord, rollout::NodeRollout};

/// What acting came to, and how the driver is after it.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Writes that failed.
    pub failures: Vec<FailedWrite>,
    /// What else failed.
    pub problems: Vec<Problem>,
    /// The controller.
    pub controller: Option<Workload>,
    /// The DaemonSet.
    pub daemon_set: Option<Workload>,
    /// The nodes.
    pub nodes: NodesView,
    /// The pod template of the DaemonSet, where excluded nodes are to be found.
    pub node_template: Option<Box<PodSpec>>,
    /// The pods on the nodes, once they were judged.
    pub node_rollout: Option<NodeRollout>,
    /// The StorageClasses that exist.
    pub storage_classes: Vec<String>,
    /// The records outside the driver's Secret; `None` where they stay as they are.
    pub record: Option<DriverRecord>,
}

/// One reconcile, from which the status is made.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// What was observed.
    pub facts: Facts,
    /// What was decided.
    pub decision: Decision,
    /// What came of it.
    pub outcome: Outcome,
}

impl Report {
    /// What stands against the spec or went wrong, but for single writes.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        let Self {
            facts,
            decision,
            outcome,
        } = self;
        facts
            .needed_clouds
            .iter()
            .chain(&decision.problems)
            .chain(&outcome.problems)
    }

    /// Whether something keeps the driver from becoming what the spec wants.
    pub fn is_held_up(&self) -> bool {
        let is_planned = self.decision.plan.obstacles.is_empty() && self.outcome.failures.is_empty();
        !is_planned || self.problems().next().is_some()
    }
}
