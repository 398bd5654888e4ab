// SPDX-License-Identifier: Apache-2.0
//! Suspends a driver that this operator does not maintain.
//!
//! Only the operator with the Lease of the object writes the status. A suspended operator would overwrite it, so it reports by events,
//! log and metrics. It writes the status if no other operator renews the Lease, once for each generation and reason. An operator that it
//! cannot observe may overwrite that status, and the two operators do not alternate.

use std::time::Duration;

use cinder_csi_crds::CinderCSIDriverStatus;
use cinder_operator_core::{
    decide::Decision,
    notice::Notice,
    problem::Problem,
    reasons::{Degraded, Event},
    status,
};
use csi_sources::UntrustedText;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Resource, ResourceExt, runtime::controller::Action};
use tracing::warn;

use super::{
    context::Context, driver_ref::DriverRef, facts::basic_facts, namespace::Elsewhere, pauses::OBSTACLE_PAUSE,
    report::publish,
};
use crate::{
    error::ReconcileError,
    kubernetes::GuardedApi,
    leader::{LONGEST_LEASE, holder_of},
    object_leases::lease_name,
};

/// Time limit of one request for a Lease.
const LEASE_LIMIT: Duration = Duration::from_secs(5);

/// The longest part of a foreign identity that is shown.
const LONGEST_IDENTITY: usize = 200;

/// Suspends a driver that runs in another namespace.
pub(super) async fn suspend_elsewhere(
    context: &Context,
    driver: &DriverRef<'_>,
    elsewhere: Elsewhere,
) -> Result<Action, ReconcileError> {
    let namespace = elsewhere.only_namespace();
    let action = suspend(context, driver, elsewhere.problem.clone(), namespace).await?;
    // The driver may have run here before.
    context.leases.delete(&driver.owner.name).await;
    Ok(action)
}

/// Suspends a driver and reports the problem. `namespace` is the namespace of its Lease.
pub(super) async fn suspend(
    context: &Context,
    driver: &DriverRef<'_>,
    problem: Problem,
    namespace: Option<&str>,
) -> Result<Action, ReconcileError> {
    let name = &driver.owner.name;
    let holder = match namespace {
        Some(namespace) => foreign_holder(context, driver, namespace).await,
        None => None,
    };
    let suspension = (driver.object.metadata.generation, problem.reason);
    if holder.is_none() && !context.memory(name, |memory| memory.suspension.is_reported(&suspension)) {
        let next = suspended_status(context, driver, problem);
        publish(context, driver, driver.object.status.as_ref(), &next, Vec::new()).await?;
        context.memory(name, |memory| memory.suspension.remember(suspension));
    } else {
        report_suspension(context, driver, problem, holder.as_ref()).await;
    }
    Ok(Action::requeue(OBSTACLE_PAUSE))
}

/// Suspends a driver that another operator maintains in the same namespace.
pub(super) async fn suspend_beside(context: &Context, driver: &DriverRef<'_>, lease: &Lease) -> Action {
    let problem = Problem {
        reason: Degraded::OperandsElsewhere,
        message: format!(
            "another operator maintains the driver in namespace {}; this one changes nothing. Only one operator may maintain a \
             driver: uninstall one of the two. This one continues when the other releases the Lease or does not renew it",
            driver.namespace
        ),
    };
    report_suspension(context, driver, problem, Some(lease)).await;
    Action::requeue(OBSTACLE_PAUSE)
}

/// Reports a suspension without a write of the status.
async fn report_suspension(context: &Context, driver: &DriverRef<'_>, problem: Problem, holder: Option<&Lease>) {
    let name = &driver.owner.name;
    let note = match holder {
        Some(lease) => format!("{}. {}", problem.message, describe_holder(lease)),
        None => problem.message.clone(),
    };
    for condition in &suspended_status(context, driver, problem).conditions {
        context.metrics.condition(name, &condition.type_, &condition.status);
    }
    let notice = Notice::new(Event::Suspended, note);
    context
        .events
        .publish_daily(&driver.object.object_ref(&()), notice)
        .await;
}

pub(super) fn suspended_status(context: &Context, driver: &DriverRef<'_>, problem: Problem) -> CinderCSIDriverStatus {
    let decision = Decision {
        problems: vec![problem],
        ..Decision::default()
    };
    let facts = basic_facts(context, driver);
    status::not_reconciled(driver.object.status.as_ref(), &facts, &decision, context.sources.now())
}

/// The Lease of the object in a namespace while another operator renews it. A Lease counts as renewed until it was seen unchanged
/// for its whole duration.
async fn foreign_holder(context: &Context, driver: &DriverRef<'_>, namespace: &str) -> Option<Lease> {
    let name = &driver.owner.name;
    let leases: GuardedApi<Lease> = GuardedApi::namespaced(context.client.clone(), namespace);
    let lease = match tokio::time::timeout(LEASE_LIMIT, leases.get_opt(&lease_name(name))).await {
        Ok(Ok(lease)) => lease?,
        Ok(Err(error)) => {
            warn!(driver = name, namespace, %error, "the Lease of the object cannot be read");
            return None;
        }
        Err(_) => return None,
    };
    let renewals = context.lease_renewals(name);
    let is_renewed = renewals.may_lead(&lease, 1) && renewals.observe(&lease) < LONGEST_LEASE;
    (is_renewed && holder_of(Some(&lease)) != context.leases.identity()).then_some(lease)
}

/// The holder of a Lease in a sentence.
fn describe_holder(lease: &Lease) -> String {
    let holder = holder_of(Some(lease));
    let holder = UntrustedText::with_limit(&holder, LONGEST_IDENTITY);
    let (namespace, name) = (lease.namespace().unwrap_or_default(), lease.name_any());
    let since = lease.spec.as_ref().and_then(|spec| spec.acquire_time.as_ref());
    let since = since.map(|since| format!(" since {:.0}", since.0)).unwrap_or_default();
    format!("{holder} holds Lease {namespace}/{name}{since}")
}
