// SPDX-License-Identifier: Apache-2.0
//! Carries out a decision.

use std::collections::{BTreeMap, BTreeSet};

use cinder_operator_core::{
    cluster::{Index, Key, NodesView, kind, view},
    decide::{Decision, Intent, Outcome, Workload},
    manifests::DriverCredentials,
    notice::Notice,
    plan::{FailedWrite, LastApplied},
    reasons::Event,
    resolve::Resolved,
    text::join_truncated,
};
use serde_json::Value;

use super::{
    adoption::{self, Adoption},
    context::Context,
    driver_ref::DriverRef,
    records::last_good,
    rollout,
};
use crate::{
    apply::{Records, apply_plan},
    error::ReconcileError,
    observe, recreate_checks, startup_taint,
};

/// The observations of a reconcile, next to the existing objects.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) intent: &'a Intent,
    pub(super) last_applied: &'a LastApplied,
    pub(super) unlisted: &'a BTreeSet<&'static str>,
    pub(super) adoption: &'a Adoption,
}

/// What came of acting, with what only this reconcile needs.
pub(super) struct Acted {
    pub(super) outcome: Outcome,
    pub(super) notices: Vec<Notice>,
    /// Why the reconcile is tried again.
    pub(super) failed: Option<ReconcileError>,
    /// The credentials that the driver has after it.
    pub(super) has: Option<DriverCredentials>,
    /// The objects after it.
    pub(super) live: BTreeMap<Key, Value>,
}

/// Carries out a decision, and observes the driver after it.
pub(super) async fn act(
    context: &Context,
    driver: &DriverRef<'_>,
    seen: Seen<'_>,
    decision: &Decision,
    mut live: BTreeMap<Key, Value>,
    may_write: bool,
) -> Result<Acted, ReconcileError> {
    let name = &driver.owner.name;
    let (intent, adoption) = (seen.intent, seen.adoption);
    let (mut failures, mut problems, mut failed) = (Vec::new(), Vec::new(), None);
    let mut notices = decision.notices.clone();
    let keys = intent.keys();
    if may_write {
        notices.extend(recreate_checks::pre_delete_events(&context.client, &decision.plan).await);
        let records = Records::of(driver.object).only(&keys);
        let applied = apply_plan(&context.writer, &decision.plan, &live, records).await;
        context.memory(name, |memory| memory.drift.unapplied = applied.left);
        let repaired = applied.repaired.iter();
        repaired.for_each(|kind| context.metrics.drift_repaired(name, kind));
        for (key, object) in applied.written {
            match object {
                Some(object) => live.insert(key, object),
                None => live.remove(&key),
            };
        }
        failures = applied.failures;
        failures.extend(record_applied(context, driver, seen, decision, &live).await);
        notices.extend(applied.notices);
    }
    // The driver has the credentials that its Secret contains after the writes.
    let has = last_good(&driver.owner, &live);
    if may_write && (failures.is_empty() || adoption.is_returning()) {
        match adoption::carry_out_acts(context, driver, adoption, &mut notices).await {
            Ok(refused) => problems.extend(refused),
            Err(error) => failed = Some(error),
        }
    }
    if may_write {
        notices.extend(remove_startup_taints(context, driver, &intent.resolved).await);
    }
    // The operator itself removes its objects while the other installation returns.
    let kept = if adoption.is_returning() { &[] } else { keys.as_slice() };
    rollout::remember_objects(context, driver, kept, &live, &failures);
    let mut outcome = Outcome {
        failures,
        ..observe_workloads(context, driver, &live)
    };
    // While another installation is replaced, its pods serve the nodes.
    outcome.node_template = outcome.node_template.filter(|_| adoption.migration.is_none());
    observe_unserved(context, driver, &mut outcome);
    if let Some(controller) = &mut outcome.controller {
        controller.wants(
            intent
                .resolved
                .controller
                .sidecars
                .iter()
                .map(|sidecar| sidecar.component),
        );
    }
    let may_replace = may_write && failed.is_none() && outcome.failures.is_empty();
    outcome.node_rollout =
        rollout::judge_node_pods(context, driver, &live, Some(intent), may_replace, adoption).await?;
    if let Some(rollout) = &outcome.node_rollout {
        match rollout::replace_pods(context, driver, rollout).await {
            Ok(replaced) => notices.extend(replaced),
            Err(error) => failed = Some(error),
        }
    }
    if may_replace && failed.is_none() {
        let added = rollout::add_duties(context, driver, decision, outcome.node_rollout.as_ref(), &mut live).await;
        outcome.failures.extend(added.failures);
        notices.extend(added.notices);
    }
    problems.extend(failed.as_ref().map(ReconcileError::problem));
    outcome.problems = problems;
    Ok(Acted {
        outcome,
        notices,
        failed,
        has,
        live,
    })
}

/// Updates the record of the last applied content where it differs from the ConfigMap.
async fn record_applied(
    context: &Context,
    driver: &DriverRef<'_>,
    seen: Seen<'_>,
    decision: &Decision,
    live: &BTreeMap<Key, Value>,
) -> Option<FailedWrite> {
    let (owner, prefix) = (&driver.owner, &seen.intent.resolved.name_prefix);
    let overridden = decision.pods.as_ref().map(|pods| pods.overridden.changed.as_slice());
    let record = decision
        .held
        .record(seen.last_applied, owner, overridden.unwrap_or_default(), live);
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
async fn remove_startup_taints(context: &Context, driver: &DriverRef<'_>, resolved: &Resolved) -> Option<Notice> {
    let key = resolved.node.startup_taint.as_deref()?;
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
    let of = |wanted: &str| {
        live.iter()
            .find(|(key, object)| key.kind == wanted && driver.owner.owns(object))
            .map(|(_, object)| object)
    };
    let daemon_set = of(kind::DAEMON_SET);
    let template = daemon_set.and_then(observe::pod_template);
    let classes = live.keys().filter(|key| key.kind == kind::STORAGE_CLASS);
    Outcome {
        controller: of(kind::DEPLOYMENT).map(Workload::of_deployment),
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
