//! Carries a rollout out: what may be written now, and which node pods go to make place for new ones. What follows from what,
//! [`cinder_operator_core::rollout`] says.

use std::{collections::BTreeMap, time::Duration};

use cinder_csi_crds::{ManagementState, NodeUpdateType};
use cinder_operator_core::{
    cluster::{Key, kind, ready_nodes},
    manifests::Stage,
    notice::Notice,
    plan::{
        Action, FailedWrite, Plan,
        changes::{changes, summary},
    },
    problem::Problem,
    reasons::{Degraded, Event},
    removal::unregistering_since,
    resolve::Resolved,
    rollout::{Gate, Hold, NodeRollout, Nodes, Window, gate, is_workload, node_rollout, stand_in, without_pod},
    status::{Drift, Seen, Workload},
    text::listed,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use super::{Pass, adoption::Adoption};
use crate::{error::ReconcileError, observe};

impl Pass<'_> {
    /// The window for updates, where there is one, or the problem that it cannot be understood.
    pub(super) fn window(&self) -> Result<Option<Window>, Problem> {
        let window = self.driver.spec.update.window.as_ref().map(Window::new).transpose();
        window.map_err(|error| Problem {
            reason: Degraded::InvalidSpec,
            message: format!("spec.update.window cannot be understood: {error}"),
        })
    }

    /// Whether an update of the version may begin now.
    pub(super) fn gate(&self, live: &BTreeMap<Key, Value>, target: &str, window: Option<&Window>) -> Gate {
        let installed = Gate::of(&self.owner, live, target);
        gate(installed, &self.driver.spec.update, window, self.context.sources.now())
    }

    /// Notes what of the plan is another client's doing, and what it comes to when nothing may be written.
    pub(super) fn compare(&self, plan: &Plan, live: &BTreeMap<Key, Value>, seen: &mut Seen) {
        let spec_is_known = self.driver.status.as_ref().is_some_and(|status| {
            status.observed_generation == self.driver.metadata.generation
                && status.version.as_deref() == Some(seen.gate.target.as_str())
        });
        seen.drift = Drift {
            kept: plan
                .left
                .iter()
                .map(|(key, left)| format!("{key} ({})", left.fields.join(", ")))
                .collect(),
            ..drift(plan, |key| {
                self.context.has_seen(&self.owner.name, key).unwrap_or(spec_is_known)
            })
        };
        if seen.state == ManagementState::DryRun {
            seen.pending = Some(summary(changes(plan, live)));
        }
        if let Some(Hold::Window(Some(opens))) = &seen.gate.hold {
            seen.opens_in = Duration::try_from(opens.duration_since(self.context.sources.now())).ok();
        }
    }

    /// Remembers which of the wanted objects there are. What could not be written may be missing because of that.
    pub(super) fn remember_objects(&self, wanted: &[Key], live: &BTreeMap<Key, Value>, failures: &[FailedWrite]) {
        let is_there = |key: &Key| live.get(key).is_some_and(|object| self.owner.owns(object));
        let has_failed = |key: &Key| failures.iter().any(|failure| failure.key == *key);
        self.context.remember_objects(&self.owner.name, |known| {
            let kept = wanted.iter().filter(|key| known.contains(key) || is_there(key));
            kept.filter(|key| !has_failed(key)).cloned().collect()
        });
    }

    /// Lets workloads that are missing while an update waits come back as they were, as far as that is known.
    pub(super) async fn restore(&self, plan: &mut Plan, gate: &Gate) -> Result<Vec<Notice>, ReconcileError> {
        let mut notices = Vec::new();
        if gate.hold.is_none() {
            return Ok(notices);
        }
        for action in &mut plan.actions {
            let Action::Create(desired) = action else { continue };
            if !is_workload(&desired.key) {
                continue;
            }
            let (client, kind) = (&self.context.client, desired.key.kind);
            let template = observe::newest_template(client, self.namespace(), &self.owner.name, kind).await?;
            if template.is_none() {
                let note = format!(
                    "{} is missing while an update waits, and no earlier revision of it is left: it is made as version {} has it; what \
                     else runs stays at {} until the update may begin (spec.update)",
                    desired.key,
                    gate.target,
                    gate.from().unwrap_or_default()
                );
                notices.push(Notice::new(Event::VersionMixed, note));
            }
            *desired = stand_in(desired, gate, template.map(serde_json::to_value).transpose()?);
        }
        Ok(notices)
    }

    /// Judges the pods on the nodes and, with `may_write`, deletes those that are to be replaced now.
    pub(super) async fn roll_nodes(
        &self,
        live: &BTreeMap<Key, Value>,
        resolved: Option<&Resolved>,
        may_write: bool,
        adoption: &Adoption,
        seen: &mut Seen,
    ) -> Result<Vec<Notice>, ReconcileError> {
        let (context, name) = (self.context, &self.owner.name);
        let daemon_set = live
            .iter()
            .find(|(key, object)| key.kind == kind::DAEMON_SET && self.owner.owns(object))
            .map(|(_, object)| object);
        let Some((daemon_set, template)) = daemon_set.and_then(|found| Some((found, observe::pod_template(found)?)))
        else {
            return Ok(Vec::new());
        };
        let revision = observe::current_revision(&context.client, self.namespace(), name, daemon_set).await?;
        let (mut ready, pods, registered) = context.cluster.read(|index| {
            (
                ready_nodes(&index.nodes(), &template),
                index.node_pods_of(name),
                index.registered_on(name),
            )
        });
        // Our pods wait there until those of the other installation are replaced.
        let theirs = adoption.nodes();
        ready.retain(|node| !theirs.contains(node.as_str()));
        let lacking = context.lacking(name, &without_pod(&ready, &pods));
        let broken_before = context.broken_before(name, self.driver.status.as_ref());
        let one = IntOrString::Int(1);
        let replaces_by_itself = resolved.is_some_and(|resolved| resolved.node.update == NodeUpdateType::RollingUpdate);
        let is_free = seen.failures.is_empty() && unregistering_since(daemon_set).is_none();
        let rollout = node_rollout(&Nodes {
            ready: &ready,
            pods: &pods,
            registered: &registered,
            revision: revision.as_deref(),
            lacking: &lacking,
            broken_before: &broken_before,
            max_unavailable: resolved.map_or(&one, |resolved| &resolved.node.max_unavailable),
            replaces: may_write && replaces_by_itself && is_free,
            deadline: context.registration_deadline,
            now: context.sources.now(),
        });
        seen.leaves_pods = resolved.is_some() && !replaces_by_itself;
        let replaced = self.replace(&rollout).await;
        seen.node_rollout = Some(rollout);
        replaced
    }

    async fn replace(&self, rollout: &NodeRollout) -> Result<Vec<Notice>, ReconcileError> {
        let context = self.context;
        for pod in &rollout.replace {
            let deleted = context.writer.delete_pod(self.namespace(), &pod.pod, &pod.uid).await;
            deleted.map_err(|error| ReconcileError::ReplacePod {
                pod: pod.pod.clone(),
                node: pod.node.clone(),
                source: error,
            })?;
        }
        if rollout.replace.is_empty() {
            return Ok(Vec::new());
        }
        let nodes: Vec<String> = rollout.replace.iter().map(|pod| pod.node.clone()).collect();
        let note = format!("replaces the driver's pods on {}", listed(&nodes));
        Ok(vec![Notice::new(Event::ReplacingPods, note)])
    }
}

/// Whether all pods of the controller are as the Deployment wants them.
pub(super) fn is_controller_done(live: &BTreeMap<Key, Value>) -> bool {
    let deployment = live.iter().find(|(key, _)| key.kind == kind::DEPLOYMENT);
    deployment.is_some_and(|(_, object)| Workload::of_deployment(object).is_rolled_out())
}

/// What of a plan is another client's doing. An object that is missing was deleted if it was there before; classes come and go by
/// themselves.
fn drift(plan: &Plan, was_there: impl Fn(&Key) -> bool) -> Drift {
    let mut drift = Drift::default();
    for action in &plan.actions {
        match action {
            Action::Repair { desired, fields, .. } => {
                drift.changed.push(format!("{} ({})", desired.key, fields.join(", ")));
            }
            Action::Create(desired) if desired.stage < Stage::StorageClasses && was_there(&desired.key) => {
                drift.deleted.push(desired.key.to_string());
            }
            _ => {}
        }
    }
    drift
}
