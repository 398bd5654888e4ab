// SPDX-License-Identifier: Apache-2.0
//! One full reconcile of a driver: observe, decide, act, report.

use std::time::Duration;

use cinder_operator_core::{
    cluster::{Blockers, LostNodes},
    decide::{Decision, DecisionStep, Facts, Outcome, ProjectGuard, Removal, decide},
    plan::Obstacle,
    status,
};
use kube::runtime::controller::Action;

use super::{
    act::act,
    classes,
    context::Context,
    driver_ref::DriverRef,
    facts::{answer_queries, observe_driver},
    pauses::{OBSTACLE_PAUSE, RECHECK_MARGIN},
    records,
    report::report_status,
    volumes,
};
use crate::{error::ReconcileError, migration::migration_pause};

/// The most rounds of queries of one decision. A migration takes up to seven.
const MOST_ROUNDS: usize = 12;

/// Observes a driver, decides and carries out the next actions, and reports the result. `blockers` are the objects that block its
/// deletion. Without the Lease of the object nothing is written.
pub(super) async fn maintain(
    context: &Context,
    driver: &DriverRef<'_>,
    blockers: Option<Blockers>,
    has_lease: bool,
) -> Result<Action, ReconcileError> {
    let mut facts = Box::pin(observe_driver(context, driver, blockers, has_lease)).await?;
    let decision = Box::pin(decide_next(context, driver, &mut facts)).await?;
    if decision.is_migration_settled {
        let memory = context.migration_memory(&driver.owner.name);
        memory.remember_settled(driver.object.metadata.generation);
    }
    let (mut outcome, failed) = Box::pin(act(context, driver, &facts, &decision)).await?;
    let next_volumes;
    (outcome.volumes, next_volumes) = volumes::observe_volumes(context, driver, &facts, &outcome);
    let next_full = next_full_reconcile(context, driver, &facts, &decision, &outcome);
    report_status(context, driver, &facts, &decision, &outcome).await?;
    if !decision.read_only() && (outcome.guard == ProjectGuard::Moved || records::was_moved(driver)) {
        records::end_move(context, driver).await?;
    }
    if let Some(error) = failed {
        return Err(error);
    }
    if let Some(failure) = outcome.failures.first() {
        return Err(ReconcileError::Write {
            key: failure.key.clone(),
            message: failure.message.clone(),
        });
    }
    if decision.migration.is_some() {
        // The migration continues with the attachments.
        let next_volumes = next_volumes.map(|pause| pause.saturating_add(RECHECK_MARGIN));
        return Ok(Action::requeue(
            next_volumes.map_or(next_full, |pause| pause.min(next_full)),
        ));
    }
    // The status does not depend on the objects, and they take the most memory.
    facts.driver = None;
    let pauses = (next_volumes, next_full);
    Ok(volumes::remember_reconcile(
        context,
        driver,
        (facts, decision, outcome),
        pauses,
    ))
}

/// Decides the next actions, and answers the queries that the decision needs.
async fn decide_next(context: &Context, driver: &DriverRef<'_>, facts: &mut Facts) -> Result<Decision, ReconcileError> {
    for _ in 0..MOST_ROUNDS {
        match decide(driver.object, facts)? {
            DecisionStep::Decided(decision) => return Ok(*decision),
            DecisionStep::Need(queries) => {
                let Some(observed) = facts.driver.as_deref_mut() else {
                    break;
                };
                answer_queries(context, driver, *queries, observed).await?;
            }
        }
    }
    Err(ReconcileError::Undecided(MOST_ROUNDS))
}

/// Computes the pause until the next full reconcile.
fn next_full_reconcile(
    context: &Context,
    driver: &DriverRef<'_>,
    facts: &Facts,
    decision: &Decision,
    outcome: &Outcome,
) -> Duration {
    let observed = facts.driver.as_deref();
    let next_check = observed.map_or(context.idle_interval, |observed| observed.credentials.next_check);
    let of_nodes = outcome.node_rollout.as_ref().and_then(|nodes| nodes.look_again);
    let planned = [
        migration_pause(&context.migration_memory(&driver.owner.name), decision, OBSTACLE_PAUSE),
        classes::next_check(context, driver, decision),
        of_nodes,
    ];
    let planned = planned.into_iter().flatten().fold(next_check, Duration::min);
    let planned = planned.saturating_add(RECHECK_MARGIN);
    let obstacles = unwatched_obstacles(facts, decision, outcome);
    let of_obstacles = context.memory(&driver.owner.name, |memory| {
        memory.backoff.obstacle_pause(obstacles, context.idle_interval)
    });
    if matches!(&decision.removal, Some(Removal::Blocked(blockers)) if blockers.are_unwatched()) {
        return planned.min(OBSTACLE_PAUSE);
    }
    of_obstacles.map_or(planned, |pause| planned.min(pause))
}

/// The obstacles that can end without an event of a watch.
fn unwatched_obstacles(facts: &Facts, decision: &Decision, outcome: &Outcome) -> Vec<String> {
    let is_watched = |obstacle: &&Obstacle| {
        matches!(
            obstacle,
            Obstacle::NodesInUse {
                lost: LostNodes::Nodes(_),
                ..
            }
        )
    };
    let obstacles = decision.plan.obstacles.iter().filter(|obstacle| !is_watched(obstacle));
    let problems = [&facts.needed_clouds, &decision.migration_problems, &outcome.problems];
    obstacles
        .map(status::describe_obstacle)
        .chain(problems.into_iter().flatten().map(|problem| problem.message.clone()))
        .collect()
}
