// SPDX-License-Identifier: Apache-2.0
//! What is told where a reconcile ends before it could tell anything.
//!
//! Without the Lease of the object, another operator may write the status: an event reports the error then.

use std::time::Duration;

use cinder_csi_crds::CinderCSIDriver;
use cinder_operator_core::{decide::ObjectFacts, notice::Notice, reasons::Event, status};
use kube::Resource;
use tracing::warn;

use super::Reconciliation;
use crate::{
    error::ReconcileError,
    kubernetes::{ApplyError, GuardedApi},
};

/// How long the telling may take: the time of the reconcile itself may be over.
const LIMIT: Duration = Duration::from_secs(10);

impl Reconciliation<'_> {
    /// Reports in condition Degraded why the reconcile failed, unless the status reports it already.
    pub(super) async fn report_error(&self, error: &ReconcileError) {
        if error.is_reported() {
            return;
        }
        let (context, name) = (self.context, &self.owner.name);
        let Some(guard) = context.leases.held(name) else {
            let notice = Notice::new(Event::Degraded, error.problem().message);
            context.events.publish_daily(&self.driver.object_ref(&()), notice).await;
            return;
        };
        match tokio::time::timeout(LIMIT, guard.protect(self.add_failure(error))).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(driver = name, %error, "the status cannot say that the reconcile failed"),
            Err(_) => warn!(
                driver = name,
                "the status cannot say that the reconcile failed: no answer in time"
            ),
        }
    }

    async fn add_failure(&self, error: &ReconcileError) -> Result<(), ReconcileError> {
        let api: GuardedApi<CinderCSIDriver> = GuardedApi::all(self.context.client.clone());
        // Anew: this very reconcile may have told something before it failed.
        let current = api.get_opt(&self.owner.name).await;
        let current = current.map_err(|error| ReconcileError::Status(ApplyError::from(error)))?;
        let Some(current) = current.filter(|current| current.metadata.uid == self.driver.metadata.uid) else {
            return Ok(());
        };
        let previous = current.status.as_ref();
        let next = status::failed(
            previous,
            &ObjectFacts::of(self.driver),
            &error.problem(),
            self.context.sources.now(),
        );
        self.publish(previous, &next, Vec::new()).await
    }
}
