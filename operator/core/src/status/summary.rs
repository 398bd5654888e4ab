// SPDX-License-Identifier: Apache-2.0
//! Ready, Reconciling and Stalled, by the conventions of kstatus. They summarize the other conditions.

use cinder_csi_crds::{CinderCSIDriverStatus, ConditionType};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::verdict::{Judgement, judgement_of, verdict};
use crate::reasons::{Available, Degraded, Progressing, Ready, Reason, Reconciling, Stalled};

/// Problems that can end without an administrator, because the operator retries or waits.
const RETRIED: [Degraded; 7] = [
    Degraded::ApplyFailed,
    Degraded::CloudUnreachable,
    // During an update, the CustomResourceDefinition may precede the operator.
    Degraded::CRDMismatch,
    Degraded::LoginFailed,
    Degraded::NodePodsFailing,
    Degraded::PendingRecreate,
    Degraded::ReconcileFailed,
];

/// Evaluates the three conditions. A missing condition counts as healthy, except for Available.
pub(super) fn summary(status: &CinderCSIDriverStatus) -> [Judgement; 3] {
    let find = |type_| status.condition(type_);
    let is_bad = |type_: ConditionType| find(type_).filter(|condition| condition.status != type_.good_status());
    // Available is False when more nodes than spec.node.update.maxUnavailable lack the driver.
    let serves = find(ConditionType::Available).is_some_and(|available| Available::AsExpected.is(available));
    let is_tolerated = |condition: &&Condition| serves && Degraded::NodePodsFailing.is(condition);
    let degraded = is_bad(ConditionType::Degraded).filter(|condition| !is_tolerated(condition));
    let needs_help = degraded.filter(|condition| !RETRIED.iter().any(|reason| reason.is(condition)));
    let blocked = is_bad(ConditionType::DeletionBlocked);
    let progressing = is_bad(ConditionType::Progressing).filter(|condition| {
        !Progressing::WaitingForApproval.is(condition) && !Progressing::DeletionBlocked.is(condition)
    });

    let ready = match (find(ConditionType::Available), degraded) {
        (Some(available), _) if available.status == "Unknown" => {
            judgement_of(verdict(Ready::NotReconciled, sentence(available)))
        }
        (Some(available), None) if Available::AsExpected.is(available) => {
            let message = match is_bad(ConditionType::Degraded) {
                Some(failing) => format!("the driver is available. {}", sentence(failing)),
                None => "the driver is available and not degraded".to_owned(),
            };
            judgement_of(verdict(Ready::AsExpected, message))
        }
        (Some(available), Some(degraded)) if Available::AsExpected.is(available) => {
            judgement_of(verdict(Ready::Degraded, sentence(degraded)))
        }
        (Some(available), _) => judgement_of(verdict(Ready::Unavailable, sentence(available))),
        (None, _) => judgement_of(verdict(
            Ready::NotReconciled,
            "the operator has not observed the driver yet",
        )),
    };
    let stalled = match (needs_help, blocked) {
        (Some(degraded), _) => judgement_of(verdict(Stalled::Degraded, sentence(degraded))),
        (None, Some(blocked)) => judgement_of(verdict(Stalled::DeletionBlocked, sentence(blocked))),
        (None, None) => judgement_of(verdict(
            Stalled::AsExpected,
            "no action of an administrator is required",
        )),
    };
    let is_stalled = needs_help.or(blocked).is_some();
    let reconciling = match (progressing, degraded) {
        (Some(progressing), _) if !is_stalled => judgement_of(verdict(Reconciling::Progressing, sentence(progressing))),
        (None, Some(degraded)) if !is_stalled => judgement_of(verdict(Reconciling::Retrying, sentence(degraded))),
        _ => judgement_of(verdict(Reconciling::AsExpected, "the operator changes nothing")),
    };
    [ready, reconciling, stalled]
}

fn sentence(condition: &Condition) -> String {
    format!("{} ({}): {}", condition.type_, condition.reason, condition.message)
}
