// SPDX-License-Identifier: Apache-2.0
//! Reports a reconcile in the status, by events and by metrics.

use cinder_csi_crds::CinderCSIDriverStatus;
use cinder_operator_core::{
    cluster::{Blockers, OptionalApi},
    decide::{ClusterView, Facts, MonitoringView, ObjectFacts, Removal, Report, VolumeFacts},
    diagnosis::Stuck,
    notice::Notice,
    reasons::Event,
    status,
};
use csi_sources::UntrustedText;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;

use super::{context::Context, driver_ref::DriverRef};
use crate::error::ReconcileError;

/// The facts that do not depend on the driver's objects.
pub(super) fn basic_facts(context: &Context, driver: &DriverRef<'_>) -> Facts {
    let name = &driver.owner.name;
    Facts {
        object: ObjectFacts::of(driver.object),
        monitoring: MonitoringView {
            mode: driver.object.spec.monitoring.mode,
            served: context.cluster.apis().has(OptionalApi::Monitoring),
        },
        cluster: ClusterView {
            undecodable: context.cluster.read(|index| {
                let all = index.undecodable();
                all.map(|(kind, name, reason)| format!("{kind} {}: {reason}", UntrustedText::new(name)))
                    .collect()
            }),
            failing_watches: context.cluster.failing_watches(),
        },
        volumes: VolumeFacts {
            count: context.cluster.read(|index| index.count_of(name)),
            ..VolumeFacts::default()
        },
        ..Facts::default()
    }
}

/// Reports a reconcile in the status, by events and by metrics.
pub(super) async fn report_status(
    context: &Context,
    driver: &DriverRef<'_>,
    report: &Report,
    notices: Vec<Notice>,
) -> Result<(), ReconcileError> {
    let name = &driver.owner.name;
    let previous = driver.object.status.as_ref();
    let now = context.sources.now();
    let next = status::status(previous, report, now);
    context.metrics.export(name, report);
    report_to_claims(context, driver, report).await;
    context.metrics.nodes(name, &report.outcome);
    let blockers = match &report.decision.removal {
        Some(Removal::Blocked(blockers)) => blockers,
        _ => &Blockers::default(),
    };
    for kind in Blockers::KINDS {
        let of_kind = blockers.by_kind().find(|(known, _)| *known == kind);
        let count = of_kind.map_or(0, |(_, names)| names.len());
        context.metrics.deletion_blockers(name, kind, count);
    }
    context.metrics.rollout(name, next.rollout.as_ref());
    let classes = report.decision.classes.as_ref();
    if let Some(notice) = classes.and_then(status::unavailable_snapshot_controller) {
        context
            .events
            .publish_daily(&driver.object.object_ref(&()), notice)
            .await;
    }
    publish(context, driver, previous, &next, notices).await?;
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
async fn report_to_claims(context: &Context, driver: &DriverRef<'_>, report: &Report) {
    for stuck in status::news(driver.object.status.as_ref(), &report.facts) {
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
