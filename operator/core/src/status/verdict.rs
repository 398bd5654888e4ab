// SPDX-License-Identifier: Apache-2.0
//! Verdicts: reason and message of a condition, and the condition that results from them.

use cinder_csi_crds::CinderCSIDriverStatus;
use csi_sources::UntrustedText;
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};

use crate::reasons::{ConditionReason, Reason};

/// Maximum number of names in a list of the status.
pub(super) const NAMED: usize = 10;

/// Maximum length of a condition's message in the API server.
pub(super) const LONGEST_MESSAGE: usize = 32_768;

/// Reason and message of a condition.
pub(super) type Verdict<R> = (R, String);

pub(super) fn verdict<R: Reason>(reason: R, message: impl Into<String>) -> Verdict<R> {
    (reason, message.into())
}

/// Documented reason and message of a condition of any type.
pub(super) type Judgement = (&'static ConditionReason, String);

pub(super) fn judgement_of<R: Reason>((reason, message): Verdict<R>) -> Judgement {
    (reason.row(), message)
}

pub(super) fn condition(
    previous: Option<&CinderCSIDriverStatus>,
    generation: Option<i64>,
    (reason, message): Judgement,
    now: Timestamp,
) -> Condition {
    let old = previous.and_then(|previous| previous.condition(reason.type_));
    let last_transition_time = match old {
        Some(old) if old.status == reason.status => old.last_transition_time.clone(),
        _ => Time(whole_seconds(now)),
    };
    Condition {
        type_: reason.type_.as_str().to_owned(),
        status: reason.status.to_owned(),
        reason: reason.reason.to_owned(),
        message: UntrustedText::with_limit(&message, LONGEST_MESSAGE).to_string(),
        observed_generation: generation,
        last_transition_time,
    }
}

/// Removes fractions of a second, which the API server does not store. A different time after a read would count as a
/// change.
pub(super) fn whole_seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}
