// SPDX-License-Identifier: Apache-2.0
//! Reconciles one `CinderCSIDriver`.
//!
//! [`mode`] selects the task of a reconcile. The usual task is [`maintain`]: observe, decide, act, report. Every reconcile
//! derives its result from the existing objects. The memory of the process only saves work.

mod act;
mod classes;
mod clouds;
mod context;
mod driver_ref;
mod environment;
mod facts;
mod failure;
mod maintain;
mod memory;
mod mode;
mod namespace;
mod pauses;
mod records;
mod relocation;
mod removal;
mod report;
mod rollout;
mod suspension;
mod unreadable;
mod usage;
mod volumes;

use std::{sync::Arc, time::Duration};

use cinder_csi_crds::CinderCSIDriver;
use kube::{ResourceExt, runtime::controller::Action};
use tokio::time::Instant;
use tracing::{debug, warn};

pub use context::{Context, Watched};
pub use memory::Memories;

use crate::error::ReconcileError;
use driver_ref::DriverRef;
use failure::report_error;
use mode::{ReconcileMode, execute_with_lease};
use suspension::suspend;
use volumes::reconcile_volumes_only;

/// First pause after a failed reconcile. It doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// Longest pause after a failed reconcile.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// Reconciles one object, within the time limit of a reconcile.
pub async fn reconcile(driver: Arc<Watched>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let begun = Instant::now();
    if let Some(first) = context.memory(&driver.name_any(), memory::ObjectMemory::take_change) {
        context.metrics.queued(first.elapsed());
    }
    if let Some(uid) = driver.uid() {
        context.recognize(&driver.name_any(), &uid);
    }
    let limit = context.reconcile_timeout;
    let without_status;
    let readable = match &driver.0 {
        Ok(driver) => Ok(driver),
        Err(invalid) => {
            let read = Box::pin(unreadable::without_status(invalid, &context));
            let read = tokio::time::timeout(limit, read).await;
            match read.unwrap_or(Err(ReconcileError::TimedOut(limit))) {
                Ok(read) => {
                    without_status = read;
                    Ok(&without_status)
                }
                Err(error) => Err(error),
            }
        }
    };
    let result = match readable {
        Ok(driver) => {
            // On the heap: otherwise every waiting reconcile would take as much memory as the largest one.
            let result = tokio::time::timeout(limit, Box::pin(reconcile_object(driver, &context)))
                .await
                .unwrap_or(Err(ReconcileError::TimedOut(limit)));
            if let Err(error) = &result {
                Box::pin(report_error(&context, &DriverRef::new(driver, &context), error)).await;
            }
            result
        }
        Err(error) => Err(error),
    };
    context
        .metrics
        .reconciled(if result.is_ok() { "success" } else { "error" }, begun.elapsed());
    if result.is_ok() {
        // Not for a deleted object: its memory and its metrics would return.
        context.memories.with_known_object(&driver.name_any(), |memory| {
            memory.backoff.reset_failures();
            context.metrics.reconcile_failures(&driver.name_any(), 0);
        });
    }
    result
}

/// Computes the back-off after a failed reconcile.
#[allow(clippy::needless_pass_by_value, reason = "the controller calls it with these types")]
pub fn error_policy(driver: Arc<Watched>, error: &ReconcileError, context: Arc<Context>) -> Action {
    let failures = context.memory(&driver.name_any(), |memory| memory.backoff.record_failure());
    context.metrics.reconcile_failures(&driver.name_any(), failures);
    let pause = FIRST_PAUSE
        .saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)))
        .min(LONGEST_PAUSE);
    warn!(driver = driver.name_any(), %error, pause = ?pause, "reconcile failed");
    Action::requeue(pause)
}

async fn reconcile_object(object: &CinderCSIDriver, context: &Context) -> Result<Action, ReconcileError> {
    let driver = &DriverRef::new(object, context);
    let name = &driver.owner.name;
    let mode = ReconcileMode::of(object);
    debug!(driver = name, ?mode, "reconcile");
    if mode == ReconcileMode::Nothing {
        context.forget(name);
        context.leases.delete(name).await;
        return Ok(Action::await_change());
    }
    if let Some(problem) = namespace::unserved(object, context) {
        return suspend(context, driver, problem, Some(driver.namespace)).await;
    }
    if !matches!(mode, ReconcileMode::Remove { .. })
        && let Some(guard) = context.leases.held(name)
        && let Some(done) = guard.protect(Box::pin(reconcile_volumes_only(context, driver))).await?
    {
        return Ok(done);
    }
    match Box::pin(execute_with_lease(context, driver, mode)).await {
        Err(error) => match namespace::forbidden(driver.namespace, context, &error) {
            Some(problem) => suspend(context, driver, problem, Some(driver.namespace)).await,
            None => Err(error),
        },
        done => done,
    }
}

#[cfg(test)]
pub(crate) mod tests;
