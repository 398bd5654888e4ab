// SPDX-License-Identifier: Apache-2.0
//! How clouds and volumes are looked after, with every time decided.

use std::time::Duration;

use cinder_csi_crds::{Health, StuckHealth};

use crate::units::duration;

/// How clouds and volumes are looked after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSettings {
    /// How often good credentials are tried again; as the operator's flag says when `None`.
    pub credential_check_interval: Option<Duration>,
    /// How long before its end a credential is called Expiring.
    pub expiry_warning: Duration,
    /// How long before its end it is no longer called valid.
    pub expiry_critical: Duration,
    /// When operations on volumes are stuck.
    pub stuck: StuckSettings,
}

/// How long operations on volumes may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StuckSettings {
    /// To attach.
    pub attach: Duration,
    /// To detach.
    pub detach: Duration,
    /// To make.
    pub provision: Duration,
    /// To delete.
    pub delete: Duration,
    /// To enlarge.
    pub resize: Duration,
    /// How many are listed.
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

/// Reads `spec.health`. What the schema would not have let in counts as not given.
pub fn settings(health: &Health) -> HealthSettings {
    let usual = Health::default();
    HealthSettings {
        credential_check_interval: health.credential_check_interval.as_deref().and_then(duration),
        expiry_warning: time(&health.expiry_warning, &usual.expiry_warning),
        expiry_critical: time(&health.expiry_critical, &usual.expiry_critical),
        stuck: stuck(&health.stuck),
    }
}

/// The time that is given, or else the usual one.
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
    fn the_defaults_are_those_that_the_schema_promises() {
        let settings = HealthSettings::default();
        assert_eq!(settings.expiry_warning, Duration::from_hours(14 * 24));
        assert_eq!(settings.stuck.attach, Duration::from_mins(5));
    }
}
