// SPDX-License-Identifier: Apache-2.0
//! Finds, explains and reports overdue operations on volumes.

use std::{collections::BTreeSet, time::Duration};

use cinder_operator_core::{
    cluster::LostNodes,
    decide::{CloudView, Decision, Facts, Outcome, VolumeFacts},
    diagnosis::{CloudAccess, LOOKED_INTO, LoginDoubts, Suspect, Suspects, diagnose, login_doubts, suspects},
    plan::Obstacle,
};
use kube::runtime::controller::Action;
use tokio::time::Instant;

use super::{
    act::observe_unserved,
    context::Context,
    driver_ref::DriverRef,
    memory::{LastReconcile, ObjectState},
    pauses::RECHECK_MARGIN,
    report::report_status,
};
use crate::error::ReconcileError;

/// The label with a node's zone.
const ZONE_LABEL: &str = "topology.cinder.csi.openstack.org/zone";

/// Age of the last check of the credentials from which a silent operation repeats it.
const CHECK_AGE: Duration = Duration::from_secs(30);

/// Reports volumes, attachments and claims, if nothing else has changed since the last full reconcile. The only request is the write of a
/// changed status. `None` if a full reconcile is due.
pub(super) async fn reconcile_volumes_only(
    context: &Context,
    driver: &DriverRef<'_>,
) -> Result<Option<Action>, ReconcileError> {
    let name = &driver.owner.name;
    let Some(last) = context.memory(name, |memory| memory.volumes.take_last_reconcile()) else {
        return Ok(None);
    };
    let next_full = last.until.saturating_duration_since(Instant::now());
    let is_awaited_change = last.awaited != awaited_attachments(context, driver, &last.decision);
    let is_recheck_due = recheck_due_in(context, driver, &find_login_doubts(context, driver)) == Some(Duration::ZERO);
    if last.of != ObjectState::of(driver.object) || next_full.is_zero() || is_awaited_change || is_recheck_due {
        return Ok(None);
    }
    let LastReconcile {
        facts,
        decision,
        mut outcome,
        ..
    } = last;
    outcome.notices = Vec::new();
    let next_volumes;
    (outcome.volumes, next_volumes) = observe_volumes(context, driver, &facts, &outcome);
    observe_unserved(context, driver, &mut outcome);
    report_status(context, driver, &facts, &decision, &outcome).await?;
    let pauses = (next_volumes, next_full);
    Ok(Some(remember_reconcile(
        context,
        driver,
        (facts, decision, outcome),
        pauses,
    )))
}

/// Remembers a full reconcile. Returns the next one after the pause for the volumes or the pause for all.
pub(super) fn remember_reconcile(
    context: &Context,
    driver: &DriverRef<'_>,
    (facts, decision, outcome): (Facts, Decision, Outcome),
    (next_volumes, next_full): (Option<Duration>, Duration),
) -> Action {
    let look = LastReconcile {
        of: ObjectState::of(driver.object),
        awaited: awaited_attachments(context, driver, &decision),
        facts,
        decision,
        outcome,
        until: Instant::now() + next_full,
    };
    context.memory(&driver.owner.name, |memory| {
        memory.volumes.remember_reconcile(driver.calls, look);
    });
    let next_volumes = next_volumes.map(|pause| pause.saturating_add(RECHECK_MARGIN));
    Action::requeue(next_volumes.map_or(next_full, |pause| pause.min(next_full)))
}

/// The attachments that a change waits for, each a node's name with a volume's. Where a change waits for the end of all
/// operations, a single entry represents them.
fn awaited_attachments(context: &Context, driver: &DriverRef<'_>, decision: &Decision) -> Vec<(String, String)> {
    let name = &driver.owner.name;
    let (mut nodes, mut waits_for_all) = (BTreeSet::new(), false);
    for obstacle in &decision.plan.obstacles {
        match obstacle {
            Obstacle::NodesInUse {
                lost: LostNodes::Nodes(lost),
                ..
            } => nodes.extend(lost.keys()),
            Obstacle::Waiting { .. } => waits_for_all = true,
            _ => {}
        }
    }
    if nodes.is_empty() && !waits_for_all {
        return Vec::new();
    }
    context.cluster.read(|index| {
        let mut awaited = index.attached_volumes(name);
        awaited.retain(|(node, _)| nodes.contains(node));
        awaited.sort();
        let is_under_way = waits_for_all && !index.attachments_under_way(name).is_empty();
        awaited.extend(is_under_way.then(Default::default));
        awaited
    })
}

/// Finds and explains overdue operations. Also returns the pause until another operation can become overdue.
pub(super) fn observe_volumes(
    context: &Context,
    driver: &DriverRef<'_>,
    facts: &Facts,
    outcome: &Outcome,
) -> (VolumeFacts, Option<Duration>) {
    let name = &driver.owner.name;
    let (count, node_zones) = context.cluster.read(|index| {
        let nodes = index.nodes().into_iter();
        let zones: BTreeSet<&String> = nodes.filter_map(|node| node.labels.get(ZONE_LABEL)).collect();
        (index.count_of(name), zones.into_iter().cloned().collect())
    });
    let limits = facts.health.stuck;
    let now = context.sources.now();
    let Suspects { all, others, next } = context
        .cluster
        .read(|index| suspects(index, name, &limits, now, LOOKED_INTO));
    let stuck = all.into_iter().map(|mut suspect| {
        add_circumstances(&mut suspect, facts, outcome);
        diagnose(&suspect)
    });
    let volumes = VolumeFacts {
        count,
        node_zones,
        stuck: stuck.collect(),
        stuck_others: others,
    };
    let recheck = recheck_due_in(context, driver, &find_login_doubts(context, driver));
    (volumes, [next, recheck].into_iter().flatten().min())
}

/// Repeats the check of the credentials at once if new operations suggest that the driver's login fails.
pub(super) fn recheck_credentials(context: &Context, driver: &DriverRef<'_>) {
    let name = &driver.owner.name;
    let doubts = find_login_doubts(context, driver);
    if recheck_due_in(context, driver, &doubts) == Some(Duration::ZERO) {
        context.login_check.recheck(name);
        context.memory(name, |memory| {
            memory.volumes.remember_doubts(&doubts.refused | &doubts.silent);
        });
    } else {
        context.memory(name, |memory| {
            memory.volumes.retain_doubts(&(&doubts.refused | &doubts.silent));
        });
    }
}

/// The operations that suggest a failed login.
fn find_login_doubts(context: &Context, driver: &DriverRef<'_>) -> LoginDoubts {
    let name = &driver.owner.name;
    let now = context.sources.now();
    context.cluster.read(|index| login_doubts(index, name, now))
}

/// The time until operations require a check of the credentials, if nothing else happens. An error requires it at once. A silent
/// operation requires it once the last check is older than [`CHECK_AGE`].
fn recheck_due_in(context: &Context, driver: &DriverRef<'_>, doubts: &LoginDoubts) -> Option<Duration> {
    let name = &driver.owner.name;
    // Refused credentials are retried on their own.
    let age = context.login_check.age(name)?;
    let is_known = |objects: &BTreeSet<String>| context.memory(name, |memory| memory.volumes.are_known_doubts(objects));
    if !is_known(&doubts.refused) {
        return Some(Duration::ZERO);
    }
    if !is_known(&doubts.silent) {
        return Some(CHECK_AGE.saturating_sub(age));
    }
    doubts.next
}

/// Adds the state of the driver and of the clouds.
fn add_circumstances(suspect: &mut Suspect, facts: &Facts, outcome: &Outcome) {
    let case = &mut suspect.case;
    case.has_controller = outcome
        .controller
        .as_ref()
        .is_some_and(|controller| controller.available > 0);
    case.access = access(&facts.clouds, outcome);
    case.facts = facts.clouds.iter().map(|cloud| cloud.state.facts.clone()).collect();
    case.zone_map = facts.clouds.iter().flat_map(|cloud| cloud.zone_map.clone()).collect();
}

/// Whether the driver has access to its clouds. Access to one of several clouds is enough.
pub(crate) fn access(clouds: &[CloudView], outcome: &Outcome) -> CloudAccess {
    let words = |cloud: &CloudView| {
        let refusal = cloud.refusal.as_ref().map(|refusal| refusal.message.clone());
        refusal.unwrap_or_default()
    };
    match clouds.first() {
        Some(first) if clouds.iter().all(|cloud| outcome.is_locked_out(cloud)) => CloudAccess::Refused(words(first)),
        Some(first)
            if clouds
                .iter()
                .all(|cloud| cloud.is_down() || outcome.is_locked_out(cloud)) =>
        {
            CloudAccess::Unreachable(words(first))
        }
        _ => CloudAccess::Open,
    }
}
