// SPDX-License-Identifier: Apache-2.0
//! DriftDetected: what other clients changed of what the operator owns.

use std::time::Duration;

use cinder_csi_crds::{CinderCSIDriverStatus, ConditionType, ManagementState};
use k8s_openapi::jiff::Timestamp;

use super::{Verdict, verdict};
use crate::{
    decide::Report,
    reasons::{DriftDetected, Reason},
    text::join_truncated,
};

/// For so long a drift that was put right is still told.
pub(super) const REMEMBERED: Duration = Duration::from_hours(1);

pub(super) fn drift(
    previous: Option<&CinderCSIDriverStatus>,
    report: &Report,
    now: Timestamp,
) -> Verdict<DriftDetected> {
    if report.facts.object.state == ManagementState::Unmanaged {
        return verdict(
            DriftDetected::Unmanaged,
            "spec.managementState is Unmanaged: the objects are not compared",
        );
    }
    let drift = &report.decision.drift;
    let is_paused = super::is_paused(report);
    if !drift.unresolvable.is_empty() {
        return verdict(
            DriftDetected::FieldConflict,
            format!(
                "the API server or a webhook keeps other values than the operator writes: {}; find out who sets them",
                join_truncated(&drift.unresolvable)
            ),
        );
    }
    if !drift.deleted.is_empty() {
        let objects = join_truncated(&drift.deleted);
        return if is_paused {
            verdict(
                DriftDetected::ObjectDeleted,
                format!("objects were deleted, and spec.managementState forbids to restore them: {objects}"),
            )
        } else {
            verdict(
                DriftDetected::ObjectRestored,
                format!("objects were deleted, and the operator has restored them: {objects}"),
            )
        };
    }
    if !drift.changed.is_empty() {
        let fields = join_truncated(&drift.changed);
        return if is_paused {
            verdict(
                DriftDetected::FieldConflict,
                format!(
                    "fields of the operator were changed, and spec.managementState forbids to restore them: {fields}"
                ),
            )
        } else {
            verdict(
                DriftDetected::FieldRestored,
                format!("fields of the operator were changed, and it has restored them: {fields}"),
            )
        };
    }
    if let Some(old) = previous.and_then(|previous| previous.condition(ConditionType::DriftDetected)) {
        let restored = [DriftDetected::ObjectRestored, DriftDetected::FieldRestored];
        let since = now.duration_since(old.last_transition_time.0).unsigned_abs();
        if let Some(reason) = restored.into_iter().find(|reason| reason.is(old) && since < REMEMBERED) {
            return verdict(reason, old.message.clone());
        }
    }
    verdict(
        DriftDetected::AsExpected,
        "no other client changes what the operator owns",
    )
}
