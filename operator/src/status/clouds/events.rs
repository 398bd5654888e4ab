//! The events that a change of the clouds is worth.

use cinder_csi_crds::{CinderCSIDriverStatus, ConditionType};

use super::quotas::EXHAUSTED;
use crate::{
    events::{Notice, Severity},
    status::find,
};

/// The event about credentials that end.
pub const EXPIRING: &str = "CredentialsExpiring";

/// The event for a condition about clouds or volumes that changed.
pub(in crate::status) fn event(type_: ConditionType, status: &str, reason: &str) -> Option<(Severity, &'static str)> {
    use Severity::{Normal, Warning};
    Some(match (type_, status, reason) {
        (ConditionType::CredentialsValid, _, "Expiring" | "Expired") => (Warning, EXPIRING),
        (ConditionType::CredentialsValid, "True", _) => (Normal, "CredentialsAccepted"),
        (ConditionType::CredentialsValid, ..) => (Warning, "CredentialsRejected"),
        (ConditionType::BackendReachable, "True", _) => (Normal, "BackendReachable"),
        (ConditionType::BackendReachable, ..) => (Warning, "BackendUnreachable"),
        (ConditionType::TopologyConsistent, "True", _) => (Normal, "TopologyConsistent"),
        (ConditionType::TopologyConsistent, ..) => (Warning, "TopologyMismatch"),
        (ConditionType::QuotaSufficient, "True", _) => (Normal, "QuotaSufficient"),
        (ConditionType::QuotaSufficient, _, EXHAUSTED) => (Warning, "QuotaExhausted"),
        (ConditionType::QuotaSufficient, ..) => (Warning, "QuotaNearLimit"),
        (ConditionType::InsecureConfiguration, "True", _) => (Warning, "InsecureConfiguration"),
        (ConditionType::InsecureConfiguration, ..) => (Normal, "SecureConfiguration"),
        (ConditionType::VolumesHealthy, "True", _) => (Normal, "VolumesHealthy"),
        (ConditionType::VolumesHealthy, ..) => (Warning, "VolumesStuck"),
        _ => return None,
    })
}

/// What has to be told again and again while credentials end soon or have ended.
pub fn expiring(status: &CinderCSIDriverStatus) -> Option<Notice> {
    let condition = find(status, ConditionType::CredentialsValid)?;
    let ends = matches!(condition.reason.as_str(), "Expiring" | "Expired");
    ends.then(|| Notice::warning(EXPIRING, "Observe", condition.message.clone()))
}

/// The events for a change of the driver's credentials.
pub(in crate::status) fn rotations(
    previous: Option<&CinderCSIDriverStatus>,
    next: &CinderCSIDriverStatus,
) -> Vec<(&'static str, String)> {
    let mut events = Vec::new();
    for new in &next.clouds {
        let old = previous.and_then(|previous| previous.clouds.iter().find(|old| old.name == new.name));
        let (Some(old), Some(hash)) = (old, &new.secret_hash) else {
            continue;
        };
        if old.secret_hash.is_some() && old.secret_hash != new.secret_hash {
            events.push((
                "SecretRotated",
                format!(
                    "the changed credentials of cloud {} log in and were given to the driver (hash {hash}); its pods take them over \
                     while they run",
                    new.name
                ),
            ));
        }
        if old.loaded == Some(false) && new.loaded == Some(true) {
            events.push((
                "CredentialsLoaded",
                format!(
                    "every pod of the controller uses the credentials of cloud {} (hash {hash})",
                    new.name
                ),
            ));
        }
    }
    events
}
