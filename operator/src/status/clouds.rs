//! What is said about the clouds: credentials, services, zones, quotas.

mod events;
mod list;
mod quotas;
mod view;
mod zones;

use std::time::Duration;

use cinder_csi_crds::{CinderCSIDriverStatus, ConditionType};
use k8s_openapi::jiff::Timestamp;

use super::{NAMED, Seen, Verdict, find, verdict};
use crate::{clouds::trouble, credentials::PROJECT_CHANGED, resolve::health::HealthSettings, words::listed};

pub use events::{EXPIRING, expiring};
pub(super) use events::{event, rotations};
pub(super) use list::statuses;
pub(super) use quotas::quota_sufficient;
pub use view::CloudView;
pub use zones::mismatched_zones;
pub(super) use zones::topology_consistent;

use list::before;

/// How long a cloud may be in trouble before that is a reason to call the driver degraded: clouds have their hiccups.
const DEBOUNCE: Duration = Duration::from_mins(2);

/// How long the driver may be cut off from a cloud before it is no longer called available.
const CUT_OFF: Duration = Duration::from_mins(15);

/// Whether the trouble of this cloud is so young that it may pass by itself.
pub(super) fn is_young(previous: Option<&CinderCSIDriverStatus>, cloud: &CloudView, now: Timestamp) -> bool {
    let lasts = lasts(previous, ConditionType::BackendReachable, now);
    cloud.is_down() && cloud.hash.is_some() && lasts.is_none_or(|lasts| lasts < DEBOUNCE)
}

/// Why the driver cannot work although it runs: the clouds are out of its reach for long.
pub(super) fn cut_off(previous: Option<&CinderCSIDriverStatus>, seen: &Seen, now: Timestamp) -> Option<Verdict> {
    let is_long = |type_| lasts(previous, type_, now).is_some_and(|lasts| lasts >= CUT_OFF);
    let count = |is: fn(&CloudView) -> bool| !seen.clouds.is_empty() && seen.clouds.iter().all(is);
    if count(CloudView::is_locked_out) && is_long(ConditionType::CredentialsValid) {
        return Some(verdict(
            "False",
            "AuthFailed",
            "the cloud refuses the credentials that the driver uses: no volume can be made, attached, detached or deleted; \
             condition CredentialsValid says more",
        ));
    }
    (count(CloudView::is_down) && is_long(ConditionType::BackendReachable)).then(|| {
        verdict(
            "False",
            "BackendDown",
            "the cloud, or a service of it, is missing or does not answer as it should: volumes cannot be made, attached, detached or \
             deleted; condition BackendReachable says more",
        )
    })
}

/// How long a condition has been False.
fn lasts(previous: Option<&CinderCSIDriverStatus>, type_: ConditionType, now: Timestamp) -> Option<Duration> {
    let old = previous.and_then(|previous| find(previous, type_))?;
    (old.status == "False")
        .then(|| Duration::try_from(now.duration_since(old.last_transition_time.0)).unwrap_or_default())
}

/// What is said of one cloud, and how bad it is.
struct Word {
    gravity: u8,
    status: &'static str,
    reason: &'static str,
    message: String,
}

/// The gravest word gives status and reason; all of its gravity give the message.
fn gravest(words: &[Word]) -> Option<Verdict> {
    let first = words.iter().rev().max_by_key(|word| word.gravity)?;
    let (status, reason, gravity) = (first.status, first.reason, first.gravity);
    let messages = words.iter().filter(|word| word.gravity == gravity);
    let messages: Vec<&str> = messages.map(|word| word.message.as_str()).take(NAMED).collect();
    Some(verdict(status, reason, messages.join(" | ")))
}

pub(super) fn credentials_valid(seen: &Seen, now: Timestamp) -> Verdict {
    let clouds = seen.clouds.iter();
    let words: Vec<Word> = clouds.map(|cloud| credentials_of(cloud, &seen.health, now)).collect();
    gravest(&words).unwrap_or_else(|| {
        verdict(
            "True",
            "AsExpected",
            "no credentials are tried of a driver that is removed or let go of",
        )
    })
}

fn credentials_of(cloud: &CloudView, health: &HealthSettings, now: Timestamp) -> Word {
    let word = |gravity, status, reason, message| Word {
        gravity,
        status,
        reason,
        message,
    };
    let ends = cloud.ends(now);
    let ended = ends.first().filter(|(_, end)| *end <= now);
    let expired = |(what, end): &(String, Timestamp)| {
        let message = format!(
            "{what} of cloud {} ended at {end}; make a new one and put it where spec.clouds names it",
            cloud.name
        );
        word(4, "False", "Expired", message)
    };
    if let Some(refusal) = &cloud.refusal {
        if !cloud.is_backend_trouble() {
            if let Some(ended) = ended.filter(|_| cloud.is_locked_out()) {
                return expired(ended);
            }
            let reason = match refusal.reason {
                "CredentialsRejected" => "Unauthorized",
                "CredentialsForbidden" => "Forbidden",
                "SecretUnreadable" => "SecretUnreadable",
                "SecretMissing" | "SecretKeyMissing" | "CABundleMissing" | "ClientCertificateMissing" => {
                    "SecretMissing"
                }
                reason @ (trouble::NO_ENDPOINT | PROJECT_CHANGED) => reason,
                _ => "SecretMalformed",
            };
            let consequence = if cloud.is_changed && cloud.hash.is_some() {
                ". The driver goes on with the credentials that were accepted last"
            } else {
                ""
            };
            return word(5, "False", reason, format!("{}{consequence}", refusal.message));
        }
        if cloud.is_changed {
            let message = format!(
                "the credentials of cloud {} cannot be tried, because the cloud does not answer; condition BackendReachable says \
                 more",
                cloud.name
            );
            return word(3, "False", "NotChecked", message);
        }
    }
    if let Some(ended) = ended {
        return expired(ended);
    }
    if cloud.is_not_given {
        let message = format!(
            "the credentials of cloud {} that the spec names log in and are not those that the driver has: they are given to it when \
             spec.managementState is Managed again",
            cloud.name
        );
        return word(3, "False", "NotGiven", message);
    }
    let left = |end: Timestamp| Duration::try_from(end.duration_since(now)).unwrap_or_default();
    match ends.first() {
        Some((what, end)) if left(*end) <= health.expiry_warning => {
            let message = format!(
                "{what} of cloud {} ends at {end}; make a new one in time and put it where spec.clouds names it: the driver takes \
                 it over without a restart",
                cloud.name
            );
            if left(*end) <= health.expiry_critical {
                word(2, "False", "Expiring", message)
            } else {
                word(1, "True", "Expiring", message)
            }
        }
        _ => word(
            0,
            "True",
            "Valid",
            format!("the credentials of cloud {} log in", cloud.name),
        ),
    }
}

pub(super) fn backend_reachable(seen: &Seen) -> Verdict {
    let mut words = Vec::new();
    for cloud in &seen.clouds {
        if let Some(refusal) = cloud.refusal.as_ref().filter(|_| cloud.is_backend_trouble()) {
            words.push(Word {
                gravity: 2,
                status: "False",
                reason: match refusal.reason {
                    "CloudUnreachable" => trouble::of_connection(&refusal.message),
                    _ => trouble::UNAVAILABLE,
                },
                message: refusal.message.clone(),
            });
            continue;
        }
        // That credentials are refused is said by CredentialsValid.
        let troubles = cloud.state.troubles.iter();
        words.extend(
            troubles
                .filter(|one| one.reason != trouble::UNAUTHORIZED)
                .map(|one| Word {
                    gravity: 1,
                    status: "False",
                    reason: one.reason,
                    message: format!("service {} of cloud {}: {}", one.service, cloud.name, one.message),
                }),
        );
    }
    gravest(&words).unwrap_or_else(|| verdict("True", "AsExpected", "the services of the clouds answer"))
}

pub(super) fn insecure_configuration(seen: &Seen) -> Verdict {
    let insecure: Vec<String> = seen
        .clouds
        .iter()
        .filter(|cloud| cloud.is_insecure)
        .map(|cloud| cloud.name.clone())
        .collect();
    if insecure.is_empty() {
        return verdict("False", "AsExpected", "the certificates of the clouds are verified");
    }
    verdict(
        "True",
        "TLSVerificationOff",
        format!(
            "any certificate is accepted of the clouds {}: whoever sits between can read the credentials; give the authority's \
             certificate in spec.clouds[].caBundleRef in place of insecureSkipTLSVerify",
            listed(&insecure)
        ),
    )
}

/// What was told before the operator started anew, or the credentials changed, and is not known to be otherwise yet: that nobody
/// has looked is no sign that all is well.
pub(super) fn as_told_before(
    previous: Option<&CinderCSIDriverStatus>,
    seen: &Seen,
    type_: ConditionType,
    (status, reason, _): &Verdict,
) -> Option<Verdict> {
    let old = find(previous?, type_)?;
    let is_open = match type_ {
        ConditionType::BackendReachable | ConditionType::TopologyConsistent | ConditionType::QuotaSufficient => {
            old.status == "False" && seen.clouds.iter().any(CloudView::is_unseen)
        }
        ConditionType::CredentialsValid => {
            let is_same =
                |cloud: &CloudView| before(previous, cloud).is_some_and(|old| old.secret_hash == cloud.shown_hash());
            let mut unseen = seen.clouds.iter().filter(|cloud| cloud.is_unseen());
            reason == "Valid" && matches!(old.reason.as_str(), "Expiring" | "Expired") && unseen.any(is_same)
        }
        ConditionType::VolumesHealthy => old.status == "False" && seen.stuck_unexplained,
        _ => false,
    };
    let status = if old.status == "False" { "False" } else { status };
    is_open.then(|| verdict(status, &old.reason, old.message.clone()))
}

#[cfg(test)]
mod tests;
