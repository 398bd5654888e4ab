// SPDX-License-Identifier: Apache-2.0
//! Computes the status of a driver from the observations of a reconcile. The functions are pure.
//!
//! Reasons are a stable part of the API. Messages contain the object, the fault and the required action. The status
//! does not change by itself: it contains only times of transitions and no counters of attempts.

use cinder_csi_crds::{
    CinderCSIDriverStatus, ConditionType, ControllerStatus, DriverState, ManagementState, NodesStatus,
};
use csi_sources::UntrustedText;
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use serde_json::{Value, json};

use crate::{
    cluster::OptionalApi,
    decide::{Decision, Facts, ObjectFacts, Outcome, Removal, Report},
    notice::Notice,
    problem::Problem,
    reasons::{Available, ConditionReason, Degraded, DeletionBlocked, Event, Progressing, Reason, Upgradeable},
    record::DriverRecord,
    text::{join_truncated, make_printable},
};

mod adoption;
mod classes;
mod clouds;
mod cluster;
mod drift;
mod issues;
mod monitoring;
mod nodes;
mod pods;
mod removal;
mod rollout;
mod summary;
mod volumes;

pub use classes::unavailable_snapshot_controller;
pub use clouds::expiring;
pub use issues::describe_obstacle;
pub use nodes::absent_nodes;
pub use volumes::news;

/// Maximum number of names in a list of the status.
const NAMED: usize = 10;

/// Maximum length of a condition's message in the API server.
const LONGEST_MESSAGE: usize = 32_768;

fn counted(names: &[String]) -> i32 {
    i32::try_from(names.len()).unwrap_or(i32::MAX)
}

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

/// Whether a version of the driver has been installed in all pods before.
fn is_in_place(status: Option<&CinderCSIDriverStatus>) -> bool {
    status.is_some_and(|status| status.version.is_some())
}

/// Whether the management state forbids changes.
fn is_paused(report: &Report<'_>) -> bool {
    matches!(
        report.facts.object.state,
        ManagementState::Paused | ManagementState::DryRun | ManagementState::Unmanaged
    )
}

/// Reason and message of a condition.
type Verdict<R> = (R, String);

fn verdict<R: Reason>(reason: R, message: impl Into<String>) -> Verdict<R> {
    (reason, message.into())
}

/// Documented reason and message of a condition of any type.
type Judgement = (&'static ConditionReason, String);

fn judgement_of<R: Reason>((reason, message): Verdict<R>) -> Judgement {
    (reason.row(), message)
}

fn available(
    previous: Option<&CinderCSIDriverStatus>,
    report: &Report<'_>,
    issues: &[Problem],
    now: Timestamp,
) -> Verdict<Available> {
    let Report {
        facts,
        decision,
        outcome,
    } = *report;
    if decision.removal == Some(Removal::Finished) {
        let remedy = if facts.object.is_deleted {
            ""
        } else {
            "; set spec.managementState to Managed to install it again"
        };
        return verdict(
            Available::Removed,
            format!("the driver was removed: the objects that the operator owned for it are deleted{remedy}"),
        );
    }
    if decision.removal == Some(Removal::Released) {
        return verdict(
            Available::Orphaned,
            "the operator has released ownership of the driver (spec.deletion.policy is Orphan), which goes on running unobserved. \
             With spec.adoption.mode Adopt and spec.managementState Managed the operator adopts it again",
        );
    }
    if let Some(Removal::UnderWay(_)) = &decision.removal {
        return verdict(Available::Removing, "the driver is being removed");
    }
    let Some(controller) = &outcome.controller else {
        let message = issues.first().map_or_else(
            || "there is no controller yet".to_owned(),
            |issue| format!("there is no controller yet, because {}", issue.message),
        );
        return verdict(Available::ControllerMissing, message);
    };
    if controller.available == 0 {
        return verdict(
            Available::ControllerDown,
            format!(
                "no pod of Deployment {} is available; `kubectl describe` of it and of its pods shows why",
                controller.name
            ),
        );
    }
    for workload in [Some(controller), outcome.daemon_set.as_ref()].into_iter().flatten() {
        if !workload.lacking.is_empty() {
            let message = format!(
                "the pods of {} have no container {}, without which they serve nothing; take back what changed its template",
                workload.name,
                workload.lacking.join(", ")
            );
            return verdict(Available::ContainersMissing, message);
        }
    }
    if outcome.daemon_set.is_none() {
        let message = issues.first().map_or_else(
            || "there is no DaemonSet of the nodes yet: no volume can be mounted or unmounted".to_owned(),
            |issue| {
                format!(
                    "there is no DaemonSet of the nodes, and no volume can be mounted or unmounted: {}",
                    issue.message
                )
            },
        );
        return verdict(Available::DaemonSetMissing, message);
    }
    if let Some(verdict) = nodes::unavailable(previous, outcome) {
        return verdict;
    }
    if outcome.nodes.desired == 0 {
        return verdict(
            Available::NoNodes,
            "no node matches spec.node (nodeSelector, affinity, tolerations): no pod can use \
            a volume",
        );
    }
    if outcome.nodes.registered == 0 {
        return verdict(
            Available::NodesNotReady,
            format!(
                "none of {} nodes is Ready: {}",
                outcome.nodes.desired,
                join_truncated(&outcome.nodes.not_ready)
            ),
        );
    }
    // A registration outlives the pod that created it.
    if let Some(daemon_set) = outcome
        .daemon_set
        .as_ref()
        .filter(|daemon_set| daemon_set.desired > 0 && daemon_set.available == 0)
    {
        return verdict(
            Available::NodePodsDown,
            format!(
                "no pod of DaemonSet {} is available: no volume can be mounted or unmounted; `kubectl describe` of it and of its \
                 pods shows why",
                daemon_set.name
            ),
        );
    }
    clouds::cut_off(previous, facts, outcome, now)
        .unwrap_or_else(|| verdict(Available::AsExpected, nodes::available(outcome)))
}

fn progressing(report: &Report<'_>, issues: &[Problem]) -> Verdict<Progressing> {
    let Report {
        facts,
        decision,
        outcome,
    } = *report;
    match &decision.removal {
        Some(Removal::Blocked(blockers)) => {
            return verdict(
                Progressing::DeletionBlocked,
                blockers.sentence(facts.object.deletion_policy),
            );
        }
        Some(Removal::Held) => {
            return verdict(
                Progressing::DeletionPaused,
                "the object is being deleted, and spec.managementState forbids changes: \
                nothing is removed; set it to Managed to let the removal begin",
            );
        }
        Some(Removal::UnderWay(what)) => {
            return verdict(
                Progressing::Removing,
                format!("the driver is being removed; waiting for {what}"),
            );
        }
        Some(Removal::Finished | Removal::Released) => {
            return verdict(Progressing::AsExpected, "nothing is left to do");
        }
        None => {}
    }
    if is_paused(report) {
        return verdict(Progressing::Paused, rollout::paused(report));
    }
    if let Some(verdict) = adoption::progress(report) {
        return verdict;
    }
    if let Some(verdict) = rollout::progress(report) {
        return verdict;
    }
    let mut parts = Vec::new();
    if let Some(controller) = outcome
        .controller
        .as_ref()
        .filter(|controller| !controller.is_rolled_out())
    {
        let left = match controller.outdated {
            0 => String::new(),
            outdated => format!(", {outdated} of an older version left"),
        };
        parts.push(format!(
            "controller: {} of {} pods updated, {} available{left}",
            controller.updated, controller.desired, controller.available
        ));
    }
    parts.extend(rollout::node_progress(report));
    if nodes::awaits_registration(outcome) {
        parts.push(format!(
            "nodes: {} of {} registered",
            outcome.nodes.registered, outcome.nodes.desired
        ));
    }
    if !parts.is_empty() {
        return verdict(Progressing::RollingOut, parts.join("; "));
    }
    let is_held_up = report.is_held_up();
    if is_held_up || outcome.controller.is_none() || outcome.daemon_set.is_none() {
        return match issues.first() {
            Some(_) => verdict(
                Progressing::Blocked,
                "the rollout is blocked; resolve the problem that condition Degraded reports",
            ),
            None => verdict(Progressing::Installing, "the objects of the driver are being made"),
        };
    }
    verdict(Progressing::AsExpected, "everything is as the spec wants it")
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

fn condition(
    previous: Option<&CinderCSIDriverStatus>,
    generation: Option<i64>,
    (reason, message): Judgement,
    now: Timestamp,
) -> Condition {
    let old = previous.and_then(|previous| previous.condition(reason.type_));
    let last_transition_time = match old {
        Some(old) if old.status == reason.status => old.last_transition_time.clone(),
        _ => Time(whole_seconds(now)),
    };
    Condition {
        type_: reason.type_.as_str().to_owned(),
        status: reason.status.to_owned(),
        reason: reason.reason.to_owned(),
        message: UntrustedText::with_limit(&message, LONGEST_MESSAGE).to_string(),
        observed_generation: generation,
        last_transition_time,
    }
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

/// Removes fractions of a second, which the API server does not store. A different time after a read would count as a
/// change.
fn whole_seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// Returns the events for a change of the status: one for each condition with a changed status or reason.
pub fn notices(previous: Option<&CinderCSIDriverStatus>, next: &CinderCSIDriverStatus) -> Vec<Notice> {
    let previous = previous.filter(|previous| previous.is_observed());
    let changed = |type_: &ConditionType| {
        let old = previous.and_then(|previous| previous.condition(*type_));
        let new = next.condition(*type_)?;
        let is_same = old.is_some_and(|old| old.status == new.status && old.reason == new.reason);
        // The first healthy status of a condition has no event. Special conditions have one only when they become or
        // cease to be unhealthy.
        let is_headline = matches!(
            type_,
            ConditionType::Available | ConditionType::Progressing | ConditionType::Degraded
        );
        let is_good = |condition: &Condition| condition.status == type_.good_status();
        let is_quiet_start = is_good(new)
            && !clouds::is_insecure(new)
            && !old.is_some_and(clouds::is_insecure)
            && (old.is_none() && !Progressing::Paused.is(new) || !is_headline && old.is_some_and(is_good));
        // Other conditions already have these events. Available or Degraded reports that nothing is in progress.
        // Progressing reports the course of a removal and its blockers. Degraded reports why the availability is
        // unknown.
        let is_told_elsewhere = *type_ == ConditionType::DeletionBlocked
            || *type_ == ConditionType::Upgradeable && is_about_rollout(old, new)
            || *type_ == ConditionType::Progressing && new.status != "True" && !Progressing::Paused.is(new)
            || *type_ == ConditionType::Available
                && (new.status == "Unknown" || Available::Removing.is(new) || Available::Removed.is(new));
        if is_same || is_quiet_start || is_told_elsewhere {
            return None;
        }
        notice(*type_, new, is_in_place(Some(next)))
    };
    let mut notices: Vec<Notice> = ConditionType::ALL.iter().filter_map(changed).collect();
    notices.extend(classes::notices(previous, next));
    notices
}

/// Whether Upgradeable reports only the start or the end of a rollout, as Progressing does. A joining node also
/// starts a rollout.
fn is_about_rollout(old: Option<&Condition>, new: &Condition) -> bool {
    let is_rollout = |condition: &Condition| Upgradeable::RolloutInProgress.is(condition);
    is_rollout(new) || new.status == "True" && old.is_some_and(is_rollout)
}

fn notice(type_: ConditionType, new: &Condition, is_in_place: bool) -> Option<Notice> {
    if let Some(event) = clouds::event(type_, new) {
        return Some(Notice::new(event, new.message.clone()));
    }
    let is_good = new.status == type_.good_status();
    let event = match type_ {
        ConditionType::Available if is_good => Event::Available,
        ConditionType::Available if is_in_place => Event::Unavailable,
        // A driver that is not ready during its installation is not a fault. Degraded reports the cause of a delay.
        ConditionType::Available => Event::NotYetAvailable,
        ConditionType::Progressing if Progressing::DeletionBlocked.is(new) => Event::DeletionBlocked,
        ConditionType::Progressing if Progressing::Paused.is(new) => Event::Paused,
        ConditionType::Progressing => Event::Progressing,
        ConditionType::Degraded if is_good => Event::Recovered,
        ConditionType::Degraded => Event::Degraded,
        ConditionType::Upgradeable if is_good => Event::UpgradeableTrue,
        ConditionType::Upgradeable if new.status == "Unknown" => Event::UpgradeableUnknown,
        ConditionType::Upgradeable => Event::UpgradeableFalse,
        // CredentialsValid has its own events above, Progressing reports a removal, and the first three summarize
        // others.
        ConditionType::Ready
        | ConditionType::Reconciling
        | ConditionType::Stalled
        | ConditionType::DeletionBlocked
        | ConditionType::CredentialsValid => return None,
    };
    let note = format!("{}={} ({}): {}", new.type_, new.status, new.reason, new.message);
    Some(Notice::new(event, note))
}

#[cfg(test)]
mod tests;
