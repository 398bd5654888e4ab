// SPDX-License-Identifier: Apache-2.0
//! Computes the status of a driver from the observations of a reconcile. The functions are pure.
//!
//! Reasons are a stable part of the API. Messages contain the object, the fault and the required action. The status
//! does not change by itself: it contains only times of transitions and no counters of attempts.

use cinder_csi_crds::{CinderCSIDriverStatus, ConditionType, ControllerStatus, DriverState, NodesStatus};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use serde_json::{Value, json};

use crate::{
    cluster::OptionalApi,
    decide::{Decision, Facts, ObjectFacts, Outcome, Removal, Report},
    problem::Problem,
    reasons::{Available, Degraded, DeletionBlocked, Reason},
    record::DriverRecord,
    text::make_printable,
};

mod adoption;
mod available;
mod classes;
mod clouds;
mod cluster;
mod drift;
mod issues;
mod monitoring;
mod nodes;
mod notices;
mod pods;
mod progressing;
mod removal;
mod rollout;
mod summary;
mod verdict;
mod volumes;

pub use classes::unavailable_snapshot_controller;
pub use clouds::expiring;
pub use issues::describe_obstacle;
pub use nodes::absent_nodes;
pub use notices::notices;
pub use volumes::news;

use available::available;
use progressing::progressing;
use verdict::{Judgement, LONGEST_MESSAGE, NAMED, Verdict, condition, judgement_of, verdict};

/// Computes the status. A condition retains its transition time while its status does not change.
pub fn status(
    previous: Option<&CinderCSIDriverStatus>,
    facts: &Facts,
    decision: &Decision,
    outcome: &Outcome,
    now: Timestamp,
) -> CinderCSIDriverStatus {
    let report = &Report {
        facts,
        decision,
        outcome,
    };
    let record = recorded(previous, report);
    let previous = previous.filter(|previous| previous.is_observed());
    let issues = issues::of(report, |cloud| clouds::is_young(previous, cloud, outcome, now));
    let conditions = ConditionType::ALL
        .iter()
        .filter_map(|type_| {
            let judgement = judge(*type_, previous, report, &issues, now)?;
            Some(condition(previous, facts.object.generation, judgement, now))
        })
        .collect();
    let is_gone = decision.removal.as_ref().is_some_and(Removal::is_over);
    let next = CinderCSIDriverStatus {
        state: Some(removal::state(
            facts.object.state,
            facts.object.is_deleted,
            decision.removal.as_ref(),
        )),
        observed_generation: facts.object.generation,
        version: if is_gone {
            None
        } else {
            rollout::version(report).or_else(|| previous.and_then(|previous| previous.version.clone()))
        },
        conditions,
        controller: outcome.controller.as_ref().map(|controller| ControllerStatus {
            desired: controller.desired,
            ready: controller.available,
        }),
        nodes: (!is_gone).then(|| NodesStatus {
            desired: i32::try_from(outcome.nodes.needed()).unwrap_or(i32::MAX),
            registered: i32::try_from(outcome.nodes.registered).unwrap_or(i32::MAX),
            unregistered: outcome.nodes.without_driver().take(NAMED).cloned().collect(),
            broken_before: outcome
                .node_rollout
                .as_ref()
                .map(|rollout| rollout.broken_before.clone())
                .unwrap_or_default(),
        }),
        clouds: clouds::statuses(previous, facts, now),
        operand_namespace: record.namespace,
        places: record.places,
        volumes: volumes::status(facts, &outcome.volumes),
        topology: classes::topology(previous, decision.classes.as_ref()).filter(|_| !is_gone),
        storage_classes: classes::storage_classes(previous, decision.classes.as_ref(), &outcome.storage_classes)
            .filter(|_| !is_gone),
        snapshot_contents: if is_gone {
            Vec::new()
        } else {
            classes::snapshot_contents(previous, decision.classes.as_ref())
        },
        adoption: adoption::status(report),
        deletion: removal::deletion(report),
        kubernetes_version: decision.pods.as_ref().and_then(|pods| pods.kubernetes.clone()),
        optional_apis: decision.pods.as_ref().map(|pods| {
            let served = OptionalApi::ALL.into_iter().filter(|api| pods.apis.has(*api));
            served.map(|api| api.as_str().to_owned()).collect()
        }),
        sidecar_version_set: decision.pods.as_ref().map(|pods| pods.version_set.clone()),
        sidecars: if decision.held.holds_workload() {
            // The spec describes other pods than the running ones.
            previous.map(|previous| previous.sidecars.clone()).unwrap_or_default()
        } else {
            let pods = decision.pods.as_ref();
            pods.map(|pods| pods.sidecars.clone()).unwrap_or_default()
        },
        unsupported_fields: decision
            .pods
            .as_ref()
            .map(|pods| pods.unsupported.clone())
            .unwrap_or_default(),
        target_version: Some(decision.gate.target_name()).filter(|target| !target.is_empty() && !is_gone),
        components: rollout::components(report),
        rollout: rollout::rollout(report),
        pending_changes: decision.pending.clone(),
    };
    add_summary(previous, next, facts.object.generation, now)
}

/// Adds the summarizing conditions before the others, and escapes all texts.
fn add_summary(
    previous: Option<&CinderCSIDriverStatus>,
    mut next: CinderCSIDriverStatus,
    generation: Option<i64>,
    now: Timestamp,
) -> CinderCSIDriverStatus {
    let summary = summary::summary(&next).map(|judgement| condition(previous, generation, judgement, now));
    next.conditions
        .retain(|one| summary.iter().all(|summed| summed.type_ != one.type_));
    next.conditions.splice(0..0, summary);
    make_printable(next, LONGEST_MESSAGE)
}

/// Returns the records for the status. They end with the driver. A released driver continues to run, and its records
/// remain.
fn recorded(previous: Option<&CinderCSIDriverStatus>, report: &Report<'_>) -> DriverRecord {
    if report.decision.removal == Some(Removal::Finished) {
        return DriverRecord::default();
    }
    report.outcome.record.clone().unwrap_or_else(|| DriverRecord {
        namespace: previous.and_then(|previous| previous.operand_namespace.clone()),
        places: previous.map(|previous| previous.places.clone()).unwrap_or_default(),
    })
}

/// Evaluates a condition, except those of [`summary`].
fn judge(
    type_: ConditionType,
    previous: Option<&CinderCSIDriverStatus>,
    report: &Report<'_>,
    issues: &[Problem],
    now: Timestamp,
) -> Option<Judgement> {
    let facts = report.facts;
    Some(match type_ {
        ConditionType::Ready | ConditionType::Reconciling | ConditionType::Stalled => return None,
        ConditionType::Available => judgement_of(available(previous, report, issues, now)),
        ConditionType::Progressing => judgement_of(progressing(report, issues)),
        ConditionType::Degraded => judgement_of(degraded(report, issues)),
        ConditionType::Upgradeable => judgement_of(rollout::upgradeable(report, issues)),
        ConditionType::DeletionBlocked => judgement_of(removal::blocked(report)),
        ConditionType::CredentialsValid => judgement_of(clouds::credentials_valid(facts, report.outcome, now)),
    })
}

fn degraded(report: &Report<'_>, issues: &[Problem]) -> Verdict<Degraded> {
    let Some(first) = issues.first() else {
        let message = match &report.decision.removal {
            Some(Removal::Finished) => "the driver was removed",
            Some(Removal::Released) => "the operator has released ownership of the driver",
            _ => "nothing needs help",
        };
        return verdict(Degraded::AsExpected, message);
    };
    let messages: Vec<&str> = issues.iter().map(|issue| issue.message.as_str()).collect();
    verdict(first.reason, messages.join(" | "))
}

/// Returns the last reported status with the cause of a failed reconcile. The reconcile has not completed other
/// observations.
pub fn failed(
    previous: Option<&CinderCSIDriverStatus>,
    object: &ObjectFacts,
    problem: &Problem,
    now: Timestamp,
) -> CinderCSIDriverStatus {
    let message = format!("{}. Other conditions show the last observed state", problem.message);
    let degraded = verdict(problem.reason, message);
    carry_over(previous, object, [judgement_of(degraded)], now)
}

/// Returns the last reported status of a driver whose reconciliation is suspended.
pub fn not_reconciled(
    previous: Option<&CinderCSIDriverStatus>,
    facts: &Facts,
    decision: &Decision,
    now: Timestamp,
) -> CinderCSIDriverStatus {
    let report = &Report {
        facts,
        decision,
        outcome: &Outcome::default(),
    };
    let issues = issues::of(report, |_| false);
    let available = verdict(
        Available::NotReconciled,
        "reconciliation is suspended, see condition Degraded; other conditions show the last observed state",
    );
    let updated = [
        judgement_of(available),
        judgement_of(progressing(report, &issues)),
        judgement_of(degraded(report, &issues)),
    ];
    let next = carry_over(previous, &report.facts.object, updated, now);
    CinderCSIDriverStatus {
        observed_generation: report.facts.object.generation,
        ..next
    }
}

/// Returns the status of an object that this version of the operator cannot parse, with conditions that report it.
/// All other fields retain their content from the version that wrote them. `is_kept` indicates that the operator's
/// finalizer blocks a deletion.
pub fn unreadable(
    previous: &Value,
    generation: Option<i64>,
    message: &str,
    is_kept: bool,
    now: Timestamp,
) -> (Value, Vec<Condition>) {
    let conditions = previous["conditions"].as_array().into_iter().flatten();
    let known: Vec<Condition> = conditions
        .filter_map(|condition| serde_json::from_value(condition.clone()).ok())
        .collect();
    let known = CinderCSIDriverStatus {
        conditions: known,
        ..CinderCSIDriverStatus::default()
    };
    let available = "the operator cannot read this object, and reconciliation is suspended, see condition Degraded; other conditions show the last observed state";
    let degraded = format!("{message}. Other conditions show the last observed state");
    let mut judgements = vec![
        judgement_of(verdict(Available::NotReconciled, available)),
        judgement_of(verdict(Degraded::Unreadable, degraded)),
    ];
    let mut next = previous.clone();
    if is_kept {
        let blocked = "the object is being deleted, and the operator cannot read what it is to remove; condition Degraded says why";
        judgements.push(judgement_of(verdict(DeletionBlocked::Unreadable, blocked)));
        next["state"] = json!(DriverState::DeletionBlocked);
    }
    let new_conditions = judgements.into_iter();
    let new_conditions = new_conditions.map(|judgement| condition(Some(&known), generation, judgement, now));
    let mut new_conditions: Vec<Condition> = new_conditions.collect();
    let mut all = known.clone();
    all.conditions
        .retain(|old| new_conditions.iter().all(|new| new.type_ != old.type_));
    all.conditions.extend(new_conditions.iter().cloned());
    let summary = summary::summary(&all).map(|judgement| condition(Some(&known), generation, judgement, now));
    new_conditions.splice(0..0, summary);
    next["observedGeneration"] = json!(generation);
    let is_replaced = |condition: &Value| new_conditions.iter().any(|one| condition["type"] == one.type_);
    let mut conditions: Vec<Value> = previous["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|condition| !is_replaced(condition));
    let first: Vec<Value> = new_conditions.iter().map(|one| json!(one)).collect();
    next["conditions"] = json!([first, conditions].concat());
    (next, new_conditions)
}

/// Returns the cause of failure that the status reports for the last reconcile.
pub fn previous_failure(previous: Option<&CinderCSIDriverStatus>) -> Option<Problem> {
    let degraded = previous?.condition(ConditionType::Degraded)?;
    Degraded::ReconcileFailed.is(degraded).then(|| Problem {
        reason: Degraded::ReconcileFailed,
        message: degraded.message.clone(),
    })
}

/// Returns the last reported status with the given conditions in place of those of the same types.
fn carry_over<const N: usize>(
    previous: Option<&CinderCSIDriverStatus>,
    object: &ObjectFacts,
    updated: [Judgement; N],
    now: Timestamp,
) -> CinderCSIDriverStatus {
    let mut next = previous.cloned().unwrap_or_default();
    let previous = previous.filter(|previous| previous.is_observed());
    if previous.is_none() {
        next.conditions.clear();
    }
    // Like all other observations, the cause of a blocked deletion dates from an earlier reconcile.
    if !(object.is_deleted && next.state == Some(DriverState::DeletionBlocked)) {
        next.state = Some(removal::state(object.state, object.is_deleted, None));
    }
    for judgement in updated {
        let condition = condition(previous, object.generation, judgement, now);
        match next.conditions.iter_mut().find(|old| old.type_ == condition.type_) {
            Some(old) => *old = condition,
            None => next.conditions.push(condition),
        }
    }
    add_summary(previous, next, object.generation, now)
}

#[cfg(test)]
mod tests;
