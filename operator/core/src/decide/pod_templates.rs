// SPDX-License-Identifier: Apache-2.0
//! Chooses the inputs of each pod template: the inputs of the update once it is the workload's turn, else the inputs of its pods.
//!
//! The spec and the credentials are the present ones in either case. So their changes never wait for an update.

use std::collections::BTreeMap;

use cinder_csi_crds::{CinderCSIDriver, ManagementState};
use serde_json::Value;

use super::{held::Holds, workload::Workload};
use crate::{
    cluster::{Key, Owner, kind},
    manifests::{DriverCredentials, Operand, RenderError, render},
    plan::{Desired, LastApplied, differences},
    releases::TemplateInputs,
    resolve::{Environment, Resolved, resolve_for},
    rollout::{Gate, Release, WORKLOADS, gate, is_workload},
};

/// The objects that exist, and the content that was applied last.
#[derive(Debug, Clone, Copy)]
pub struct Existing<'a> {
    /// The owner of the driver's objects.
    pub owner: &'a Owner,
    /// The workloads, next to others.
    pub live: &'a BTreeMap<Key, Value>,
    /// The content that was applied last.
    pub last_applied: &'a LastApplied,
}

impl Existing<'_> {
    fn live(&self, kind: &str) -> Option<&Value> {
        let is_meant = |(key, object): &(&Key, &Value)| key.kind == kind && self.owner.owns(object);
        self.live.iter().find(is_meant).map(|(_, object)| object)
    }

    /// The inputs of the pods that run; `None` where nothing runs, or their record is lost.
    pub fn inputs(&self) -> Option<TemplateInputs> {
        let gate = Gate::of(self.owner, self.live, self.last_applied, Release::default());
        let releases = [gate.controller, gate.node];
        releases.into_iter().flatten().find_map(|release| release.inputs)
    }

    /// Whether the driver has a workload, or had one.
    pub fn is_installed(&self) -> bool {
        let gate = Gate::of(self.owner, self.live, self.last_applied, Release::default());
        gate.controller.is_some() || gate.node.is_some()
    }
}

/// A workload, and the spec that it was rendered from where that is not the spec for the update.
type Rendering = (Desired, Option<Resolved>);

/// Renders workloads for the present spec and credentials.
pub(super) struct Renderer<'a> {
    pub(super) driver: &'a CinderCSIDriver,
    pub(super) environment: &'a Environment,
    pub(super) credentials: Option<&'a DriverCredentials>,
    pub(super) existing: Existing<'a>,
}

impl Renderer<'_> {
    /// Renders a workload with these inputs; `of_target` is the one of the update. `None` if its override fails with them.
    fn render(
        &self,
        inputs: Option<&TemplateInputs>,
        gate: &Gate,
        of_target: &Desired,
    ) -> Result<Option<Rendering>, RenderError> {
        let Some(inputs) = inputs else { return Ok(None) };
        if gate.target.inputs.as_ref() == Some(inputs) {
            return Ok(Some((of_target.clone(), None)));
        }
        let resolved = resolve_for(self.driver, self.environment, inputs);
        let (operands, overridden) = render(&resolved, self.credentials)?;
        let is_meant = |operand: &&Operand| Key::from(*operand) == of_target.key;
        let operand = operands.iter().find(is_meant);
        let operand = operand.filter(|_| !overridden.held.contains(&of_target.key));
        let desired = operand.map(from_operand).transpose()?;
        Ok(desired.map(|desired| (desired, Some(resolved))))
    }

    /// Whether the template of an existing workload differs from that of `goal` for another cause than the spec.
    fn is_due(
        &self,
        gate: &Gate,
        goal: Option<&TemplateInputs>,
        of_goal: &Desired,
        of_target: &Desired,
    ) -> Result<bool, RenderError> {
        let kind = of_target.key.kind;
        let Some(release) = gate.release(kind) else {
            return Ok(false);
        };
        if !release.is_same_version(&gate.target) {
            return Ok(true);
        }
        let template = |object: &Value| object["spec"]["template"].clone();
        let goal_template = template(&of_goal.object);
        match &release.inputs {
            Some(inputs) if goal == Some(inputs) => Ok(false),
            Some(inputs) => {
                let present = self.render(Some(inputs), gate, of_target)?;
                Ok(present.is_none_or(|(present, _)| template(&present.object) != goal_template))
            }
            // The cause of a difference is unknown.
            None => {
                let live = self.existing.live(kind).map(template);
                Ok(!differences(&goal_template, &live.unwrap_or_default(), 1).is_empty())
            }
        }
    }

    /// Decides whether an update to `target` may begin. `desired` contains the workloads of the update, and this replaces them by the
    /// chosen ones. Returns the spec as the controller has it, where it is not that of the update.
    pub(super) fn choose(
        &self,
        target: Release,
        desired: &mut [Desired],
        holds: &Holds,
    ) -> Result<(Gate, Option<Resolved>), RenderError> {
        let Existing {
            owner,
            live,
            last_applied,
        } = self.existing;
        let mut chosen = Gate::of(owner, live, last_applied, target);
        for workload in desired.iter().filter(|desired| is_workload(&desired.key)) {
            if self.is_due(&chosen, chosen.target.inputs.as_ref(), workload, workload)? {
                chosen.due.insert(workload.key.kind);
            }
        }
        let mut chosen = gate(chosen, &self.driver.spec.update);
        let mut of_controller = None;
        for kind in WORKLOADS {
            let Some(place) = desired.iter().position(|desired| desired.key.kind == kind) else {
                continue;
            };
            let of_target = desired[place].clone();
            let goal = chosen.goal(kind);
            let mut rendering = self.render(goal, &chosen, &of_target)?;
            if kind == kind::DAEMON_SET
                && let Some((of_goal, _)) = &rendering
                && self.is_due(&chosen, goal, of_goal, &of_target)?
                && self.waits_for_controller(&chosen, desired, holds)
            {
                rendering = self.render(chosen.own_inputs(kind), &chosen, &of_target)?;
                chosen.is_node_waiting = true;
            }
            match rendering {
                Some((workload, resolved)) => {
                    desired[place] = workload;
                    of_controller = of_controller.or(resolved.filter(|_| kind == kind::DEPLOYMENT));
                }
                None => drop(chosen.pinned.insert(kind)),
            }
        }
        Ok((chosen, of_controller))
    }

    /// Whether the controller does not have its template in all pods.
    fn waits_for_controller(&self, gate: &Gate, desired: &[Desired], holds: &Holds) -> bool {
        // A dry run reports all changes.
        if self.driver.spec.management_state == ManagementState::DryRun {
            return false;
        }
        let controller = desired.iter().find(|desired| desired.key.kind == kind::DEPLOYMENT);
        let existing = self.existing.live(kind::DEPLOYMENT);
        let Some((controller, existing)) = controller.zip(existing) else {
            return true;
        };
        let is_due = gate.hold.is_none() && gate.due.contains(kind::DEPLOYMENT);
        let is_held = holds.covers(&controller.key, self.existing.last_applied.get(&controller.key));
        let is_applied = is_held || controller.is_applied_to(existing);
        is_due || !is_applied || !Workload::of_deployment(existing).is_rolled_out()
    }
}

/// An operand, ready to be compared.
pub(super) fn from_operand(operand: &Operand) -> Result<Desired, RenderError> {
    Desired::from_operand(operand).map_err(|source| RenderError::new(operand.kind.kind, source))
}
