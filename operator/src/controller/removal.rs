// SPDX-License-Identifier: Apache-2.0
//! Carries out the steps of a removal. [`cinder_operator_core::removal`] selects them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use cinder_csi_crds::{AdoptionMode, Deletion, DeletionPolicy};
use cinder_operator_core::{
    cluster::{CONTROLLER_COMPONENT, Index, Key, kind},
    decide::{Decision, Outcome, Removal},
    manifests::{cloud_config_name, operands},
    migration::adopt_orphans,
    notice::Notice,
    plan::{Desired, LastApplied, is_being_deleted, uid_of},
    reasons::Event,
    removal::{FORCE_DELETE, Remains, Step, Stranded, hasten_unregistration, next_step, without_updates},
    resolve::{Registration, Resolved, resolve},
    status,
    text::join_truncated,
    units::duration,
};
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt, runtime::controller::Action};
use serde_json::Value;
use tracing::debug;

use super::{
    act::observe_workloads, context::Context, driver_ref::DriverRef, environment::describe_cluster, facts::basic_facts,
    maintain::maintain, records, report::report_status,
};
use crate::{error::ReconcileError, observe};

/// The pause before a step is checked again, unless a watch reports its end before.
pub(super) const STEP_PAUSE: Duration = Duration::from_secs(5);

/// The default of the CustomResourceDefinition.
const DRAIN_TIMEOUT: Duration = Duration::from_mins(5);

/// The most steps of one reconcile. A removal has fewer; the next reconcile continues.
pub(super) const MOST_STEPS: usize = 10;

/// Removes the driver, as far as it can be removed now. Without the Lease, a driver that objects need is not repaired.
pub(super) async fn remove(
    context: &Context,
    driver: &DriverRef<'_>,
    finalize: bool,
    has_lease: bool,
) -> Result<Action, ReconcileError> {
    let (context, deletion) = (context, &driver.object.spec.deletion);
    let mut environment = describe_cluster(context, driver.namespace, driver.object, (None, None)).await?;
    environment.records = records::place_record(driver, &BTreeMap::new()).for_both().annotations();
    let unregistering = resolve(driver.object, &environment).ok().map(|mut resolved| {
        resolved.node.registration = Registration::Unregister;
        resolved
    });
    let mut notices = Vec::new();
    for _ in 0..MOST_STEPS {
        let (name, ignore_retained) = (&driver.owner.name, deletion.ignore_retained);
        // Known blockers cost no request: they may remain for days.
        let mut blockers = context.cluster.read(|index| index.blockers(name, ignore_retained));
        let mut live = observe::live(&context.client, &driver.owner, driver.namespace, context.cluster.apis()).await?;
        if deletion.policy != DeletionPolicy::Orphan {
            find_by_name(context, driver, &mut live, unregistering.as_ref()).await?;
        }
        let (registered, out_of_reach) = context
            .cluster
            .read(|index| index.registered_by_readiness(&driver.owner.name));
        let stranded = find_stranded_pods(context, driver, &live).await?;
        let mut step = next_step(&Remains {
            blockers: &blockers,
            policy: deletion.policy,
            is_forced: is_forced(driver),
            drain_timeout: drain_timeout(deletion),
            live: &live,
            registered: &registered,
            out_of_reach: &out_of_reach,
            stranded: &stranded,
            can_unregister: unregistering.is_some(),
            now: context.sources.now(),
        });
        if step.harms_volumes() && !is_forced(driver) {
            // The index may lag behind, and the next step is irreversible.
            blockers = observe::blockers(&context.client, name, ignore_retained).await?;
            if !blockers.is_empty() {
                step = Step::Blocked;
            }
        }
        debug!(driver = driver.owner.name, ?step, "removal");
        if step != Step::Blocked {
            // The operator itself deletes the objects from now on.
            context.memory(&driver.owner.name, |memory| {
                memory.drift.update_objects(|_| BTreeSet::new());
            });
        }
        let done = match step {
            // These volumes need the driver for their deletion. It is maintained, also after a removal had begun.
            Step::Blocked => return maintain(context, driver, Some(blockers), has_lease).await,
            Step::Release { objects } => release_objects(context, objects, &mut notices).await,
            Step::Delete { objects } => {
                if objects.iter().any(|(key, _)| key.kind == kind::DAEMON_SET) {
                    notices.extend(find_remaining_registrations(&registered, &out_of_reach));
                }
                delete_objects(context, objects, &mut notices).await
            }
            Step::StopUpdates => {
                rewrite_object(
                    context,
                    unregistering.as_ref(),
                    &live,
                    kind::CSI_DRIVER,
                    without_updates,
                )
                .await
            }
            Step::Unregister => {
                rewrite_object(
                    context,
                    unregistering.as_ref(),
                    &live,
                    kind::DAEMON_SET,
                    hasten_unregistration,
                )
                .await
            }
            Step::Abandon { objects, nodes } => abandon_workloads(context, objects, &nodes, &mut notices).await,
            Step::Wait { what } => {
                report_removal(
                    context,
                    driver,
                    &live,
                    Removal::UnderWay(what),
                    Outcome::default(),
                    notices,
                )
                .await?;
                return Ok(Action::requeue(STEP_PAUSE));
            }
            Step::Finished => {
                // The previous failure is retained until the finalizer is removed, so that a retry with the same failure writes nothing.
                let previous = status::previous_failure(driver.object.status.as_ref()).filter(|_| finalize);
                let before = Outcome {
                    problems: previous.into_iter().collect(),
                    ..Outcome::default()
                };
                let end = if is_orphaned(driver) {
                    Removal::Released
                } else {
                    Removal::Finished
                };
                report_removal(context, driver, &live, end, before, notices).await?;
                return finish_removal(context, driver, finalize).await;
            }
        };
        if let Err(error) = done {
            // Nothing else reports the cause to the administrator.
            if let Some(failure) = error.failed_write() {
                let what = format!("{} to be changed or deleted, which failed", failure.key);
                let failed = Outcome {
                    failures: vec![failure],
                    ..Outcome::default()
                };
                report_removal(context, driver, &live, Removal::UnderWay(what), failed, notices).await?;
            }
            return Err(error);
        }
    }
    Ok(Action::requeue(STEP_PAUSE))
}

/// Adds the driver's objects by name. They may lack the labels, as after a restore from a backup, or be released objects that the driver
/// has not adopted yet.
pub(super) async fn find_by_name(
    context: &Context,
    driver: &DriverRef<'_>,
    live: &mut BTreeMap<Key, Value>,
    resolved: Option<&Resolved>,
) -> Result<(), ReconcileError> {
    let Some(resolved) = resolved else { return Ok(()) };
    let mut names: Vec<Key> = operands(resolved, None)?.iter().map(Key::from).collect();
    names.push(Key::new(
        kind::SECRET,
        Some(&resolved.namespace),
        &cloud_config_name(resolved),
    ));
    names.push(LastApplied::key(&resolved.namespace, &resolved.name_prefix));
    observe::complete(&context.client, live, &names).await?;
    if driver.object.spec.adoption.mode == AdoptionMode::Adopt {
        adopt_orphans(&driver.owner, live);
    }
    live.retain(|_, object| driver.owner.owns(object));
    Ok(())
}

/// Reports the progress and the failures of a removal.
async fn report_removal(
    context: &Context,
    driver: &DriverRef<'_>,
    live: &BTreeMap<Key, Value>,
    removal: Removal,
    failed: Outcome,
    notices: Vec<Notice>,
) -> Result<(), ReconcileError> {
    let decision = Decision {
        removal: Some(removal),
        ..Decision::default()
    };
    let mut outcome = Outcome {
        failures: failed.failures,
        problems: failed.problems,
        notices,
        ..observe_workloads(context, driver, live)
    };
    outcome.volumes.count = context.cluster.read(|index| index.count_of(&driver.owner.name));
    report_status(context, driver, &basic_facts(context, driver), &decision, &outcome).await
}

pub(super) async fn delete_objects(
    context: &Context,
    objects: Vec<(Key, String)>,
    notices: &mut Vec<Notice>,
) -> Result<(), ReconcileError> {
    let mut names = Vec::new();
    for (key, uid) in objects {
        names.push(key.to_string());
        let deleted = context.writer.delete(&key, &uid).await;
        deleted.map_err(|source| ReconcileError::Delete { key, source })?;
    }
    notices.push(Notice::new(Event::Removed, format!("removed {}", names.join(", "))));
    Ok(())
}

/// Whether an administrator has confirmed, by an annotation with the uid of the object, that volumes lose their driver.
fn is_forced(driver: &DriverRef<'_>) -> bool {
    let acknowledged = driver.object.annotations().get(FORCE_DELETE);
    driver.object.spec.deletion.policy == DeletionPolicy::Force && acknowledged == Some(&driver.owner.uid)
}

/// Whether the driver continues to run without the operator.
fn is_orphaned(driver: &DriverRef<'_>) -> bool {
    driver.object.spec.deletion.policy == DeletionPolicy::Orphan
}

/// Removes the labels and owner references of the operator from the objects. The objects remain.
async fn release_objects(
    context: &Context,
    objects: Vec<(Key, String)>,
    notices: &mut Vec<Notice>,
) -> Result<(), ReconcileError> {
    for (key, uid) in objects {
        let released = context.writer.release(&key, &uid).await;
        released.map_err(|source| ReconcileError::Release { key, source })?;
    }
    let note = "spec.deletion.policy is Orphan: the driver goes on running, and the operator no longer manages it";
    notices.push(Notice::new(Event::Orphaned, note));
    Ok(())
}

/// Deletes workloads again, without waiting for their pods. The remaining pods are on nodes that are not Ready.
pub(super) async fn abandon_workloads(
    context: &Context,
    objects: Vec<(Key, String)>,
    nodes: &[String],
    notices: &mut Vec<Notice>,
) -> Result<(), ReconcileError> {
    for (key, uid) in objects {
        let abandoned = context.writer.abandon(&key, &uid).await;
        notices.push(describe_remaining_pods(&key, nodes));
        abandoned.map_err(|source| ReconcileError::Delete { key, source })?;
    }
    Ok(())
}

/// Finds the nodes with the last pods of workloads that are being deleted and cannot end.
pub(super) async fn find_stranded_pods(
    context: &Context,
    driver: &DriverRef<'_>,
    live: &BTreeMap<Key, Value>,
) -> Result<Stranded, ReconcileError> {
    let (context, namespace) = (context, driver.namespace);
    let is_ending = |kind| {
        live.iter()
            .any(|(key, object)| key.kind == kind && is_being_deleted(object))
    };
    let mut stranded = Stranded::default();
    if is_ending(kind::DAEMON_SET) {
        stranded.node = context
            .cluster
            .read(|index| index.stranded_node_pods(&driver.owner.name));
    }
    if is_ending(kind::DEPLOYMENT) {
        let pods = observe::pods_of(&context.client, &driver.owner, namespace, &[CONTROLLER_COMPONENT]).await?;
        let nodes: BTreeSet<String> = pods.into_iter().map(|pod| pod.node).collect();
        let is_dead = |index: &Index| nodes.iter().all(|node| !node.is_empty() && !index.is_ready(node));
        if context.cluster.read(is_dead)
            && observe::leases_have_ended(
                &context.client,
                &driver.owner,
                namespace,
                &context.lease_renewals(&driver.owner.name),
            )
            .await?
        {
            stranded.controller = nodes.into_iter().collect();
        }
    }
    Ok(stranded)
}

/// Writes an object of the driver with a change that a removal needs, and the time of the change.
async fn rewrite_object(
    context: &Context,
    resolved: Option<&Resolved>,
    live: &BTreeMap<Key, Value>,
    kind: &str,
    change: fn(&mut Value, Timestamp),
) -> Result<(), ReconcileError> {
    let Some(resolved) = resolved else { return Ok(()) };
    for operand in operands(resolved, None)?
        .iter()
        .filter(|operand| operand.kind.kind == kind)
    {
        let key = Key::from(operand);
        let Some(existing) = live.get(&key) else { continue };
        let mut object = serde_json::to_value(&operand.object)?;
        change(&mut object, context.sources.now());
        let desired = Desired::new(key.clone(), operand.stage, object);
        let applied = context.writer.apply(&desired, Some(&uid_of(existing))).await;
        applied.map_err(|error| ReconcileError::Write {
            key,
            message: error.to_string(),
        })?;
    }
    Ok(())
}

async fn finish_removal(context: &Context, driver: &DriverRef<'_>, finalize: bool) -> Result<Action, ReconcileError> {
    if !finalize {
        return Ok(Action::await_change());
    }
    // The release was reported before.
    if !is_orphaned(driver) {
        let note = format!(
            "the driver {} was removed: the objects that the operator owned for it are deleted",
            driver.owner.name
        );
        context
            .events
            .publish(&driver.object.object_ref(&()), Notice::new(Event::Removed, note))
            .await;
    }
    context
        .writer
        .set_finalizer(driver.object, false)
        .await
        .map_err(ReconcileError::Finalizer)?;
    context.forget(&driver.owner.name);
    Ok(Action::await_change())
}

/// The time for the kubelets to unregister the driver. The default replaces values that match the pattern of the field and are not a
/// duration.
pub(super) fn drain_timeout(deletion: &Deletion) -> Duration {
    duration(&deletion.drain_timeout).unwrap_or(DRAIN_TIMEOUT)
}

/// The event about nodes where the driver is still registered when its pods are deleted.
fn find_remaining_registrations(registered: &[String], out_of_reach: &[String]) -> Option<Notice> {
    let nodes: Vec<String> = registered.iter().chain(out_of_reach).cloned().collect();
    (!nodes.is_empty()).then(|| {
        Notice::new(Event::RegistrationLeft, format!(
                "the kubelets of these nodes did not unregister the driver in time, and list it in their CSINode until the \
                 link in their directory plugins_registry is removed by hand: {}",
                join_truncated(&nodes)
            ),
        )
    })
}

/// The event about pods that could not be ended.
fn describe_remaining_pods(key: &Key, nodes: &[String]) -> Notice {
    let nodes = join_truncated(nodes);
    if key.kind == kind::DAEMON_SET {
        let note = format!(
            "{key} was deleted, but its last pods did not end within spec.deletion.drainTimeout: their nodes are not Ready. They end \
             when the node comes back or its Node object is deleted; a kubelet that comes back may list the driver in its CSINode until \
             the link in its directory plugins_registry is removed by hand: {nodes}"
        );
        return Notice::new(Event::RegistrationLeft, note);
    }
    let note = format!(
        "{key} was deleted, but its last pods did not end within spec.deletion.drainTimeout: their nodes are not Ready, and their leases \
         have expired. They end when the node comes back or its Node object is deleted: {nodes}"
    );
    Notice::new(Event::PodsLeft, note)
}
