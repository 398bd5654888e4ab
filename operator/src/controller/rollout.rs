// SPDX-License-Identifier: Apache-2.0
//! Observes the pods on the nodes, and replaces them. [`cinder_operator_core::rollout`] decides about them.

use std::collections::{BTreeMap, BTreeSet};

use cinder_operator_core::{
    cluster::{Key, kind, ready_node_times},
    decide::Decision,
    notice::Notice,
    plan::{FailedWrite, PlanScope, plan},
    reasons::Event,
    removal::unregistering_since,
    rollout::{NodeRollout, Nodes, node_rollout, unrecorded_absences},
    text::join_truncated,
};
use serde_json::Value;
use tokio::time::Instant;

use super::{context::Context, driver_ref::DriverRef};
use crate::{
    apply::{Applied, Records, apply_plan},
    error::ReconcileError,
    observe,
};

/// Remembers the desired objects that exist, without those of failed writes.
pub(super) fn remember_objects(
    context: &Context,
    driver: &DriverRef<'_>,
    desired: &[Key],
    live: &BTreeMap<Key, Value>,
    failures: &[FailedWrite],
) {
    let exists = |key: &Key| live.get(key).is_some_and(|object| driver.owner.owns(object));
    let has_failed = |key: &Key| failures.iter().any(|failure| failure.key == *key);
    let update = |known: &BTreeSet<Key>| {
        let existing = desired.iter().filter(|key| known.contains(key) || exists(key));
        existing.filter(|key| !has_failed(key)).cloned().collect()
    };
    context.memory(&driver.owner.name, |memory| memory.drift.update_objects(update));
}

/// The newest remaining revisions of the templates of missing workloads.
pub(super) async fn newest_templates(
    context: &Context,
    driver: &DriverRef<'_>,
    missing: &[Key],
) -> Result<BTreeMap<Key, Option<Value>>, ReconcileError> {
    let (client, name) = (&context.client, &driver.owner.name);
    let mut templates = BTreeMap::new();
    for key in missing {
        let template = observe::newest_template(client, driver.namespace, name, key.kind).await?;
        templates.insert(key.clone(), template.map(serde_json::to_value).transpose()?);
    }
    Ok(templates)
}

/// Examines the pods on the nodes, and selects those to replace now with `may_replace`.
pub(super) async fn judge_node_pods(
    context: &Context,
    driver: &DriverRef<'_>,
    live: &BTreeMap<Key, Value>,
    decision: &Decision,
    may_replace: bool,
) -> Result<Option<NodeRollout>, ReconcileError> {
    let name = &driver.owner.name;
    let daemon_set = live
        .iter()
        .find(|(key, object)| key.kind == kind::DAEMON_SET && driver.owner.owns(object))
        .map(|(_, object)| object);
    let Some((daemon_set, template)) = daemon_set.and_then(|set| Some((set, observe::pod_template(set)?))) else {
        return Ok(None);
    };
    let revision = observe::current_revision(&context.client, driver.namespace, name, daemon_set).await?;
    let (mut ready, pods, registered) = context.cluster.read(|index| {
        (
            ready_node_times(&index.nodes(), &template),
            index.node_pods_of(name),
            index.registered_on(name),
        )
    });
    // The driver's pods wait on the nodes where a pod of the other installation runs.
    ready.retain(|node, _| !decision.foreign_nodes.contains(node));
    let lacking = context.memory(name, |memory| {
        let without = unrecorded_absences(&ready, &pods, &registered);
        memory.rollout.absence_times(&without)
    });
    let broken_before = context.memory(name, |memory| {
        memory.rollout.broken_before(driver.object.status.as_ref())
    });
    let is_free = unregistering_since(daemon_set).is_none();
    Ok(Some(node_rollout(&Nodes {
        ready: &ready,
        pods: &pods,
        registered: &registered,
        revision: revision.as_deref(),
        lacking: &lacking,
        broken_before: &broken_before,
        max_unavailable: &driver.object.spec.node.update.max_unavailable,
        replaces: may_replace && !decision.leaves_pods && is_free,
        deadline: context.registration_deadline,
        now: context.sources.now(),
    })))
}

/// Writes the CSIDriver object with new duties for the nodes, once all of them have pods that know these.
pub(super) async fn add_duties(
    context: &Context,
    driver: &DriverRef<'_>,
    decision: &Decision,
    nodes: Option<&NodeRollout>,
    live: &mut BTreeMap<Key, Value>,
) -> Applied {
    let name = &driver.owner.name;
    let is_ready =
        decision.gate.has_current_nodes(&driver.owner, live) && nodes.is_some_and(NodeRollout::has_only_new_pods);
    let Some(desired) = decision.after_nodes.as_ref().filter(|_| is_ready) else {
        return Applied::default();
    };
    let mut unapplied = context.memory(name, |memory| memory.drift.unapplied.clone());
    let desired = std::slice::from_ref(desired);
    let now = Instant::now().into_std();
    let plan = plan(&driver.owner, desired, live, &unapplied, &PlanScope::default(), now);
    let mut applied = apply_plan(&context.writer, &plan, live, Records::default()).await;
    unapplied.append(&mut applied.left);
    context.memory(name, |memory| memory.drift.unapplied = unapplied);
    for (key, object) in &applied.written {
        live.extend(object.clone().map(|object| (key.clone(), object)));
    }
    applied
}

/// Deletes the selected pods. The DaemonSet replaces them.
pub(super) async fn replace_pods(
    context: &Context,
    driver: &DriverRef<'_>,
    rollout: &NodeRollout,
) -> Result<Vec<Notice>, ReconcileError> {
    for pod in &rollout.replace {
        let deleted = context.writer.delete_pod(driver.namespace, &pod.pod, &pod.uid).await;
        deleted.map_err(|error| ReconcileError::ReplacePod {
            pod: pod.pod.clone(),
            node: pod.node.clone(),
            source: error,
        })?;
    }
    if rollout.replace.is_empty() {
        return Ok(Vec::new());
    }
    let nodes: Vec<String> = rollout.replace.iter().map(|pod| pod.node.clone()).collect();
    let note = format!("replaces the driver's pods on {}", join_truncated(&nodes));
    Ok(vec![Notice::new(Event::ReplacingPods, note)])
}
