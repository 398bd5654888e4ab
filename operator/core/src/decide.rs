// SPDX-License-Identifier: Apache-2.0
//! From what is observed to what is done. Nothing here talks to anybody: the shell observes before it and acts after it.
//!
//! Three values pass through a reconcile, each made once: [`Facts`] by observing, [`Decision`] here, [`Outcome`] by acting. The
//! status is made of the three, which [`Report`] holds.
//!
//! What has to be observed depends on what is wanted, so a decision has three steps. [`intend`] says which objects are wanted,
//! [`draft`] compares them with what exists, and the shell looks up what the draft needs to know ([`Lookups`]). [`decide`] has
//! the last word.

mod cloud;
mod decision;
mod facts;
mod held;
mod outcome;
mod pod_templates;
mod workload;
mod zones;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use cinder_csi_crds::{CinderCSIDriver, ManagementState, NodeUpdateType};
use serde_json::Value;

pub use cloud::CloudView;
pub use decision::{ClassesView, Decision, Drift, PodsView, Removal};
pub use facts::{ClusterView, Facts, MonitoringView, ObjectFacts, ProjectGuard, VolumeFacts};
pub use outcome::{Outcome, Report};
pub use pod_templates::Existing;
pub use workload::Workload;
pub use zones::ZoneMismatch;

pub use held::{HeldDesired, Holds};

use pod_templates::{Renderer, from_operand};

use crate::{
    cluster::{AttachedNodes, Key, Owner, kind},
    manifests::{DriverCredentials, RenderError, Stage, render},
    migration::Migration,
    notice::Notice,
    plan::{
        Action, Desired, LastApplied, Obstacle, Plan, Unapplied,
        changes::{changes, summary},
        plan,
    },
    problem::Problem,
    reasons::{Degraded, Event},
    resolve::{Environment, Resolved, resolve_parts},
    rollout::{Gate, Release, stand_in, withhold_updates},
};

/// Annotation on a CinderCSIDriver, with the object's uid as value: the DaemonSet may exclude nodes that have volumes of the
/// driver attached.
pub const NARROW_NODES: &str = "csi.openstack.org/narrow-nodes";

/// What is wanted.
#[derive(Debug)]
pub struct Intent {
    /// The spec, with every default.
    pub resolved: Resolved,
    /// The objects. Those that cannot be made yet are not among them.
    pub desired: Vec<Desired>,
    /// Whether all of them are known: without credentials or zones they are not.
    pub is_complete: bool,
    /// Whether there are credentials for the controller.
    pub has_credentials: bool,
    /// What of the spec cannot be carried out.
    pub problems: Vec<Problem>,
    /// The objects that keep their last applied content.
    pub holds: Holds,
    /// The releases of the workloads, and whether an update may begin.
    pub gate: Gate,
    pods: PodsView,
}

impl Intent {
    /// The names of the objects.
    pub fn keys(&self) -> Vec<Key> {
        self.desired.iter().map(|desired| desired.key.clone()).collect()
    }
}

/// Renders the spec for this cluster, and collects the parts that cannot be carried out.
pub fn intend(
    driver: &CinderCSIDriver,
    environment: &Environment,
    credentials: Option<&DriverCredentials>,
    existing: Existing<'_>,
) -> Result<Intent, RenderError> {
    let (resolved, spec_holds) = resolve_parts(driver, environment);
    let mut problems: Vec<Problem> = spec_holds.iter().map(|hold| hold.problem.clone()).collect();
    let (operands, overridden) = render(&resolved, credentials)?;
    problems.extend(failed_overrides(&overridden.failed));
    let scopes = spec_holds.into_iter().map(|hold| hold.scope).collect();
    let holds = Holds::new(scopes, &overridden, &resolved.overrides);
    let mut desired = operands.iter().map(from_operand).collect::<Result<Vec<_>, _>>()?;
    let renderer = Renderer {
        driver,
        environment,
        credentials,
        existing,
    };
    let target = Release {
        version: resolved.version.clone(),
        inputs: Some(resolved.inputs.clone()),
    };
    let (gate, of_controller) = renderer.choose(target, &mut desired, &holds)?;
    desired.retain(|desired| !waits(desired.key.kind, &resolved, credentials.is_some()));
    let of_controller = of_controller.as_ref().unwrap_or(&resolved);
    Ok(Intent {
        pods: PodsView::of(of_controller, environment, overridden),
        desired,
        is_complete: credentials.is_some() && resolved.topology.is_decided,
        has_credentials: credentials.is_some(),
        problems,
        holds,
        gate,
        resolved,
    })
}

fn failed_overrides(failed: &[String]) -> Option<Problem> {
    (!failed.is_empty()).then(|| Problem {
        reason: Degraded::OverrideFailed,
        message: format!(
            "these patches of spec.overrides fail, and their objects keep their last applied content: {}. Fix them or remove them",
            failed.join("; ")
        ),
    })
}

/// Whether a workload is not created yet. Without credentials the controller would only fail, and one that runs with older credentials must
/// not be touched. Controller and nodes wait until it is known whether zones are used.
fn waits(kind: &str, resolved: &Resolved, has_credentials: bool) -> bool {
    match kind {
        kind::DEPLOYMENT => !has_credentials || !resolved.topology.is_decided,
        kind::DAEMON_SET => !resolved.topology.is_decided,
        _ => false,
    }
}

/// What a plan is made from.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// The object.
    pub driver: &'a CinderCSIDriver,
    /// Whose objects are the driver's.
    pub owner: &'a Owner,
    /// What is wanted.
    pub intent: &'a Intent,
    /// What exists of that, and what exists of the owner's.
    pub live: &'a BTreeMap<Key, Value>,
    /// The content that was applied last.
    pub last_applied: &'a LastApplied,
    /// The kinds that could not be listed.
    pub unlisted: &'a BTreeSet<&'static str>,
    /// What applies could not change.
    pub unapplied: &'a Unapplied,
    /// The present time, by the clock of [`Unapplied`].
    pub instant: Instant,
}

/// A first comparison: what it needs to know has still to be looked up.
#[derive(Debug)]
pub struct Draft {
    /// What is to be written.
    pub plan: Plan,
    /// The versions in place, and whether another one may come.
    pub gate: Gate,
    /// The objects of the plan, with the held ones.
    pub held: HeldDesired,
    /// The CSIDriver object with new duties for the nodes, where the plan has it without them.
    pub after_nodes: Option<Desired>,
}

impl Draft {
    /// The workloads that are missing while an update waits: they are to come back as they were.
    pub fn missing_workloads(&self) -> impl Iterator<Item = &Key> {
        let gate = &self.gate;
        self.plan.actions.iter().filter_map(move |action| match action {
            Action::Create(desired) if gate.hold.is_some() && gate.pinned.contains(desired.key.kind) => {
                Some(&desired.key).filter(|key| !self.held.recorded.contains(*key))
            }
            _ => None,
        })
    }
}

/// Compares what is wanted with what exists.
pub fn draft(situation: &Situation<'_>) -> Draft {
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

/// What was looked up for a draft.
#[derive(Debug, Default)]
pub struct Lookups {
    /// Objects that must not be recreated now, and what uses them.
    pub in_use: BTreeMap<Key, String>,
    /// The nodes with attached volumes, where the plan could exclude one.
    pub attached: AttachedNodes,
    /// The newest revision that is left of missing workloads.
    pub templates: BTreeMap<Key, Option<Value>>,
    /// How far a migration from another installation is.
    pub migration: Option<Migration>,
    /// What stands against that.
    pub migration_problems: Vec<Problem>,
    /// How far a removal is.
    pub removal: Option<Removal>,
    /// The wanted objects that are known to have been there.
    pub known: BTreeSet<Key>,
    /// Whether anything may be written.
    pub may_write: bool,
}

/// Decides what is done now.
pub fn decide(situation: &Situation<'_>, first: Draft, lookups: Lookups) -> Decision {
    let Draft {
        mut plan,
        gate,
        held,
        after_nodes,
    } = first;
    let Situation {
        driver, intent, live, ..
    } = *situation;
    let is_dry_run = driver.spec.management_state == ManagementState::DryRun;
    leave_in_use(&mut plan, &lookups.in_use);
    held::keep_attached_nodes(&mut plan, situation, &lookups.attached);
    // Before it is compared: what has to wait for its time is no drift. A dry run tells all that is to come.
    if let Some(migration) = lookups.migration.as_ref().filter(|_| !is_dry_run) {
        migration.withhold_stages(&mut plan);
    }
    let drift = detect_drift(&plan, &lookups.known);
    let pending = is_dry_run.then(|| summary(changes(&plan, live)));
    let mut notices = Vec::new();
    if lookups.may_write {
        notices = bring_back(&mut plan, &gate, &lookups.templates);
        withhold_updates(&mut plan, &gate, live, is_controller_done(live));
    } else {
        plan.actions.clear();
    }
    Decision {
        problems: [intent.problems.clone(), lookups.migration_problems].concat(),
        held,
        pods: Some(intent.pods.clone()),
        classes: Some(ClassesView::new(&intent.resolved)),
        migration: lookups.migration,
        removal: lookups.removal,
        gate,
        drift,
        pending,
        has_topology: intent.resolved.topology.enabled,
        leaves_pods: intent.resolved.node.update != NodeUpdateType::RollingUpdate,
        after_nodes: after_nodes.filter(|_| lookups.may_write),
        plan,
        notices,
    }
}

/// Takes re-creations of what is in use out of a plan, and reports each as an obstacle.
fn leave_in_use(plan: &mut Plan, in_use: &BTreeMap<Key, String>) {
    let Plan { actions, obstacles, .. } = plan;
    actions.retain(|action| {
        let (Action::Recreate { desired, fields, .. }, Some(what)) = (action, in_use.get(action.key())) else {
            return true;
        };
        obstacles.push(Obstacle::Waiting {
            key: desired.key.clone(),
            fields: fields.clone(),
            what: what.clone(),
        });
        false
    });
}

/// Lets workloads that are missing while an update waits come back as they were, as far as that is known.
fn bring_back(plan: &mut Plan, gate: &Gate, templates: &BTreeMap<Key, Option<Value>>) -> Vec<Notice> {
    let mut notices = Vec::new();
    for action in &mut plan.actions {
        let Action::Create(desired) = action else { continue };
        let Some(template) = templates.get(&desired.key) else {
            continue;
        };
        if template.is_none() {
            let note = format!(
                "{} is missing while an update waits, and no earlier revision of it is left: it is made as version {} has it; what \
                 else runs stays at {} until the update may begin (spec.update)",
                desired.key,
                gate.target.version,
                gate.from().unwrap_or_default()
            );
            notices.push(Notice::new(Event::VersionMixed, note));
        }
        *desired = stand_in(desired, gate, template.clone());
    }
    notices
}

/// Whether all pods of the controller are as the Deployment wants them.
pub fn is_controller_done(live: &BTreeMap<Key, Value>) -> bool {
    let deployment = live.iter().find(|(key, _)| key.kind == kind::DEPLOYMENT);
    deployment.is_some_and(|(_, object)| Workload::of_deployment(object).is_rolled_out())
}

/// What of a plan is another client's doing. An object that is missing was deleted if it was there before; classes come and go by
/// themselves.
fn detect_drift(plan: &Plan, known: &BTreeSet<Key>) -> Drift {
    let mut drift = Drift {
        unresolvable: plan
            .left
            .iter()
            .map(|(key, left)| format!("{key} ({})", left.fields.join(", ")))
            .collect(),
        ..Drift::default()
    };
    for action in &plan.actions {
        match action {
            Action::Repair { desired, fields, .. } => {
                drift.changed.push(format!("{} ({})", desired.key, fields.join(", ")));
            }
            Action::Create(desired) if desired.stage < Stage::StorageClasses && known.contains(&desired.key) => {
                drift.deleted.push(desired.key.to_string());
            }
            _ => {}
        }
    }
    drift
}

#[cfg(test)]
mod tests;
