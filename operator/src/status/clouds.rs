//! What is said about the clouds: credentials, services, zones, quotas.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use cinder_csi_crds::{CinderCSIDriverStatus, CloudServiceStatus, CloudStatus, ConditionType, QuotaStatus};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use super::{NAMED, Seen, Verdict, find, verdict};
use crate::{
    clouds::{CloudFacts, CloudState, QuotaFact, certificates, trouble},
    events::{Notice, Severity},
    resolve::{Problem, health::HealthSettings},
    teardown::listed,
};

/// How long a cloud may be in trouble before that is a reason to call the driver degraded: clouds have their hiccups.
const DEBOUNCE: Duration = Duration::from_mins(2);

/// How long the driver may be cut off from a cloud before it is no longer called available.
const CUT_OFF: Duration = Duration::from_mins(15);

/// The event about credentials that end.
pub const EXPIRING: &str = "CredentialsExpiring";

/// How many zones, and how many quotas, of a cloud are listed.
const LISTED: usize = 32;

/// How many characters of a hash are shown.
const SHOWN: usize = 16;

/// The state of a quota, as the status writes it.
const SUFFICIENT: &str = "Sufficient";
const NEAR_LIMIT: &str = "NearLimit";
const EXHAUSTED: &str = "Exhausted";

/// A cloud as it was found.
#[expect(clippy::struct_excessive_bools, reason = "facts, each for itself")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CloudView {
    /// Its name in the spec.
    pub name: String,
    /// Whether the credentials that the Secret holds now log in.
    pub authenticated: bool,
    /// Why not.
    pub refusal: Option<Problem>,
    /// Whether what the Secret holds now is not what the driver has.
    pub is_changed: bool,
    /// Hash of the credentials in use; `None` when none have ever been good.
    pub hash: Option<String>,
    /// Whether the controller's pods say that they use them; `None` while none runs.
    pub loaded: Option<bool>,
    /// How the driver logs in.
    pub auth_method: Option<&'static str>,
    /// The ends of the certificates of its authorities.
    pub ca_ends: Vec<Timestamp>,
    /// The ends of the client certificate and its chain.
    pub client_cert_ends: Vec<Timestamp>,
    /// Whether any certificate is accepted.
    pub is_insecure: bool,
    /// Cinder's zone for zones of Nova.
    pub zone_map: BTreeMap<String, String>,
    /// Whether the zones of volumes are of no interest.
    pub ignores_zones: bool,
    /// What it told.
    pub state: CloudState,
}

impl CloudView {
    /// Whether what is wrong is that the cloud does not answer as it should, and not what it was told.
    pub(crate) fn is_backend_trouble(&self) -> bool {
        let reason = self.refusal.as_ref().map(|refusal| refusal.reason);
        matches!(reason, Some("CloudUnreachable" | "LoginFailed"))
    }

    /// Whether the cloud refuses the very credentials that the driver has.
    pub(crate) fn is_locked_out(&self) -> bool {
        let is_rejected = self
            .refusal
            .as_ref()
            .is_some_and(|refusal| matches!(refusal.reason, "CredentialsRejected" | "CredentialsForbidden"));
        let own = self
            .state
            .troubles
            .iter()
            .any(|one| one.reason == trouble::UNAUTHORIZED);
        self.hash.is_some() && ((is_rejected && !self.is_changed) || own)
    }

    /// Whether it has not told anything yet since the operator started, or since it got other credentials.
    fn is_unseen(&self) -> bool {
        self.hash.is_some() && !self.state.is_known
    }

    /// As much of the hash as the status shows.
    fn shown_hash(&self) -> Option<String> {
        self.hash.as_ref().map(|hash| hash.chars().take(SHOWN).collect())
    }

    /// Everything of it that ends, with a word for it, the first end first.
    fn ends(&self, now: Timestamp) -> Vec<(String, Timestamp)> {
        let credential = self.state.credential.as_ref().and_then(|(name, end)| {
            let end = (*end)?;
            Some((format!("the application credential {name}"), end))
        });
        let token = self.state.token_ends.filter(|_| self.auth_method == Some("Token"));
        let client = self.client_cert_ends.iter().min().copied();
        let ca = certificates::end_of_bundle(&self.ca_ends, now);
        let mut ends: Vec<(String, Timestamp)> = credential
            .into_iter()
            .chain(token.map(|end| ("the token, which cannot be renewed,".to_owned(), end)))
            .chain(client.map(|end| ("the client certificate".to_owned(), end)))
            .chain(ca.map(|end| ("the CA bundle's certificate".to_owned(), end)))
            .collect();
        ends.sort_by_key(|(_, end)| *end);
        ends
    }
}

/// Whether the trouble of this cloud is so young that it may pass by itself.
pub(super) fn is_young(previous: Option<&CinderCSIDriverStatus>, cloud: &CloudView, now: Timestamp) -> bool {
    let lasts = lasts(previous, ConditionType::BackendReachable, now);
    cloud.is_backend_trouble() && cloud.hash.is_some() && lasts.is_none_or(|lasts| lasts < DEBOUNCE)
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
    let is_down = |cloud: &CloudView| cloud.is_backend_trouble();
    (count(is_down) && is_long(ConditionType::BackendReachable)).then(|| {
        verdict(
            "False",
            "BackendDown",
            "the cloud does not answer: no volume can be made, attached, detached or deleted; condition BackendReachable says \
             more",
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
            "no credentials are needed while the driver is removed",
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

pub(super) fn topology_consistent(seen: &Seen) -> Verdict {
    let ignores = !seen.clouds.is_empty() && seen.clouds.iter().all(|cloud| cloud.ignores_zones);
    if !seen.has_topology || ignores {
        return verdict("True", "AsExpected", "the zones of volumes are of no interest");
    }
    let known: Vec<&CloudView> = seen
        .clouds
        .iter()
        .filter(|cloud| !cloud.state.facts.volume_zones.is_empty() && !cloud.state.facts.compute_zones.is_empty())
        .collect();
    // Which cloud a node is in is not known here: a zone is well that is well in one of them.
    if known.is_empty() || known.len() < seen.clouds.len() {
        return verdict("True", "AsExpected", "the zones of the clouds are not known yet");
    }
    let Mismatch { gone, unmatched } = mismatch(seen.node_zones.iter(), &known);
    if !gone.is_empty() {
        return verdict(
            "False",
            "ZoneRemoved",
            format!(
                "nodes are in zones that Nova no longer has: {}; volumes for pods there cannot be made in their zone: move the \
                 nodes, or bring the zone back",
                listed(&gone)
            ),
        );
    }
    if !unmatched.is_empty() {
        return verdict(
            "False",
            "ZoneMismatch",
            format!(
                "nodes are in zones of Nova that Cinder does not have: {}; Cinder has: {}. Say which belong together in \
                 spec.clouds[].availabilityZoneMap, or set spec.topology.mode to Disabled",
                listed(&unmatched),
                listed(&volume_zones(&known))
            ),
        );
    }
    verdict("True", "AsExpected", "every zone of the nodes has its zone in Cinder")
}

/// Zones of nodes that do not fit.
struct Mismatch {
    /// Nova no longer has them.
    gone: Vec<String>,
    /// Cinder has no zone for them.
    unmatched: Vec<String>,
}

fn mismatch<'a>(zones: impl Iterator<Item = &'a String>, clouds: &[&CloudView]) -> Mismatch {
    let (mut gone, mut unmatched) = (Vec::new(), Vec::new());
    for zone in zones {
        let fits = |cloud: &&CloudView| {
            let wanted = cloud.zone_map.get(zone).unwrap_or(zone);
            cloud.ignores_zones || cloud.state.facts.volume_zones.contains(wanted)
        };
        let exists = |cloud: &&CloudView| cloud.state.facts.compute_zones.contains(zone);
        if !clouds.iter().any(exists) {
            gone.push(zone.clone());
        } else if !clouds.iter().any(fits) {
            unmatched.push(zone.clone());
        }
    }
    Mismatch { gone, unmatched }
}

/// How many zones of nodes do not fit: those that Nova lost, and those without one in Cinder.
pub fn mismatched_zones(seen: &Seen) -> (usize, usize) {
    let clouds: Vec<&CloudView> = seen.clouds.iter().collect();
    let is_known = !clouds.is_empty()
        && clouds
            .iter()
            .all(|cloud| !cloud.state.facts.volume_zones.is_empty() && !cloud.state.facts.compute_zones.is_empty());
    if !seen.has_topology || !is_known {
        return (0, 0);
    }
    let Mismatch { gone, unmatched } = mismatch(seen.node_zones.iter(), &clouds);
    (gone.len(), unmatched.len())
}

fn volume_zones(clouds: &[&CloudView]) -> Vec<String> {
    let all: BTreeSet<&String> = clouds
        .iter()
        .flat_map(|cloud| &cloud.state.facts.volume_zones)
        .collect();
    all.into_iter().cloned().collect()
}

/// How scarce a quota is, by the thresholds of the spec.
fn scarcity(quota: &QuotaFact, health: &HealthSettings) -> &'static str {
    let reaches = |percent: u64| quota.used.saturating_mul(100) >= quota.limit.saturating_mul(percent);
    if quota.used >= quota.limit || reaches(health.quota_critical) {
        EXHAUSTED
    } else if reaches(health.quota_warn) {
        NEAR_LIMIT
    } else {
        SUFFICIENT
    }
}

pub(super) fn quota_sufficient(seen: &Seen) -> Verdict {
    let scarce = |wanted: &str| -> Vec<String> {
        let all = seen.clouds.iter().flat_map(|cloud| {
            let quotas = cloud.state.facts.quota.iter();
            quotas.map(move |quota| (cloud, quota))
        });
        all.filter(|(_, quota)| scarcity(quota, &seen.health) == wanted)
            .map(|(cloud, quota)| {
                let of_type = quota.volume_type.as_ref().map(|name| format!(" of type {name}"));
                format!(
                    "{}{} in cloud {} (limit {})",
                    quota.resource,
                    of_type.unwrap_or_default(),
                    cloud.name,
                    quota.limit
                )
            })
            .collect()
    };
    let (exhausted, near) = (scarce(EXHAUSTED), scarce(NEAR_LIMIT));
    let help = "raise the project's quota, or delete what is not needed";
    if !exhausted.is_empty() {
        let message = format!(
            "at least {} % of these quotas are used: {}; new volumes will be refused: {help}",
            seen.health.quota_critical,
            listed(&exhausted)
        );
        return verdict("False", EXHAUSTED, message);
    }
    if !near.is_empty() {
        let message = format!(
            "at least {} % of these quotas are used: {}; {help} in time",
            seen.health.quota_warn,
            listed(&near)
        );
        return verdict("False", NEAR_LIMIT, message);
    }
    verdict(
        "True",
        "AsExpected",
        "no quota is near its limit, as far as the clouds tell",
    )
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

/// The clouds in the status. Nothing in it moves while the cloud does not change.
pub(super) fn statuses(previous: Option<&CinderCSIDriverStatus>, seen: &Seen, now: Timestamp) -> Vec<CloudStatus> {
    let status = |cloud: &CloudView| {
        let now = status_of(cloud, &seen.health, now);
        match before(previous, cloud).filter(|_| cloud.is_unseen()) {
            None => now,
            Some(old) => CloudStatus {
                services: old.services.clone(),
                compute_zones: old.compute_zones.clone(),
                volume_zones: old.volume_zones.clone(),
                quota: old.quota.clone(),
                credential_expires_at: old
                    .credential_expires_at
                    .clone()
                    .filter(|_| old.secret_hash == now.secret_hash),
                ..now
            },
        }
    };
    seen.clouds.iter().map(status).collect()
}

/// What the status said of a cloud.
fn before<'a>(previous: Option<&'a CinderCSIDriverStatus>, cloud: &CloudView) -> Option<&'a CloudStatus> {
    previous?.clouds.iter().find(|old| old.name == cloud.name)
}

fn status_of(cloud: &CloudView, health: &HealthSettings, now: Timestamp) -> CloudStatus {
    let CloudFacts {
        compute_zones,
        volume_zones,
        quota,
        ..
    } = &cloud.state.facts;
    let time = |at: Timestamp| Time(super::whole_seconds(at));
    let token = cloud.state.token_ends.filter(|_| cloud.auth_method == Some("Token"));
    let credential = cloud.state.credential.as_ref().and_then(|(_, end)| *end);
    let few = |names: &[String]| names.iter().take(LISTED).cloned().collect();
    CloudStatus {
        name: cloud.name.clone(),
        authenticated: cloud.authenticated,
        auth_method: cloud.auth_method.map(str::to_owned),
        secret_hash: cloud.shown_hash(),
        loaded: cloud.loaded,
        credential_expires_at: credential.or(token).map(time),
        ca_expires_at: certificates::end_of_bundle(&cloud.ca_ends, now).map(time),
        client_cert_expires_at: cloud.client_cert_ends.iter().min().copied().map(time),
        services: services(&cloud.state),
        compute_zones: few(compute_zones),
        volume_zones: few(volume_zones),
        quota: quota
            .iter()
            .take(LISTED)
            .map(|quota| QuotaStatus {
                resource: quota.resource.clone(),
                volume_type: quota.volume_type.clone(),
                limit: i64::try_from(quota.limit).unwrap_or(i64::MAX),
                state: scarcity(quota, health).to_owned(),
            })
            .collect(),
    }
}

fn services(state: &CloudState) -> Vec<CloudServiceStatus> {
    if !state.is_known {
        return Vec::new();
    }
    let broken = |name: &str| state.troubles.iter().any(|one| one.service == name);
    // Without a login nobody else is asked.
    let is_locked = broken("identity");
    let names: BTreeSet<&str> = state
        .facts
        .services
        .keys()
        .map(String::as_str)
        .chain(state.troubles.iter().map(|one| one.service))
        .collect();
    names
        .into_iter()
        .map(|name| CloudServiceStatus {
            name: name.to_owned(),
            reachable: !is_locked && !broken(name),
            microversion: state
                .facts
                .services
                .get(name)
                .and_then(|fact| fact.microversion.clone()),
        })
        .collect()
}

/// The event for a condition about clouds or volumes that changed.
pub(super) fn event(type_: ConditionType, status: &str, reason: &str) -> Option<(Severity, &'static str)> {
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
pub(super) fn rotations(
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

#[cfg(test)]
mod tests;
