// SPDX-License-Identifier: Apache-2.0
//! Decides the actions of a reconcile. Nothing here sends a request: the shell observes before the decision and acts after it.
//!
//! Four values pass through a reconcile, each built once: [`Facts`] by observing, [`Decision`] by [`decide`], [`Outcome`] by acting, and
//! the status by `status::status`. Which observations a decision depends on is only known while it is computed. So [`decide`] returns
//! either the decision, or the [`Queries`] that it still needs. The shell adds their answers to the facts and calls it again.

mod adoption;
mod cloud;
mod decision;
mod draft;
mod facts;
mod held;
mod intent;
mod narrowing;
mod outcome;
mod pod_templates;
mod queries;
mod situation;
mod workload;
mod zones;

use std::collections::{BTreeMap, BTreeSet};

use cinder_csi_crds::{CinderCSIDriver, ManagementState, NodeUpdateType};
use serde_json::Value;

pub use cloud::CloudView;
pub use decision::{Access, ClassesView, Decision, Drift, PodsView, Removal};
pub use facts::{
    ClusterView, CredentialFacts, DriverFacts, Facts, MonitoringView, ObjectFacts, OwnPart, ProjectGuard, QueryAnswers,
    VolumeFacts, owner_of,
};
pub use held::{HeldDesired, Holds};
pub use narrowing::NARROW_NODES;
pub use outcome::{Outcome, Report};
pub use pod_templates::Existing;
pub use queries::{AttachedNodesQuery, DecisionStep, FindingsQuery, Queries};
pub use workload::Workload;
pub use zones::ZoneMismatch;

use adoption::{Adoption, decide_adoption};
use decision::managed_objects;
use draft::{Draft, draft_plan};
use intent::{Intent, resolve_intent};
use narrowing::keep_attached_nodes;
use situation::Situation;
use workload::is_controller_done;

use crate::{
    cluster::{AttachedNodes, KINDS, Key, Kind, kind},
    manifests::{RenderError, Stage},
    migration::{claim_csi_driver, withhold_until_known},
    notice::Notice,
    plan::{
        Action, Obstacle, Plan,
        changes::{changes, summary},
    },
    reasons::Event,
    rollout::{Gate, stand_in, withhold_updates},
};

/// The reported use of an object or a node if its uses were not read. Such an object or node does not change.
const NOT_READ: &str = "what uses it has not been read";

/// Decides the actions of a reconcile, or returns the queries that the decision still needs.
///
/// Without [`Facts::driver`] there is nothing to decide about.
pub fn decide(driver: &CinderCSIDriver, facts: &Facts) -> Result<DecisionStep, RenderError> {
    let Some(observed) = facts.driver.as_deref() else {
        return Ok(DecisionStep::Decided(Box::default()));
    };
    let owner = owner_of(driver);
    let existing = Existing {
        owner: &owner,
        live: &observed.live,
        last_applied: &observed.last_applied,
    };
    let credentials = observed.credentials.desired.as_ref();
    let mut intent = resolve_intent(driver, &observed.environment, credentials, existing)?;
    intent.problems.extend(observed.unlisted.values().cloned());
    let unlisted = unreadable_kinds(observed);
    let unread = unread_objects(observed, &intent, &unlisted);
    if !unread.is_empty() {
        return Ok(DecisionStep::Need(Box::new(Queries {
            objects: unread,
            ..Queries::default()
        })));
    }
    let unmanaged = unmanaged_objects(observed, &intent);
    let mut live = managed_objects(&observed.live, &unmanaged);
    // Another installation is not replaced by one that cannot be created as the spec describes it.
    let complete = Some(&intent).filter(|intent| intent.problems.is_empty());
    let adoption = match decide_adoption(driver, &owner, observed, &live, complete) {
        Ok(adoption) => adoption,
        Err(queries) => return Ok(DecisionStep::Need(queries)),
    };
    if adoption.claims_csi_driver {
        claim_csi_driver(&owner, live.to_mut());
    }
    let situation = Situation {
        driver,
        owner: &owner,
        intent: &intent,
        live: &live,
        last_applied: &observed.last_applied,
        unlisted: &unlisted,
        unapplied: &observed.unapplied,
        instant: observed.instant,
    };
    let draft = draft_plan(&situation);
    let access = access(driver, observed);
    let queries = draft.queries(&situation, &observed.answers, access == Access::ReadOnly);
    if !queries.is_empty() {
        return Ok(DecisionStep::Need(Box::new(queries)));
    }
    let decision = complete_draft(&situation, draft, observed, adoption, access);
    Ok(DecisionStep::Decided(Box::new(Decision { unmanaged, ..decision })))
}

/// Whether the reconcile may write. A change is not allowed to a driver that the spec excludes, and to a process without the Lease.
fn access(driver: &CinderCSIDriver, facts: &DriverFacts) -> Access {
    match driver.spec.management_state {
        ManagementState::Managed | ManagementState::Removed if facts.has_lease => Access::ReadWrite,
        _ => Access::ReadOnly,
    }
}

/// The kinds that cannot be read. A request for an object of an unserved kind fails, also for an object that is only in the
/// record of applied content. Objects of an unconfirmed kind may become desired later.
fn unreadable_kinds(facts: &DriverFacts) -> BTreeSet<&'static str> {
    let is_unserved = |kind: &&Kind| !kind.is_served(facts.served) || !kind.is_served(facts.environment.apis);
    let unserved = KINDS.iter().filter(is_unserved).map(|kind| kind.kind);
    facts.unlisted.keys().copied().chain(unserved).collect()
}

/// The desired and recorded objects that were neither listed nor read by name. They may exist without their label.
fn unread_objects(facts: &DriverFacts, intent: &Intent, unlisted: &BTreeSet<&'static str>) -> Vec<Key> {
    let recorded = facts.last_applied.iter().map(|(key, _)| key.clone());
    // Most desired objects are recorded. Each is read once.
    let mut keys: BTreeSet<Key> = intent.keys().into_iter().chain(recorded).collect();
    keys.retain(|key| {
        let is_read = facts.live.contains_key(key) || facts.answers.objects.contains(key);
        !is_read && !unlisted.contains(key.kind)
    });
    keys.into_iter().collect()
}

/// The StorageClasses of a driver that does not manage its classes, except the desired ones.
fn unmanaged_objects(facts: &DriverFacts, intent: &Intent) -> BTreeSet<Key> {
    if !intent.resolved.storage_classes.is_left_to_others() {
        return BTreeSet::new();
    }
    let is_desired = |key: &Key| intent.desired.iter().any(|desired| desired.key == *key);
    let classes = facts.live.keys().filter(|key| key.kind == kind::STORAGE_CLASS);
    classes.filter(|key| !is_desired(key)).cloned().collect()
}

/// The progress of the removal of a driver that this decision maintains.
fn removal(driver: &CinderCSIDriver, facts: &DriverFacts) -> Option<Removal> {
    match &facts.blockers {
        Some(blockers) => Some(Removal::Blocked(blockers.clone())),
        None => driver.metadata.deletion_timestamp.as_ref().map(|_| Removal::Held),
    }
}

/// Completes a plan with the answers that it depends on.
fn complete_draft(
    situation: &Situation<'_>,
    draft: Draft,
    facts: &DriverFacts,
    adoption: Adoption,
    access: Access,
) -> Decision {
    let known = known_objects(situation, &draft, facts);
    let Draft {
        mut plan,
        gate,
        held,
        after_nodes,
    } = draft;
    let Situation {
        driver, intent, live, ..
    } = *situation;
    let answers = &facts.answers;
    let is_dry_run = driver.spec.management_state == ManagementState::DryRun;
    defer_recreations(&mut plan, &answers.uses);
    let not_read = || AttachedNodes::Unknown(NOT_READ.to_owned());
    let attached = answers.attached_nodes.clone().unwrap_or_else(not_read);
    keep_attached_nodes(&mut plan, situation, &attached);
    // Before the search for drift, because withheld changes are not drift. A dry run reports all changes.
    if !is_dry_run {
        if let Some(migration) = &adoption.migration {
            migration.withhold_stages(&mut plan);
        }
        if adoption.is_unknown {
            withhold_until_known(&mut plan);
        }
    }
    let foreign_changes = detect_drift(&plan, &known);
    let pending = is_dry_run.then(|| summary(changes(&plan, live)));
    let mut notices = Vec::new();
    if access == Access::ReadWrite {
        notices = restore_workloads(&mut plan, &gate, &answers.templates);
        withhold_updates(&mut plan, &gate, live, is_controller_done(live));
    } else {
        plan.actions.clear();
    }
    let resolved = &intent.resolved;
    Decision {
        access,
        keys: intent.keys(),
        unmanaged: BTreeSet::new(),
        sidecars: resolved
            .controller
            .sidecars
            .iter()
            .map(|sidecar| sidecar.component)
            .collect(),
        startup_taint: resolved.node.startup_taint.clone(),
        problems: intent.problems.clone(),
        held,
        pods: Some(intent.pods.clone()),
        classes: Some(ClassesView::new(resolved)),
        migration: adoption.migration,
        migration_problems: adoption.problems,
        foreign_nodes: adoption.nodes,
        claims_csi_driver: adoption.claims_csi_driver,
        is_migration_settled: adoption.is_newly_settled,
        removal: removal(driver, facts),
        gate,
        drift: foreign_changes,
        pending,
        has_topology: resolved.topology.enabled,
        leaves_pods: resolved.node.update != NodeUpdateType::RollingUpdate,
        after_nodes: after_nodes.filter(|_| access == Access::ReadWrite),
        plan,
        notices,
    }
}

/// The missing objects that have existed. A process that does not know takes the objects of a spec that the status reports as installed.
fn known_objects(situation: &Situation<'_>, draft: &Draft, facts: &DriverFacts) -> BTreeSet<Key> {
    let driver = situation.driver;
    let is_spec_installed = driver.status.as_ref().is_some_and(|status| {
        status.observed_generation == driver.metadata.generation
            && status.version.as_deref() == Some(draft.gate.target.version.as_str())
    });
    let missing = draft.plan.actions.iter().filter_map(|action| match action {
        Action::Create(desired) => Some(&desired.key),
        _ => None,
    });
    let known = facts.known_objects.as_ref();
    let has_existed = |key: &&Key| known.map_or(is_spec_installed, |known| known.contains(*key));
    missing.filter(has_existed).cloned().collect()
}

/// Replaces the re-creations of objects in use by obstacles. An object without an answer counts as in use.
fn defer_recreations(plan: &mut Plan, uses: &BTreeMap<Key, Option<String>>) {
    let Plan { actions, obstacles, .. } = plan;
    actions.retain(|action| {
        let Action::Recreate { desired, fields, .. } = action else {
            return true;
        };
        let what = match uses.get(&desired.key) {
            Some(None) => return true,
            Some(Some(what)) => what.clone(),
            None => NOT_READ.to_owned(),
        };
        obstacles.push(Obstacle::Waiting {
            key: desired.key.clone(),
            fields: fields.clone(),
            what,
        });
        false
    });
}

/// Recreates workloads that are missing while an update waits from their newest revision, where one remains.
fn restore_workloads(plan: &mut Plan, gate: &Gate, templates: &BTreeMap<Key, Option<Value>>) -> Vec<Notice> {
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

/// Finds the changes by other clients. A missing object was deleted if it is known to have existed. The set of classes changes without
/// them.
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
