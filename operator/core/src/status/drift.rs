// SPDX-License-Identifier: Apache-2.0
//! Changes of the operator's objects by other clients.

use super::verdict::{Verdict, verdict};
use crate::{decide::Report, reasons::Upgradeable, text::join_truncated};

/// Returns why an upgrade is not advised while other clients replace values that the operator writes.
pub(super) fn conflict(report: &Report<'_>) -> Option<Verdict<Upgradeable>> {
    let fields = &report.decision.drift.unresolvable;
    (!fields.is_empty()).then(|| {
        let message = format!(
            "the API server or a webhook keeps other values than the operator writes: {}; find out which client sets them",
            join_truncated(fields)
        );
        verdict(Upgradeable::FieldConflict, message)
    })
}

/// Describes objects that other clients changed or deleted while the operator is not allowed to restore them.
pub(super) fn describe_unrestored(report: &Report<'_>) -> Option<String> {
    let drift = &report.decision.drift;
    let objects = [&drift.deleted[..], &drift.changed[..]].concat();
    (!objects.is_empty()).then(|| {
        format!(
            "Other clients changed or deleted objects of the driver, which are not restored: {}",
            join_truncated(&objects)
        )
    })
}
