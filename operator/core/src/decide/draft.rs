// SPDX-License-Identifier: Apache-2.0
//! The plan before the answers that it depends on.

use cinder_csi_crds::ManagementState;

use super::{
    facts::QueryAnswers,
    held::HeldDesired,
    narrowing::NodesChange,
    queries::{AttachedNodesQuery, Queries},
    situation::Situation,
};
use crate::{
    cluster::Key,
    plan::{Action, Desired, Plan, plan},
    rollout::Gate,
};

/// The plan before the answers about users, nodes and revisions.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) plan: Plan,
    /// The installed versions, and whether an update may begin.
    pub(super) gate: Gate,
    /// The objects of the plan, with the held ones.
    pub(super) held: HeldDesired,
    /// The CSIDriver object with new duties for the nodes, where the plan has it without them.
    pub(super) after_nodes: Option<Desired>,
}

impl Draft {
    /// The workloads that are missing while an update waits. They are recreated from an earlier revision.
    pub(super) fn missing_workloads(&self) -> impl Iterator<Item = &Key> {
        let gate = &self.gate;
        self.plan.actions.iter().filter_map(move |action| match action {
            Action::Create(desired) if gate.hold.is_some() && gate.pinned.contains(desired.key.kind) => {
                Some(&desired.key).filter(|key| !self.held.recorded.contains(*key))
            }
            _ => None,
        })
    }
}

/// Compares the desired objects with the existing ones.
pub(super) fn draft_plan(situation: &Situation<'_>) -> Draft {
    let Situation {
        driver,
        owner,
        intent,
        live,
        last_applied,
        unlisted,
        unapplied,
        instant,
    } = *situation;
    let gate = intent.gate.clone();
    let mut held = intent.holds.hold(owner, &intent.desired, live, last_applied, unlisted);
    held.hold_workloads(owner, &gate, live, last_applied);
    let is_dry_run = driver.spec.management_state == ManagementState::DryRun;
    let after_nodes = if is_dry_run {
        None
    } else {
        held.defer_duties(owner, live)
    };
    let scope = held.plan_scope(intent.is_complete, last_applied);
    Draft {
        plan: plan(owner, &held.desired, live, unapplied, &scope, instant),
        gate,
        held,
        after_nodes,
    }
}

impl Draft {
    /// Whether the plan writes a DaemonSet that could exclude a node of the present one.
    fn may_lose_nodes(&self, situation: &Situation<'_>) -> bool {
        self.nodes_changes(situation).any(|change| change.may_lose_nodes())
    }

    /// The changes of the DaemonSet by the plan.
    fn nodes_changes(&self, situation: &Situation<'_>) -> impl Iterator<Item = NodesChange> {
        let actions = self.plan.actions.iter();
        actions.filter_map(|action| NodesChange::of(action, situation))
    }

    /// The queries without an answer that the plan depends on. A revision is needed only if the plan is written.
    pub(super) fn queries(&self, situation: &Situation<'_>, answers: &QueryAnswers, is_read_only: bool) -> Queries {
        let recreated = self.plan.actions.iter().filter_map(|action| match action {
            Action::Recreate { desired, .. } => Some(&desired.key),
            _ => None,
        });
        let missing = self.missing_workloads().filter(|_| !is_read_only);
        let changes = || self.nodes_changes(situation).collect();
        let needs_nodes = answers.attached_nodes.is_none() && self.may_lose_nodes(situation);
        Queries {
            uses: recreated
                .filter(|key| !answers.uses.contains_key(*key))
                .cloned()
                .collect(),
            attached_nodes: needs_nodes.then(|| AttachedNodesQuery { changes: changes() }),
            templates: missing
                .filter(|key| !answers.templates.contains_key(*key))
                .cloned()
                .collect(),
            ..Queries::default()
        }
    }
}
