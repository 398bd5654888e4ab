// SPDX-License-Identifier: Apache-2.0
//! How scarce quotas are.

use crate::{
    clouds::QuotaFact,
    decide::Facts,
    reasons::QuotaSufficient,
    resolve::health::HealthSettings,
    status::{Verdict, verdict},
    text::join_truncated,
};

/// How scarce a quota is, by the thresholds of the spec.
pub(super) fn scarcity(quota: &QuotaFact, health: &HealthSettings) -> QuotaSufficient {
    let reaches = |percent: u64| quota.used.saturating_mul(100) >= quota.limit.saturating_mul(percent);
    if quota.used >= quota.limit || reaches(health.quota_critical) {
        QuotaSufficient::Exhausted
    } else if reaches(health.quota_warn) {
        QuotaSufficient::NearLimit
    } else {
        QuotaSufficient::AsExpected
    }
}

pub(in crate::status) fn quota_sufficient(facts: &Facts) -> Verdict<QuotaSufficient> {
    let scarce = |wanted: QuotaSufficient| -> Vec<String> {
        let all = facts.clouds.iter().flat_map(|cloud| {
            let quotas = cloud.state.facts.quota.iter();
            quotas.map(move |quota| (cloud, quota))
        });
        all.filter(|(_, quota)| scarcity(quota, &facts.health) == wanted)
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
    let (exhausted, near) = (scarce(QuotaSufficient::Exhausted), scarce(QuotaSufficient::NearLimit));
    let help = "raise the project's quota, or delete what is not needed";
    if !exhausted.is_empty() {
        let message = format!(
            "at least {} % of these quotas are used: {}; new volumes will be refused: {help}",
            facts.health.quota_critical,
            join_truncated(&exhausted)
        );
        return verdict(QuotaSufficient::Exhausted, message);
    }
    if !near.is_empty() {
        let message = format!(
            "at least {} % of these quotas are used: {}; {help} in time",
            facts.health.quota_warn,
            join_truncated(&near)
        );
        return verdict(QuotaSufficient::NearLimit, message);
    }
    verdict(
        QuotaSufficient::AsExpected,
        "no quota is near its limit, as far as the clouds report",
    )
}
