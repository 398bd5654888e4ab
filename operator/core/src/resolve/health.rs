// SPDX-License-Identifier: Apache-2.0
//! Monitoring settings of clouds and volumes, with all durations resolved.

use std::time::Duration;

use cinder_csi_crds::{Health, StuckHealth};

use crate::units::duration;

/// Monitoring settings of clouds and volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSettings {
    /// Time between logins with valid credentials. `None` applies the operator's flag.
    pub credential_check_interval: Option<Duration>,
    /// Time before an expiry from which a credential counts as Expiring.
    pub expiry_warning: Duration,
    /// Time before an expiry from which a credential no longer counts as valid.
    pub expiry_critical: Duration,
    /// Limits of operations on volumes.
    pub stuck: StuckSettings,
}

/// Time limits of operations on volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StuckSettings {
    pub attach: Duration,
    pub detach: Duration,
    /// Limit to create a volume.
    pub provision: Duration,
    pub delete: Duration,
    /// Limit to expand a volume.
    pub resize: Duration,
    /// Maximum number of reported operations.
    pub max_reported: usize,
}

impl Default for HealthSettings {
    fn default() -> Self {
        settings(&Health::default())
    }
}

impl Default for StuckSettings {
    fn default() -> Self {
        stuck(&StuckHealth::default())
    }
}

/// Parses `spec.health`. Values that the schema rejects count as unset.
pub fn settings(health: &Health) -> HealthSettings {
    let usual = Health::default();
    HealthSettings {
        credential_check_interval: health.credential_check_interval.as_deref().and_then(duration),
        expiry_warning: time(&health.expiry_warning, &usual.expiry_warning),
        expiry_critical: time(&health.expiry_critical, &usual.expiry_critical),
        stuck: stuck(&health.stuck),
    }
}

/// Parses a duration, or returns the default.
fn time(text: &str, usual: &str) -> Duration {
    duration(text).or_else(|| duration(usual)).unwrap_or_default()
}

fn stuck(health: &StuckHealth) -> StuckSettings {
    let usual = StuckHealth::default();
    StuckSettings {
        attach: time(&health.attach, &usual.attach),
        detach: time(&health.detach, &usual.detach),
        provision: time(&health.provision, &usual.provision),
        delete: time(&health.delete, &usual.delete),
        resize: time(&health.resize, &usual.resize),
        max_reported: usize::try_from(health.max_reported).unwrap_or(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_defaults_match_the_schema() {
        let settings = HealthSettings::default();
        assert_eq!(settings.expiry_warning, Duration::from_hours(14 * 24));
        assert_eq!(settings.stuck.attach, Duration::from_mins(5));
    }
}
