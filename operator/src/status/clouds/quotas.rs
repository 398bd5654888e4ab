//! How scarce quotas are.

use crate::{
    clouds::QuotaFact,
    resolve::health::HealthSettings,
    status::{Seen, Verdict, verdict},
    words::listed,
};

/// The state of a quota, as the status writes it.
const SUFFICIENT: &str = "Sufficient";
const NEAR_LIMIT: &str = "NearLimit";
pub(super) const EXHAUSTED: &str = "Exhausted";

/// How scarce a quota is, by the thresholds of the spec.
pub(super) fn scarcity(quota: &QuotaFact, health: &HealthSettings) -> &'static str {
    let reaches = |percent: u64| quota.used.saturating_mul(100) >= quota.limit.saturating_mul(percent);
    if quota.used >= quota.limit || reaches(health.quota_critical) {
        EXHAUSTED
    } else if reaches(health.quota_warn) {
        NEAR_LIMIT
    } else {
        SUFFICIENT
    }
}

pub(in crate::status) fn quota_sufficient(seen: &Seen) -> Verdict {
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
