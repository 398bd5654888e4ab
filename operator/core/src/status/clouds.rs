// SPDX-License-Identifier: Apache-2.0
//! The conditions of the clouds and their credentials.

mod events;
mod list;

use std::time::Duration;

use cinder_csi_crds::{CinderCSIDriverStatus, ConditionType, ManagementState};
use k8s_openapi::jiff::Timestamp;

use super::verdict::{NAMED, Verdict, verdict};
use crate::{
    decide::{CloudView, Facts, Outcome, ProjectGuard},
    reasons::{Available, CredentialsValid, Reason},
    resolve::health::HealthSettings,
    text::join_truncated,
};

pub use events::expiring;
pub(super) use events::{event, is_insecure};
pub(super) use list::statuses;

/// Duration of an outage before the driver counts as degraded. Clouds have short outages.
const DEBOUNCE: Duration = Duration::from_mins(2);

/// Duration of an outage or of refused credentials before the driver counts as unavailable.
const CUT_OFF: Duration = Duration::from_mins(15);

/// Whether the outage of a cloud is too short to degrade the driver.
pub(super) fn is_young(
    previous: Option<&CinderCSIDriverStatus>,
    cloud: &CloudView,
    outcome: &Outcome,
    now: Timestamp,
) -> bool {
    // While another cloud is refused, the condition is False. No other time is known.
    let lasts = ["Unknown", "False"]
        .into_iter()
        .find_map(|status| lasts(previous, status, now));
    cloud.is_down() && outcome.has_credentials(cloud) && lasts.is_none_or(|lasts| lasts < DEBOUNCE)
}

/// Returns the verdict on a running driver when its clouds refuse it or have been unavailable for a long time.
pub(super) fn cut_off(
    previous: Option<&CinderCSIDriverStatus>,
    facts: &Facts,
    outcome: &Outcome,
    now: Timestamp,
) -> Option<Verdict<Available>> {
    let is_long = |status| lasts(previous, status, now).is_some_and(|lasts| lasts >= CUT_OFF);
    let clouds = &facts.clouds;
    let is_every = |is: &dyn Fn(&CloudView) -> bool| !clouds.is_empty() && clouds.iter().all(is);
    if is_every(&|cloud| outcome.is_locked_out(cloud)) && is_long("False") {
        return Some(verdict(
            Available::AuthFailed,
            "the cloud refuses the credentials that the driver uses: no volume can be made, attached, detached or deleted; \
             condition CredentialsValid says more",
        ));
    }
    (is_every(&CloudView::is_down) && is_long("Unknown")).then(|| {
        verdict(
            Available::BackendDown,
            "the cloud, or a service of it, is missing or does not answer as it should: volumes cannot be made, attached, detached or \
             deleted; condition CredentialsValid says more",
        )
    })
}

/// Returns how long condition CredentialsValid has had a status.
fn lasts(previous: Option<&CinderCSIDriverStatus>, status: &str, now: Timestamp) -> Option<Duration> {
    let old = previous.and_then(|previous| previous.condition(ConditionType::CredentialsValid))?;
    (old.status == status)
        .then(|| Duration::try_from(now.duration_since(old.last_transition_time.0)).unwrap_or_default())
}

/// The verdict on one cloud.
struct CloudVerdict<R> {
    gravity: u8,
    reason: R,
    message: String,
}

/// Returns the most severe reason. The message joins all verdicts of the same severity.
fn gravest<R: Reason>(words: &[CloudVerdict<R>]) -> Option<Verdict<R>> {
    let first = words.iter().rev().max_by_key(|word| word.gravity)?;
    let messages = words.iter().filter(|word| word.gravity == first.gravity);
    let messages: Vec<&str> = messages.map(|word| word.message.as_str()).take(NAMED).collect();
    Some(verdict(first.reason, messages.join(" | ")))
}

pub(super) fn credentials_valid(facts: &Facts, outcome: &Outcome, now: Timestamp) -> Verdict<CredentialsValid> {
    let clouds = facts.clouds.iter();
    let state = facts.object.state;
    let mut words: Vec<_> = clouds
        .map(|cloud| judge_credentials(cloud, outcome, &facts.health, state, now))
        .collect();
    if !words.is_empty() {
        words.extend(judge_guard(outcome.guard));
    }
    gravest(&words).unwrap_or_else(|| {
        verdict(
            CredentialsValid::AsExpected,
            "the operator tries no credentials of a driver that is removed or released",
        )
    })
}

fn judge_credentials(
    cloud: &CloudView,
    outcome: &Outcome,
    health: &HealthSettings,
    state: ManagementState,
    now: Timestamp,
) -> CloudVerdict<CredentialsValid> {
    let word = |gravity, reason, message| CloudVerdict {
        gravity,
        reason,
        message,
    };
    let ends = cloud.ends(now);
    let ended = ends.first().filter(|(_, end)| *end <= now);
    let expired = |(what, end): &(String, Timestamp)| {
        let message = format!(
            "{what} of cloud {} expired at {end}; make a new one and put it where spec.clouds names it",
            cloud.name
        );
        word(6, CredentialsValid::Expired, message)
    };
    if let Some(refusal) = &cloud.refusal {
        if let Some(ended) = ended.filter(|_| outcome.is_locked_out(cloud)) {
            return expired(ended);
        }
        let consequence = if cloud.is_changed && outcome.has_credentials(cloud) {
            ". The driver keeps the credentials that were accepted last"
        } else {
            ""
        };
        let gravity = if cloud.is_down() { 5 } else { 7 };
        let message = format!("{}{consequence}", refusal.message);
        return word(gravity, refusal.reason.credentials_valid(), message);
    }
    if let Some(ended) = ended {
        return expired(ended);
    }
    if outcome.clouds_with_old_credentials.contains(&cloud.name) {
        let when = if state == ManagementState::Managed {
            "its Secret is written: condition Degraded has the reason why that failed"
        } else {
            "spec.managementState is Managed again"
        };
        let message = format!(
            "login with the credentials of cloud {} that the spec names works; the driver has others, and gets these when {when}",
            cloud.name
        );
        return word(5, CredentialsValid::NotGiven, message);
    }
    let remaining = |end: Timestamp| Duration::try_from(end.duration_since(now)).unwrap_or_default();
    match ends.first() {
        Some((what, end)) if remaining(*end) <= health.expiry_warning => {
            let message = format!(
                "{what} of cloud {} expires at {end}; make a new one in time and put it where spec.clouds names it: the driver \
                 reloads it without a restart",
                cloud.name
            );
            if remaining(*end) <= health.expiry_critical {
                word(4, CredentialsValid::Expiring, message)
            } else {
                word(3, CredentialsValid::ExpiresSoon, message)
            }
        }
        _ if !cloud.insecurities.is_empty() => {
            let parts: Vec<String> = cloud.insecurities.iter().map(ToString::to_string).collect();
            let message = format!(
                "login with the credentials of cloud {} works, and a client on the network path can read them: {}; use https addresses, and \
                 give the authority's certificate in spec.clouds[].caBundleRef in place of insecureSkipTLSVerify{}",
                cloud.name,
                parts.join(", and "),
                describe_ignored(cloud)
            );
            word(1, CredentialsValid::TLSVerificationOff, message)
        }
        _ => word(
            0,
            CredentialsValid::AsExpected,
            format!(
                "login with the credentials of cloud {} works{}",
                cloud.name,
                describe_ignored(cloud)
            ),
        ),
    }
}

/// Describes ineffective keys of the credentials, for the end of a message.
fn describe_ignored(cloud: &CloudView) -> String {
    if cloud.warnings.is_empty() {
        return String::new();
    }
    format!("; not used: {}", join_truncated(&cloud.warnings))
}

/// Returns the verdict on the project guard, if it is disabled or was used.
fn judge_guard(guard: ProjectGuard) -> Option<CloudVerdict<CredentialsValid>> {
    let (gravity, reason, message) = match guard {
        ProjectGuard::On => return None,
        ProjectGuard::Off => (
            2,
            CredentialsValid::ProjectGuardOff,
            "the annotation csi.openstack.org/move-project is set: credentials of any project and region are accepted although volumes \
             may be lost; remove it unless a move is intended",
        ),
        ProjectGuard::Moved => (
            8,
            CredentialsValid::ProjectMoved,
            "the driver was moved to another project or region, and the operator removes the annotation csi.openstack.org/move-project",
        ),
    };
    Some(CloudVerdict {
        gravity,
        reason,
        message: message.to_owned(),
    })
}

#[cfg(test)]
mod tests;
