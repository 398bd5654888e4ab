// SPDX-License-Identifier: Apache-2.0
//! Events for changes of the clouds.

use cinder_csi_crds::{CinderCSIDriverStatus, ConditionType};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::{
    notice::Notice,
    reasons::{CredentialsValid, Event, Reason},
};

/// Returns the event for a changed condition of the clouds.
pub(in crate::status) fn event(type_: ConditionType, new: &Condition) -> Option<Event> {
    let is_good = new.status == type_.good_status();
    Some(match type_ {
        ConditionType::CredentialsValid if is_expiry(new) => Event::CredentialsExpiring,
        ConditionType::CredentialsValid if is_insecure(new) => Event::InsecureConfiguration,
        ConditionType::CredentialsValid if is_good => Event::CredentialsAccepted,
        ConditionType::CredentialsValid if CredentialsValid::NotChecked.is(new) => Event::CredentialsNotChecked,
        ConditionType::CredentialsValid => Event::CredentialsRejected,
        _ => return None,
    })
}

/// Whether CredentialsValid reports a disabled check.
pub(in crate::status) fn is_insecure(condition: &Condition) -> bool {
    use CredentialsValid::{ProjectGuardOff, TLSVerificationOff};
    [TLSVerificationOff, ProjectGuardOff]
        .iter()
        .any(|reason| reason.is(condition))
}

/// Whether CredentialsValid reports that credentials expire soon or have expired.
pub(super) fn is_expiry(condition: &Condition) -> bool {
    use CredentialsValid::{Expired, ExpiresSoon, Expiring};
    [ExpiresSoon, Expiring, Expired]
        .iter()
        .any(|reason| reason.is(condition))
}

/// Returns the event that is repeated while credentials expire soon or have expired.
pub fn expiring(status: &CinderCSIDriverStatus) -> Option<Notice> {
    let condition = status.condition(ConditionType::CredentialsValid)?;
    is_expiry(condition).then(|| Notice::new(Event::CredentialsExpiring, condition.message.clone()))
}
