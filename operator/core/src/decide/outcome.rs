// SPDX-License-Identifier: Apache-2.0
//! The result of acting on a decision.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::PodSpec;

use super::{
    cloud::CloudView,
    decision::Decision,
    facts::{Facts, ProjectGuard, VolumeFacts},
    workload::Workload,
};
use crate::{
    cluster::NodesView, notice::Notice, plan::FailedWrite, problem::Problem, record::DriverRecord, rollout::NodeRollout,
};

/// The result of acting on a decision, and the state of the driver after it.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Writes that failed.
    pub failures: Vec<FailedWrite>,
    /// Other failures.
    pub problems: Vec<Problem>,
    pub controller: Option<Workload>,
    pub daemon_set: Option<Workload>,
    pub nodes: NodesView,
    /// The pod template of the DaemonSet, where excluded nodes are checked for volumes.
    pub node_template: Option<Box<PodSpec>>,
    /// The pods on the nodes, if they were examined.
    pub node_rollout: Option<NodeRollout>,
    /// The names of the existing StorageClasses.
    pub storage_classes: Vec<String>,
    /// The records outside the driver's Secret. `None` if they do not change.
    pub record: Option<DriverRecord>,
    /// The clouds of the spec for which the driver has no credentials.
    pub clouds_without_credentials: BTreeSet<String>,
    /// The clouds with accepted credentials, for which the driver still has others.
    pub clouds_with_old_credentials: BTreeSet<String>,
    /// Whether credentials of another project or region are refused.
    pub guard: ProjectGuard,
    pub volumes: VolumeFacts,
    /// The events of the decision and of the acts.
    pub notices: Vec<Notice>,
}

impl Outcome {
    /// Whether the driver has credentials of a cloud.
    pub fn has_credentials(&self, cloud: &CloudView) -> bool {
        !self.clouds_without_credentials.contains(&cloud.name)
    }

    /// Whether a cloud refuses the driver's own credentials.
    pub fn is_locked_out(&self, cloud: &CloudView) -> bool {
        self.has_credentials(cloud) && cloud.is_rejected() && !cloud.is_changed
    }
}

/// The values of one reconcile.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    pub facts: &'a Facts,
    pub decision: &'a Decision,
    pub outcome: &'a Outcome,
}

impl<'a> Report<'a> {
    /// The problems of the spec and of this reconcile, without failed writes.
    pub fn problems(&self) -> impl Iterator<Item = &'a Problem> {
        let (decision, outcome) = (self.decision, self.outcome);
        let needed = self.facts.needed_clouds.iter().chain(&decision.problems);
        needed.chain(&decision.migration_problems).chain(&outcome.problems)
    }

    /// Whether a problem keeps the driver from the state that the spec describes.
    pub fn is_held_up(&self) -> bool {
        let is_planned = self.decision.plan.obstacles.is_empty() && self.outcome.failures.is_empty();
        !is_planned || self.problems().next().is_some()
    }
}
