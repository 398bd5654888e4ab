// SPDX-License-Identifier: Apache-2.0
//! Moves a driver to the namespace of this operator, as an administrator has confirmed.
//!
//! Under the Lease in the recorded namespace, it ends the pods there and deletes the driver's objects there. Only
//! then it records the new namespace. If the process ends in between, the records disagree and the annotation remains. The
//! next process continues.

use std::collections::{BTreeMap, BTreeSet};

use cinder_csi_crds::DeletionPolicy;
use cinder_operator_core::{
    cluster::{Blockers, Key, kind},
    manifests::OPERAND_NAMESPACE_ANNOTATION,
    notice::Notice,
    problem::Problem,
    reasons::Degraded,
    releases::COMPONENTS,
    removal::{Remains, Step, next_step},
    resolve::resolve,
};
use kube::{ResourceExt, runtime::controller::Action};
use serde_json::Value;

use super::{
    context::Context,
    driver_ref::DriverRef,
    environment::describe_cluster,
    namespace::{Elsewhere, MOVE_NAMESPACE},
    pauses::{LEASE_PAUSE, OBSTACLE_PAUSE},
    removal::{self, MOST_STEPS, STEP_PAUSE, drain_timeout},
    report::publish,
    suspension,
};
use crate::{error::ReconcileError, object_leases::Hold, observe, openstack::CredentialSource};

/// Whether an administrator has confirmed the move by an annotation with the uid of the object.
pub(super) fn may_relocate(driver: &DriverRef<'_>) -> bool {
    driver.object.annotations().get(MOVE_NAMESPACE) == Some(&driver.owner.uid)
}

/// Removes the confirmation of a move that is complete.
pub(super) async fn end_relocation(context: &Context, driver: &DriverRef<'_>) -> Result<(), ReconcileError> {
    if !may_relocate(driver) {
        return Ok(());
    }
    let removed = context.writer.remove_annotation(driver.object, MOVE_NAMESPACE).await;
    removed.map_err(ReconcileError::Confirmation)
}

/// Moves the driver from its recorded namespaces to this one.
pub(super) async fn relocate(
    context: &Context,
    driver: &DriverRef<'_>,
    elsewhere: Elsewhere,
) -> Result<Action, ReconcileError> {
    let here = driver.namespace;
    let recorded: Vec<&String> = elsewhere.namespaces.iter().filter(|name| *name != here).collect();
    let [from] = recorded.as_slice() else {
        return suspension::suspend_elsewhere(context, driver, elsewhere).await;
    };
    if let Some(obstacle) = relocation_obstacle(context, driver, from).await {
        return suspension::suspend(context, driver, obstacle, Some(from)).await;
    }
    let guard = match context.leases.hold(&driver.owner, from, true).await? {
        Hold::Held(guard) => guard,
        Hold::By(_) => return suspension::suspend_elsewhere(context, driver, elsewhere).await,
        Hold::Unknown => return Ok(Action::requeue(LEASE_PAUSE)),
    };
    let former = driver.in_namespace(from);
    let evacuation = async {
        if let Some(action) = evacuate(context, &former, here).await? {
            return Ok(Some(action));
        }
        let claimed = context.writer.claim_namespace(driver.object, here, Some(from)).await;
        claimed.map_err(ReconcileError::Status)?;
        Ok::<_, ReconcileError>(None)
    };
    if let Some(action) = guard.protect(evacuation).await? {
        return Ok(action);
    }
    match context.leases.hold(&driver.owner, here, false).await? {
        Hold::Held(guard) => guard.protect(record_relocation(context, driver)).await,
        _ => Ok(Action::requeue(LEASE_PAUSE)),
    }
}

/// The obstacle to a move. Nothing is stopped before the driver can run here.
async fn relocation_obstacle(context: &Context, driver: &DriverRef<'_>, from: &str) -> Option<Problem> {
    let here = driver.namespace;
    let problem = |message: String| Problem {
        reason: Degraded::OperandsElsewhere,
        message: format!("the move of the driver from namespace {from} to {here} has not begun: {message}"),
    };
    if !context.serves(from) {
        return Some(problem(format!(
            "the operator does not serve namespace {from}; start it with --operand-namespaces={from} and its role there"
        )));
    }
    for cloud in &driver.object.spec.clouds {
        let source = CredentialSource::new(here, cloud).with_options_of(&driver.object.spec);
        if let Err(error) = source.read(&context.client).await {
            return Some(problem(error.message.clone()));
        }
    }
    None
}

/// Deletes the driver's objects in this namespace, its pods first. Returns `None` when none remains.
async fn evacuate(context: &Context, driver: &DriverRef<'_>, target: &str) -> Result<Option<Action>, ReconcileError> {
    let name = &driver.owner.name;
    let environment = describe_cluster(context, driver.namespace, driver.object, (None, None)).await?;
    let resolved = resolve(driver.object, &environment).ok();
    let mut notices = Vec::new();
    for _ in 0..MOST_STEPS {
        let apis = context.cluster.apis();
        let mut live = observe::live(&context.client, &driver.owner, driver.namespace, apis).await?;
        removal::find_by_name(context, driver, &mut live, resolved.as_ref()).await?;
        live.retain(|key, _| key.namespace.as_deref() == Some(driver.namespace));
        // The operator itself deletes the objects from now on.
        context.memory(name, |memory| memory.drift.update_objects(|_| BTreeSet::new()));
        let what = match evacuation_step(context, driver, &live).await? {
            Step::Delete { objects } => {
                removal::delete_objects(context, objects, &mut notices).await?;
                continue;
            }
            Step::Abandon { objects, nodes } => {
                removal::abandon_workloads(context, objects, &nodes, &mut notices).await?;
                continue;
            }
            Step::Finished => {
                delete_sidecar_leases(context, driver).await?;
                report_evacuation(context, driver, target, "the new record", notices).await?;
                return Ok(None);
            }
            Step::Wait { what } => what,
            other => format!("{other:?}"),
        };
        report_evacuation(context, driver, target, &what, notices).await?;
        return Ok(Some(Action::requeue(STEP_PAUSE)));
    }
    Ok(Some(Action::requeue(STEP_PAUSE)))
}

async fn evacuation_step(
    context: &Context,
    driver: &DriverRef<'_>,
    live: &BTreeMap<Key, Value>,
) -> Result<Step, ReconcileError> {
    let stranded = removal::find_stranded_pods(context, driver, live).await?;
    Ok(next_step(&Remains {
        blockers: &Blockers::default(),
        policy: DeletionPolicy::Force,
        is_forced: true,
        drain_timeout: drain_timeout(&driver.object.spec.deletion),
        live,
        // The kubelets keep the registration for the next pods.
        registered: &[],
        out_of_reach: &[],
        stranded: &stranded,
        can_unregister: false,
        now: context.sources.now(),
    }))
}

/// Deletes the Leases of the sidecars after their pods have ended.
async fn delete_sidecar_leases(context: &Context, driver: &DriverRef<'_>) -> Result<(), ReconcileError> {
    let names = COMPONENTS
        .iter()
        .filter_map(|sidecar| sidecar.lease(&driver.owner.name));
    for name in names {
        let deleted = context.writer.delete_lease(driver.namespace, &name).await;
        deleted.map_err(|source| ReconcileError::Delete {
            key: Key::new("Lease", Some(driver.namespace), &name),
            source,
        })?;
    }
    Ok(())
}

async fn report_evacuation(
    context: &Context,
    driver: &DriverRef<'_>,
    target: &str,
    what: &str,
    notices: Vec<Notice>,
) -> Result<(), ReconcileError> {
    let problem = Problem {
        reason: Degraded::OperandsElsewhere,
        message: format!(
            "the driver moves from namespace {} to {target}, as the annotation {MOVE_NAMESPACE} confirms; the move waits for {what}",
            driver.namespace
        ),
    };
    let next = suspension::suspended_status(context, driver, problem);
    publish(context, driver, driver.object.status.as_ref(), &next, notices).await
}

/// Completes the records of the new namespace, and removes the confirmation.
async fn record_relocation(context: &Context, driver: &DriverRef<'_>) -> Result<Action, ReconcileError> {
    let key = Key::new(kind::CSI_DRIVER, None, &driver.owner.name);
    let writer = &context.writer;
    let annotated = writer
        .annotate(&key, OPERAND_NAMESPACE_ANNOTATION, driver.namespace)
        .await;
    annotated.map_err(|error| ReconcileError::Write {
        key,
        message: error.to_string(),
    })?;
    end_relocation(context, driver).await?;
    Ok(Action::requeue(OBSTACLE_PAUSE))
}
