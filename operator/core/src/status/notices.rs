// SPDX-License-Identifier: Apache-2.0
//! Events for changes of the status.

use cinder_csi_crds::{CinderCSIDriverStatus, ConditionType};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{classes, clouds, nodes};
use crate::{
    notice::Notice,
    reasons::{Available, Event, Progressing, Reason, Upgradeable},
};

/// Returns the events for a change of the status: one for each condition with a changed status or reason.
pub fn notices(previous: Option<&CinderCSIDriverStatus>, next: &CinderCSIDriverStatus) -> Vec<Notice> {
    let previous = previous.filter(|previous| previous.is_observed());
    let changed = |type_: &ConditionType| {
        let old = previous.and_then(|previous| previous.condition(*type_));
        let new = next.condition(*type_)?;
        let is_same = old.is_some_and(|old| old.status == new.status && old.reason == new.reason);
        // The first healthy status of a condition has no event. Special conditions have one only when they become or
        // cease to be unhealthy.
        let is_headline = matches!(
            type_,
            ConditionType::Available | ConditionType::Progressing | ConditionType::Degraded
        );
        let is_good = |condition: &Condition| condition.status == type_.good_status();
        let is_quiet_start = is_good(new)
            && !clouds::is_insecure(new)
            && !old.is_some_and(clouds::is_insecure)
            && (old.is_none() && !Progressing::Paused.is(new) || !is_headline && old.is_some_and(is_good));
        // Other conditions already have these events. Available or Degraded reports that nothing is in progress.
        // Progressing reports the course of a removal and its blockers. Degraded reports why the availability is
        // unknown.
        let is_told_elsewhere = *type_ == ConditionType::DeletionBlocked
            || *type_ == ConditionType::Upgradeable && is_about_rollout(old, new)
            || *type_ == ConditionType::Progressing && new.status != "True" && !Progressing::Paused.is(new)
            || *type_ == ConditionType::Available
                && (new.status == "Unknown" || Available::Removing.is(new) || Available::Removed.is(new));
        if is_same || is_quiet_start || is_told_elsewhere {
            return None;
        }
        notice(*type_, new, nodes::is_in_place(Some(next)))
    };
    let mut notices: Vec<Notice> = ConditionType::ALL.iter().filter_map(changed).collect();
    notices.extend(classes::notices(previous, next));
    notices
}

/// Whether Upgradeable reports only the start or the end of a rollout, as Progressing does. A joining node also
/// starts a rollout.
fn is_about_rollout(old: Option<&Condition>, new: &Condition) -> bool {
    let is_rollout = |condition: &Condition| Upgradeable::RolloutInProgress.is(condition);
    is_rollout(new) || new.status == "True" && old.is_some_and(is_rollout)
}

fn notice(type_: ConditionType, new: &Condition, is_in_place: bool) -> Option<Notice> {
    if let Some(event) = clouds::event(type_, new) {
        return Some(Notice::new(event, new.message.clone()));
    }
    let is_good = new.status == type_.good_status();
    let event = match type_ {
        ConditionType::Available if is_good => Event::Available,
        ConditionType::Available if is_in_place => Event::Unavailable,
        // A driver that is not ready during its installation is not a fault. Degraded reports the cause of a delay.
        ConditionType::Available => Event::NotYetAvailable,
        ConditionType::Progressing if Progressing::DeletionBlocked.is(new) => Event::DeletionBlocked,
        ConditionType::Progressing if Progressing::Paused.is(new) => Event::Paused,
        ConditionType::Progressing => Event::Progressing,
        ConditionType::Degraded if is_good => Event::Recovered,
        ConditionType::Degraded => Event::Degraded,
        ConditionType::Upgradeable if is_good => Event::UpgradeableTrue,
        ConditionType::Upgradeable if new.status == "Unknown" => Event::UpgradeableUnknown,
        ConditionType::Upgradeable => Event::UpgradeableFalse,
        // CredentialsValid has its own events above, Progressing reports a removal, and the first three summarize
        // others.
        ConditionType::Ready
        | ConditionType::Reconciling
        | ConditionType::Stalled
        | ConditionType::DeletionBlocked
        | ConditionType::CredentialsValid => return None,
    };
    let note = format!("{}={} ({}): {}", new.type_, new.status, new.reason, new.message);
    Some(Notice::new(event, note))
}
