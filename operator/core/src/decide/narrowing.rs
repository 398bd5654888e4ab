// SPDX-License-Identifier: Apache-2.0
//! Changes of the DaemonSet that exclude nodes with attached volumes.

use k8s_openapi::api::core::v1::PodSpec;
use kube::ResourceExt;
use serde_json::Value;

use super::situation::Situation;
use crate::{
    cluster::{AttachedNodes, Key, LostNodes, kind, may_lose_nodes},
    plan::{Action, Obstacle, Plan, PlanScope, plan},
};

/// Annotation on a CinderCSIDriver, with the object's uid as value: the DaemonSet may exclude nodes that have volumes of the
/// driver attached.
pub const NARROW_NODES: &str = "csi.openstack.org/narrow-nodes";

/// A change of the DaemonSet's pod template.
#[derive(Debug)]
pub(super) struct NodesChange {
    before: Option<PodSpec>,
    after: Option<PodSpec>,
}

impl NodesChange {
    /// The change by an action; `None` for other objects.
    pub(super) fn of(action: &Action, situation: &Situation<'_>) -> Option<Self> {
        let key = action.key();
        if key.kind != kind::DAEMON_SET {
            return None;
        }
        let after = match action {
            Action::Create(desired)
            | Action::Update { desired, .. }
            | Action::Repair { desired, .. }
            | Action::Recreate { desired, .. } => template(&desired.object),
            Action::Prune { .. } => None,
        };
        let recorded = || situation.last_applied.get(key).map(|recorded| &recorded.desired.object);
        let before = situation.live.get(key).or_else(recorded);
        Some(Self {
            before: before.and_then(template),
            after,
        })
    }

    /// Whether the change could exclude a node.
    pub(super) fn may_lose_nodes(&self) -> bool {
        may_lose_nodes(self.before.as_ref(), self.after.as_ref())
    }

    /// The nodes that lose the node plugin by the change.
    pub(super) fn lost_nodes(&self, attached: &AttachedNodes) -> Option<LostNodes> {
        attached.lost_nodes(self.before.as_ref(), self.after.as_ref())
    }
}

fn template(daemon_set: &Value) -> Option<PodSpec> {
    serde_json::from_value(daemon_set.pointer("/spec/template/spec")?.clone()).ok()
}

/// Keeps the DaemonSet at its last applied content where the plan would exclude nodes with attached volumes, unless the
/// administrator has confirmed that on this very object.
pub(super) fn keep_attached_nodes(plan: &mut Plan, situation: &Situation<'_>, attached: &AttachedNodes) {
    let confirmation = situation.driver.annotations().get(NARROW_NODES);
    if confirmation == Some(&situation.owner.uid) {
        return;
    }
    let mut actions = Vec::new();
    for action in std::mem::take(&mut plan.actions) {
        let lost = NodesChange::of(&action, situation).and_then(|change| change.lost_nodes(attached));
        let Some(lost) = lost else {
            actions.push(action);
            continue;
        };
        let key = action.key().clone();
        actions.extend(last_applied_daemon_set(&key, situation, attached));
        plan.obstacles.push(Obstacle::NodesInUse { key, lost });
    }
    plan.actions = actions;
}

/// The write that brings the DaemonSet back to its last applied content, unless that content excludes nodes as well.
fn last_applied_daemon_set(key: &Key, situation: &Situation<'_>, attached: &AttachedNodes) -> Option<Action> {
    let Situation {
        owner,
        live,
        last_applied,
        unapplied,
        instant,
        ..
    } = *situation;
    let content = last_applied.content_for(key, live.get(key))?;
    let desired = std::slice::from_ref(content);
    let actions = plan(owner, desired, live, unapplied, &PlanScope::default(), instant).actions;
    let is_safe = |action: &Action| {
        let change = NodesChange::of(action, situation);
        change.is_some_and(|change| change.lost_nodes(attached).is_none())
    };
    actions.into_iter().find(is_safe)
}
