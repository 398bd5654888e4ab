// SPDX-License-Identifier: Apache-2.0
//! Reports a reconcile in the status, by events and by metrics.

use cinder_csi_crds::CinderCSIDriverStatus;
use cinder_operator_core::{
    cluster::Blockers,
    decide::{Decision, Facts, Outcome, Removal, Report},
    diagnosis::Stuck,
    notice::Notice,
    reasons::Event,
    status,
};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;

use super::{context::Context, driver_ref::DriverRef};
use crate::error::ReconcileError;

/// Reports a reconcile in the status, by events and by metrics.
pub(super) async fn report_status(
    context: &Context,
    driver: &DriverRef<'_>,
    facts: &Facts,
    decision: &Decision,
    outcome: &Outcome,
) -> Result<(), ReconcileError> {
    let name = &driver.owner.name;
    let previous = driver.object.status.as_ref();
    let now = context.sources.now();
    let next = status::status(previous, facts, decision, outcome, now);
    let report = Report {
        facts,
        decision,
        outcome,
    };
    context.metrics.export(name, &report);
    report_to_claims(context, driver, facts, outcome).await;
    context.metrics.nodes(name, outcome);
    let blockers = match &decision.removal {
        Some(Removal::Blocked(blockers)) => blockers,
        _ => &Blockers::default(),
    };
    for kind in Blockers::KINDS {
        let of_kind = blockers.by_kind().find(|(known, _)| *known == kind);
        let count = of_kind.map_or(0, |(_, names)| names.len());
        context.metrics.deletion_blockers(name, kind, count);
    }
    context.metrics.rollout(name, next.rollout.as_ref());
    let classes = decision.classes.as_ref();
    if let Some(notice) = classes.and_then(status::unavailable_snapshot_controller) {
        context
            .events
            .publish_daily(&driver.object.object_ref(&()), notice)
            .await;
    }
    publish(context, driver, previous, &next, outcome.notices.clone()).await?;
    context.memory(name, |memory| memory.rollout.remember_broken(&next));
    Ok(())
}

/// Writes the status if it changed, sends the events, sets the gauges of the conditions.
pub(super) async fn publish(
    context: &Context,
    driver: &DriverRef<'_>,
    previous: Option<&CinderCSIDriverStatus>,
    next: &CinderCSIDriverStatus,
    mut notices: Vec<Notice>,
) -> Result<(), ReconcileError> {
    let name = &driver.owner.name;
    for condition in &next.conditions {
        context.metrics.condition(name, &condition.type_, &condition.status);
    }
    if previous != Some(next) {
        context
            .writer
            .set_status(&driver.object.metadata, next)
            .await
            .map_err(ReconcileError::Status)?;
    }
    notices.extend(status::notices(previous, next));
    // The condition is true for days, so it has a daily event of its own.
    notices.retain(|notice| notice.event != Event::CredentialsExpiring);
    let definition = context.cluster.wrong_definition();
    let definition = definition.map(|note| Notice::new(Event::CRDMismatch, note));
    for notice in [status::expiring(next), definition].into_iter().flatten() {
        context
            .events
            .publish_daily(&driver.object.object_ref(&()), notice)
            .await;
    }
    for notice in notices {
        context.events.publish(&driver.object.object_ref(&()), notice).await;
    }
    Ok(())
}

/// Sends an event to the claim of each overdue operation, once for each reason.
async fn report_to_claims(context: &Context, driver: &DriverRef<'_>, facts: &Facts, outcome: &Outcome) {
    for stuck in status::news(driver.object.status.as_ref(), facts, &outcome.volumes) {
        let Some(claim) = &stuck.claim else { continue };
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("PersistentVolumeClaim".to_owned()),
            namespace: Some(claim.namespace.clone()),
            name: Some(claim.name.clone()),
            uid: Some(claim.uid.clone()),
            ..ObjectReference::default()
        };
        let note = format!(
            "{} of the volume takes too long: {}: {}",
            stuck.operation.as_str(),
            stuck.finding.reason,
            public_hint(stuck)
        );
        let notice = Notice::new(Event::VolumeStuck, note);
        context.events.publish(&regarding, notice).await;
    }
}

/// The hint for the owner of a claim. Addresses of the cloud and names of Secrets are only in the status, for administrators of the cluster.
fn public_hint(stuck: &Stuck) -> &str {
    match stuck.finding.reason {
        "CredentialsRefused" => {
            "the cloud refuses the credentials of the storage driver; the administrator of the cluster has to fix them, and the operation goes on \
             by itself then"
        }
        "CloudUnreachable" => {
            "a service of the cloud does not answer the storage driver as it should; the administrator of the cluster can see why, and the operation goes \
             on by itself when it does again"
        }
        _ => &stuck.finding.hint,
    }
}
