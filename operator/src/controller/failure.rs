// SPDX-License-Identifier: Apache-2.0
//! Reports a reconcile that failed before it wrote the status.
//!
//! Without the Lease of the object, another operator may write the status: an event reports the error then.

use std::time::Duration;

use cinder_csi_crds::CinderCSIDriver;
use cinder_operator_core::{decide::ObjectFacts, notice::Notice, reasons::Event, status};
use kube::Resource;
use tracing::warn;

use super::{context::Context, driver_ref::DriverRef, report::publish};
use crate::{
    error::ReconcileError,
    kubernetes::{ApplyError, GuardedApi},
};

/// Time limit of the report. The time of the reconcile itself may have passed.
const LIMIT: Duration = Duration::from_secs(10);

/// Reports in condition Degraded why the reconcile failed, unless the status reports it already.
pub(super) async fn report_error(context: &Context, driver: &DriverRef<'_>, error: &ReconcileError) {
    if error.is_reported() {
        return;
    }
    let name = &driver.owner.name;
    let Some(guard) = context.leases.held(name) else {
        let notice = Notice::new(Event::Degraded, error.problem().message);
        context
            .events
            .publish_daily(&driver.object.object_ref(&()), notice)
            .await;
        return;
    };
    match tokio::time::timeout(LIMIT, guard.protect(add_failure(context, driver, error))).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => warn!(driver = name, %error, "the status cannot say that the reconcile failed"),
        Err(_) => warn!(
            driver = name,
            "the status cannot say that the reconcile failed: no answer in time"
        ),
    }
}

async fn add_failure(context: &Context, driver: &DriverRef<'_>, error: &ReconcileError) -> Result<(), ReconcileError> {
    let api: GuardedApi<CinderCSIDriver> = GuardedApi::all(context.client.clone());
    // Read again: this reconcile may have written the status before it failed.
    let current = api.get_opt(&driver.owner.name).await;
    let current = current.map_err(|error| ReconcileError::Status(ApplyError::from(error)))?;
    let Some(current) = current.filter(|current| current.metadata.uid == driver.object.metadata.uid) else {
        return Ok(());
    };
    let previous = current.status.as_ref();
    let next = status::failed(
        previous,
        &ObjectFacts::of(driver.object),
        &error.problem(),
        context.sources.now(),
    );
    publish(context, driver, previous, &next, Vec::new()).await
}
