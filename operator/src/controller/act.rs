// SPDX-License-Identifier: Apache-2.0
//! Carries out a decision.

use std::collections::BTreeMap;

use cinder_operator_core::{
    cluster::{Index, Key, NodesView, kind, view},
    decide::{CredentialFacts, Decision, DriverFacts, Facts, Outcome, Workload},
    notice::Notice,
    plan::{FailedWrite, LastApplied},
    reasons::Event,
    resolve::name_prefix_of,
    text::join_truncated,
};
use serde_json::Value;

use super::{
    clouds,
    context::Context,
    driver_ref::DriverRef,
    records::{self, last_good},
    rollout,
};
use crate::{
    apply::{Records, apply_plan},
    error::ReconcileError,
    migration::carry_out_acts,
    observe, recreate_checks, startup_taint,
};

/// Carries out a decision, and observes the driver after it. Also returns the error for which the reconcile is repeated.
pub(super) async fn act(
    context: &Context,
    driver: &DriverRef<'_>,
    facts: &Facts,
    decision: &Decision,
) -> Result<(Outcome, Option<ReconcileError>), ReconcileError> {
    let Some(observed) = facts.driver.as_deref() else {
        return Ok((Outcome::default(), None));
    };
    let mut live = decision.planned_objects(driver.object, observed);
    let (mut failed, mut problems, mut notices) = (None, Vec::new(), decision.notices.clone());
    let failures = write_objects(context, driver, observed, decision, &mut live, &mut notices).await;
    // The driver has the credentials that its Secret contains after the writes.
    let current = last_good(&driver.owner, &live);
    if !decision.read_only() && (failures.is_empty() || decision.is_returning()) {
        match carry_out_acts(&driver.migration(context), decision, &mut notices).await {
            Ok(refused) => problems.extend(refused),
            Err(error) => failed = Some(error),
        }
    }
    if !decision.read_only() {
        notices.extend(remove_startup_taints(context, driver, decision).await);
    }
    // The operator itself removes its objects while the other installation returns.
    let desired = if decision.is_returning() {
        &[]
    } else {
        decision.keys.as_slice()
    };
    rollout::remember_objects(context, driver, desired, &live, &failures);
    let mut outcome = Outcome {
        failures,
        ..observe_workloads(context, driver, &live)
    };
    // While another installation is replaced, its pods serve the nodes.
    outcome.node_template = outcome.node_template.filter(|_| decision.migration.is_none());
    observe_unserved(context, driver, &mut outcome);
    if let Some(controller) = &mut outcome.controller {
        controller.wants(decision.sidecars.iter().copied());
    }
    let may_replace = !decision.read_only() && failed.is_none() && outcome.failures.is_empty();
    outcome.node_rollout = rollout::judge_node_pods(context, driver, &live, decision, may_replace).await?;
    if let Some(rollout) = &outcome.node_rollout {
        match rollout::replace_pods(context, driver, rollout).await {
            Ok(replaced) => notices.extend(replaced),
            Err(error) => failed = Some(error),
        }
    }
    if may_replace && failed.is_none() {
        let nodes = outcome.node_rollout.as_ref();
        let added = rollout::add_duties(context, driver, decision, nodes, &mut live).await;
        outcome.failures.extend(added.failures);
        notices.extend(added.notices);
    }
    problems.extend(failed.as_ref().map(ReconcileError::problem));
    notices.extend(clouds::rotation_events(&observed.credentials, current.as_ref()));
    clouds::record_credentials(driver, &observed.credentials, current.as_ref(), &mut outcome);
    (outcome.problems, outcome.notices) = (problems, notices);
    record_places(driver, &observed.credentials, decision, &live, &mut outcome);
    Ok((outcome, failed))
}

/// Writes the objects of the plan and the record of the applied content.
async fn write_objects(
    context: &Context,
    driver: &DriverRef<'_>,
    observed: &DriverFacts,
    decision: &Decision,
    live: &mut BTreeMap<Key, Value>,
    notices: &mut Vec<Notice>,
) -> Vec<FailedWrite> {
    if decision.read_only() {
        return Vec::new();
    }
    let name = &driver.owner.name;
    notices.extend(recreate_checks::pre_delete_events(&context.client, &decision.plan).await);
    let records = Records::of(driver.object).only(&decision.keys);
    let applied = apply_plan(&context.writer, &decision.plan, live, records).await;
    context.memory(name, |memory| memory.drift.unapplied = applied.left);
    let repaired = applied.repaired.iter();
    repaired.for_each(|kind| context.metrics.drift_repaired(name, kind));
    for (key, object) in applied.written {
        match object {
            Some(object) => live.insert(key, object),
            None => live.remove(&key),
        };
    }
    let mut failures = applied.failures;
    failures.extend(record_applied(context, driver, observed, decision, live).await);
    notices.extend(applied.notices);
    failures
}

/// Adds the records of namespace, project and region, and whether a confirmed move was carried out.
fn record_places(
    driver: &DriverRef<'_>,
    credentials: &CredentialFacts,
    decision: &Decision,
    live: &BTreeMap<Key, Value>,
    outcome: &mut Outcome,
) {
    let is_given = records::has_credentials(driver, live, credentials.desired.as_ref());
    let places = is_given.then_some(&credentials.record);
    outcome.record = Some(records::driver_record(driver, live, places, decision));
    let is_written = !decision.read_only() && outcome.failures.is_empty();
    outcome.guard = records::project_guard(driver, credentials.is_move && is_given && is_written);
}

/// Updates the record of the last applied content where it differs from the ConfigMap.
async fn record_applied(
    context: &Context,
    driver: &DriverRef<'_>,
    observed: &DriverFacts,
    decision: &Decision,
    live: &BTreeMap<Key, Value>,
) -> Option<FailedWrite> {
    let (owner, prefix) = (&driver.owner, &name_prefix_of(driver.object));
    let overridden = decision.pods.as_ref().map(|pods| pods.overridden.changed.as_slice());
    let record = decision
        .held
        .record(&observed.last_applied, owner, overridden.unwrap_or_default(), live);
    if record.is_empty() && record.uid().is_none() {
        return None;
    }
    let written = match record.config_map(owner, driver.namespace, prefix) {
        Ok(config_map) if record.is_stored_as(&config_map) => return None,
        Ok(config_map) => {
            let uid = record.uid();
            let applied = context.writer.apply(&config_map, uid.as_deref()).await;
            applied.map(drop)
        }
        Err(error) => Err(error.into()),
    };
    let message = written.err()?.to_string();
    let key = LastApplied::key(driver.namespace, prefix);
    Some(FailedWrite { key, message })
}

/// Finds nodes with attached volumes that the DaemonSet excludes.
pub(super) fn observe_unserved(context: &Context, driver: &DriverRef<'_>, outcome: &mut Outcome) {
    let template = outcome.node_template.as_deref();
    let unserved = template.map(|template| {
        let index = |index: &Index| index.unserved_nodes(&driver.owner.name, template);
        context.cluster.read(index)
    });
    outcome.nodes.unserved = unserved.unwrap_or_default();
}

/// Removes the startup taint from nodes where the driver is registered.
async fn remove_startup_taints(context: &Context, driver: &DriverRef<'_>, decision: &Decision) -> Option<Notice> {
    let key = decision.startup_taint.as_deref()?;
    let name = &driver.owner.name;
    let ready = context
        .cluster
        .read(|index| startup_taint::ready_nodes(&index.nodes(), &index.registered_on(name), key));
    let freed = startup_taint::remove(&context.client, &ready, key).await;
    if let Some((node, message)) = freed.failed.first() {
        let note = format!(
            "taint {key} of node {node} cannot be removed, the operator tries again: {message}. The right for it comes with `kubectl apply -k \
             config/rbac/startup-taint`, or the chart's value rights.startupTaint"
        );
        return Some(Notice::new(Event::StartupTaintLeft, note));
    }
    (!freed.nodes.is_empty()).then(|| {
        let note = format!(
            "the driver is registered, and taint {key} was removed: {}",
            join_truncated(&freed.nodes)
        );
        Notice::new(Event::StartupTaintRemoved, note)
    })
}

/// Reads the state of the controller, the nodes and the classes from the existing objects.
pub(super) fn observe_workloads(context: &Context, driver: &DriverRef<'_>, live: &BTreeMap<Key, Value>) -> Outcome {
    let find_own = |kind: &str| {
        live.iter()
            .find(|(key, object)| key.kind == kind && driver.owner.owns(object))
            .map(|(_, object)| object)
    };
    let daemon_set = find_own(kind::DAEMON_SET);
    let template = daemon_set.and_then(observe::pod_template);
    let classes = live.keys().filter(|key| key.kind == kind::STORAGE_CLASS);
    Outcome {
        controller: find_own(kind::DEPLOYMENT).map(Workload::of_deployment),
        daemon_set: daemon_set.map(Workload::of_daemon_set),
        nodes: template.as_ref().map_or_else(NodesView::default, |template| {
            let name = &driver.owner.name;
            context.cluster.read(|index| NodesView {
                misidentified: index.misidentified_nodes(name),
                ..view(&index.nodes(), template, &index.registered_on(name))
            })
        }),
        node_template: template.map(Box::new),
        storage_classes: classes.map(|key| key.name.clone()).collect(),
        ..Outcome::default()
    }
}
