// SPDX-License-Identifier: Apache-2.0
//! One full reconcile of a driver: observe, decide, act, report.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use cinder_csi_crds::AdoptionMode;
use cinder_operator_core::{
    cluster::{AttachedNodes, KINDS, Key, Kind, LostNodes},
    decide::{Decision, Existing, Facts, Lookups, ProjectGuard, Removal, Report, Situation, decide, draft, intend},
    migration::adopt_orphans,
    plan::{LastApplied, Obstacle},
    problem::Problem,
    reasons::Degraded,
    resolve::name_prefix_of,
    status,
};
use kube::runtime::controller::Action;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    act::{Acted, Seen, act},
    adoption::{self, Adoption},
    classes::{self, exclude_unmanaged},
    clouds,
    context::Context,
    driver_ref::DriverRef,
    environment::describe_cluster,
    pauses::{OBSTACLE_PAUSE, RECHECK_MARGIN},
    records,
    report::report_status,
    rollout, volumes,
};
use crate::{
    error::ReconcileError,
    kubernetes::answer,
    observe::{self, ObserveError},
    recreate_checks,
};

/// Observes the driver, decides and carries out the next actions, and reports the result. Without `may_write` nothing is written.
pub(super) async fn maintain(
    context: &Context,
    driver: &DriverRef<'_>,
    removal: Option<Removal>,
    may_write: bool,
) -> Result<Action, ReconcileError> {
    let (namespace, apis) = (driver.namespace, context.cluster.apis());
    let (mut live, unlisted) = observe::live_parts(&context.client, &driver.owner, namespace, apis).await?;
    let prefix = name_prefix_of(driver.object);
    let record = LastApplied::key(namespace, &prefix);
    observe::complete(&context.client, &mut live, std::slice::from_ref(&record)).await?;
    let last_applied = LastApplied::take(&mut live, &driver.owner, namespace, &prefix);
    records::find_unlabelled(context, driver, &mut live).await?;
    volumes::recheck_credentials(context, driver);
    let checked = clouds::check_credentials(context, driver, &live).await;
    let adopts = driver.object.spec.adoption.mode == AdoptionMode::Adopt;
    if adopts {
        // The releases of adopted workloads count.
        adopt_orphans(&driver.owner, &mut live);
    }
    let existing = Existing {
        owner: &driver.owner,
        live: &live,
        last_applied: &last_applied,
    };
    let mut environment =
        describe_cluster(context, namespace, driver.object, records::known_apis(driver, existing)).await?;
    environment.records = checked.record.annotations();
    (environment.clouds, environment.silent_clouds) = (checked.zones(), checked.silent());
    classes::add_cluster_facts(context, driver, &mut environment, &live).await;
    let mut intent = intend(driver.object, &environment, checked.wanted.as_ref(), existing)?;
    intent.problems.extend(unlisted.values().map(unlisted_kind));
    // A request for an object of an unserved kind fails, also for an object that is only in the record. Objects of an unconfirmed kind
    // may become desired later.
    let is_unserved = |kind: &&Kind| !kind.is_served(apis) || !kind.is_served(environment.apis);
    let unserved = KINDS.iter().filter(is_unserved).map(|kind| kind.kind);
    let unlisted: BTreeSet<&'static str> = unlisted.into_keys().chain(unserved).collect();
    let recorded = last_applied.iter().map(|(key, _)| key.clone());
    let mut keys: Vec<Key> = intent.keys().into_iter().chain(recorded).collect();
    keys.retain(|key| !unlisted.contains(key.kind));
    observe::complete(&context.client, &mut live, &keys).await?;
    exclude_unmanaged(&intent.resolved, &intent.desired, &mut live);
    // Another installation is not replaced by one that cannot be created as the spec describes it.
    let complete = Some(&intent).filter(|intent| intent.problems.is_empty());
    let adoption = if complete.is_some() || adopts || adoption::may_have_stopped(driver) {
        Box::pin(adoption::find_installation(context, driver, &mut live, complete)).await?
    } else {
        Adoption::default()
    };
    let seen = Seen {
        intent: &intent,
        last_applied: &last_applied,
        unlisted: &unlisted,
        adoption: &adoption,
    };
    let decision = Box::pin(decide_actions(context, driver, seen, &live, removal, may_write)).await?;
    let Acted {
        mut outcome,
        mut notices,
        failed,
        has,
        live,
    } = Box::pin(act(context, driver, seen, &decision, live, may_write)).await?;
    notices.extend(checked.rotations(has.as_ref()));
    let (look_again, is_move) = (checked.look_again, checked.is_move);
    let is_given = records::has_credentials(driver, &live, checked.wanted.as_ref());
    outcome.record = Some(records::driver_record(
        driver,
        &live,
        is_given.then_some(&checked.record),
        may_write,
    ));
    let facts = checked.facts(context, driver, has.as_ref());
    let (volumes, of_volumes) = volumes::observe_volumes(context, driver, &facts, &outcome);
    let is_moved = is_move && may_write && is_given && outcome.failures.is_empty();
    let guard = records::project_guard(driver, is_moved);
    let report = Report {
        facts: Facts {
            volumes,
            guard,
            ..facts
        },
        decision,
        outcome,
    };
    let soon = adoption::migration_pause(context, driver, &adoption, may_write);
    let of_classes = classes::next_look(context, driver, &report).unwrap_or(look_again);
    let unwatched = context.memory(&driver.owner.name, |memory| {
        memory
            .backoff
            .obstacle_pause(unwatched(&report, &adoption), context.idle_interval)
    });
    let otherwise = soon.unwrap_or(look_again).min(look_again).min(of_classes);
    let look_again = next_look(&report, otherwise, unwatched);
    report_status(context, driver, &report, notices).await?;
    if may_write && (report.facts.guard == ProjectGuard::Moved || records::was_moved(driver)) {
        records::end_move(context, driver).await?;
    }
    if let Some(error) = failed {
        return Err(error);
    }
    if let Some(failure) = report.outcome.failures.first() {
        return Err(ReconcileError::Write {
            key: failure.key.clone(),
            message: failure.message.clone(),
        });
    }
    if adoption.migration.is_some() {
        // The migration continues with the attachments.
        let soon = of_volumes.map(|soon| soon.saturating_add(RECHECK_MARGIN));
        return Ok(Action::requeue(soon.map_or(look_again, |soon| soon.min(look_again))));
    }
    Ok(volumes::until_next_look(
        context, driver, report, of_volumes, look_again,
    ))
}

/// Decides the next actions, and reads the facts that a plan requires.
async fn decide_actions(
    context: &Context,
    driver: &DriverRef<'_>,
    seen: Seen<'_>,
    live: &BTreeMap<Key, Value>,
    removal: Option<Removal>,
    may_write: bool,
) -> Result<Decision, ReconcileError> {
    let name = &driver.owner.name;
    let adoption = seen.adoption;
    let situation = Situation {
        driver: driver.object,
        owner: &driver.owner,
        intent: seen.intent,
        live,
        last_applied: seen.last_applied,
        unlisted: seen.unlisted,
        unapplied: &context.memory(name, |memory| memory.drift.unapplied.clone()),
        instant: Instant::now().into_std(),
    };
    let draft = draft(&situation);
    let in_use = recreate_checks::in_use(&context.client, &context.cluster, name, &draft.plan).await;
    let attached = if draft.may_lose_nodes(&situation) {
        let is_lost = |attached: &AttachedNodes| draft.lost_nodes(&situation, attached).is_some();
        recreate_checks::attached_nodes(&context.client, &context.cluster, name, is_lost).await
    } else {
        AttachedNodes::default()
    };
    let templates = if may_write {
        rollout::newest_templates(context, driver, &draft).await?
    } else {
        BTreeMap::new()
    };
    let lookups = Lookups {
        in_use,
        attached,
        templates,
        migration: adoption.migration.clone(),
        migration_problems: adoption.problems.clone(),
        removal,
        known: rollout::known_objects(context, driver, &draft),
        may_write,
    };
    Ok(decide(&situation, draft, lookups))
}

/// Computes the pause until the next reconcile. `unwatched` is the pause while an obstacle exists that no watch reports. The end of all
/// other obstacles causes an event.
fn next_look(report: &Report, otherwise: Duration, unwatched: Option<Duration>) -> Duration {
    let Report { decision, outcome, .. } = report;
    let of_nodes = outcome.node_rollout.as_ref().and_then(|nodes| nodes.look_again);
    let otherwise = of_nodes.map_or(otherwise, |of_nodes| otherwise.min(of_nodes));
    let otherwise = otherwise.saturating_add(RECHECK_MARGIN);
    let is_unwatched = matches!(&decision.removal, Some(Removal::Blocked(blockers)) if blockers.are_unwatched());
    if is_unwatched {
        return otherwise.min(OBSTACLE_PAUSE);
    }
    unwatched.map_or(otherwise, |pause| otherwise.min(pause))
}

/// The obstacles that no watch reports.
fn unwatched(report: &Report, adoption: &Adoption) -> Vec<String> {
    let Report {
        facts,
        decision,
        outcome,
    } = report;
    let obstacles = decision.plan.obstacles.iter();
    let is_watched = |obstacle: &&Obstacle| {
        matches!(
            obstacle,
            Obstacle::NodesInUse {
                lost: LostNodes::Nodes(_),
                ..
            }
        )
    };
    let obstacles = obstacles.filter(|obstacle| !is_watched(obstacle));
    let problems = [&facts.needed_clouds, &adoption.problems, &outcome.problems]
        .into_iter()
        .flatten();
    obstacles
        .map(status::describe_obstacle)
        .chain(problems.map(|problem| problem.message.clone()))
        .collect()
}

/// The problem of a kind that cannot be listed.
fn unlisted_kind(error: &ObserveError) -> Problem {
    let message = match error {
        ObserveError::List { plural, source } => format!("cannot list {plural}: {}", answer(source)),
        other => other.to_string(),
    };
    Problem {
        reason: Degraded::ReconcileFailed,
        message: format!(
            "{message}. Objects of this kind are neither written nor removed meanwhile; all others are maintained"
        ),
    }
}
