//! DriftDetected: what somebody else changed of what the operator keeps.

use std::time::Duration;

use cinder_csi_crds::{CinderCSIDriverStatus, ConditionType, ManagementState};
use k8s_openapi::jiff::Timestamp;

use super::{Seen, Verdict, find, verdict};
use crate::words::listed;

/// For so long a drift that was put right is still told.
pub(super) const REMEMBERED: Duration = Duration::from_hours(1);

/// Objects that are not as the operator wants them, though nobody has asked for anything else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drift {
    /// Objects with the fields that somebody changed.
    pub changed: Vec<String>,
    /// Objects that somebody deleted.
    pub deleted: Vec<String>,
    /// Objects whose fields become other than asked for however often they are written.
    pub kept: Vec<String>,
}

impl Drift {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.deleted.is_empty() && self.kept.is_empty()
    }
}

pub(super) fn drift(previous: Option<&CinderCSIDriverStatus>, seen: &Seen, now: Timestamp) -> Verdict {
    if seen.state == ManagementState::Unmanaged {
        return verdict(
            "False",
            "Unmanaged",
            "spec.managementState is Unmanaged: the objects are not compared",
        );
    }
    let drift = &seen.drift;
    let stays = if super::is_paused(seen) {
        "stays as it is while spec.managementState lets nothing be changed"
    } else {
        "was put right"
    };
    if !drift.kept.is_empty() {
        return verdict(
            "True",
            "FieldConflict",
            format!(
                "the API server or a webhook keeps other values than the operator writes: {}; find out who sets them",
                listed(&drift.kept)
            ),
        );
    }
    if !drift.deleted.is_empty() {
        return verdict(
            "True",
            "ObjectDeleted",
            format!("somebody deleted {}; this {stays}", listed(&drift.deleted)),
        );
    }
    if !drift.changed.is_empty() {
        return verdict(
            "True",
            "FieldConflict",
            format!("somebody changed {}; this {stays}", listed(&drift.changed)),
        );
    }
    let old = previous.and_then(|previous| find(previous, ConditionType::DriftDetected));
    if let Some(old) = old.filter(|old| old.status == "True" && old.message.ends_with("was put right")) {
        let since = now.duration_since(old.last_transition_time.0);
        if since.unsigned_abs() < REMEMBERED {
            return verdict("True", &old.reason, old.message.clone());
        }
    }
    verdict("False", "AsExpected", "nobody else changes what the operator keeps")
}
