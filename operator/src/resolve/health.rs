//! How clouds and volumes are looked after, with every time decided.

use std::time::Duration;

use cinder_csi_crds::{Health, QuotaHealth, StuckHealth};

const SECOND: u64 = 1;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// How clouds and volumes are looked after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSettings {
    /// How often good credentials are tried again; as the operator's flag says when `None`.
    pub credential_check_interval: Option<Duration>,
    /// How long before its end a credential is called Expiring.
    pub expiry_warning: Duration,
    /// How long before its end it is no longer called valid.
    pub expiry_critical: Duration,
    /// How often a cloud is looked at.
    pub quota_interval: Duration,
    /// Per cent of a quota from which it is near its limit.
    pub quota_warn: u64,
    /// Per cent from which it is exhausted.
    pub quota_critical: u64,
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
    let time = |text: &str, usual: &str| parse(text).or_else(|| parse(usual)).unwrap_or_default();
    let percent = |number: i32| u64::try_from(number).unwrap_or_default();
    let QuotaHealth {
        interval,
        warn,
        critical,
    } = &health.quota;
    HealthSettings {
        credential_check_interval: health.credential_check_interval.as_deref().and_then(parse),
        expiry_warning: time(&health.expiry_warning, &usual.expiry_warning),
        expiry_critical: time(&health.expiry_critical, &usual.expiry_critical),
        quota_interval: time(interval, &usual.quota.interval),
        quota_warn: percent(*warn),
        quota_critical: percent(*critical),
        stuck: stuck(&health.stuck),
    }
}

fn stuck(health: &StuckHealth) -> StuckSettings {
    let usual = StuckHealth::default();
    let time = |text: &str, usual: &str| parse(text).or_else(|| parse(usual)).unwrap_or_default();
    StuckSettings {
        attach: time(&health.attach, &usual.attach),
        detach: time(&health.detach, &usual.detach),
        provision: time(&health.provision, &usual.provision),
        delete: time(&health.delete, &usual.delete),
        resize: time(&health.resize, &usual.resize),
        max_reported: usize::try_from(health.max_reported).unwrap_or(1),
    }
}

/// A time as in 90s, 15m, 1h30m or 14d.
pub fn parse(text: &str) -> Option<Duration> {
    let (mut seconds, mut rest) = (0_u64, text);
    while !rest.is_empty() {
        let end = rest.find(|character: char| !character.is_ascii_digit())?;
        let number: u64 = rest.get(..end)?.parse().ok()?;
        let unit = match rest.as_bytes().get(end)? {
            b's' => SECOND,
            b'm' => MINUTE,
            b'h' => HOUR,
            b'd' => DAY,
            _ => return None,
        };
        seconds = seconds.checked_add(number.checked_mul(unit)?)?;
        rest = rest.get(end + 1..)?;
    }
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("90s", Some(90))]
    #[case("1h30m", Some(5_400))]
    #[case("14d", Some(1_209_600))]
    #[case("", None)]
    #[case("5", None)]
    #[case("m", None)]
    #[case("99999999999999999999s", None)]
    fn times_are_read_as_the_schema_lets_them_in(#[case] text: &str, #[case] seconds: Option<u64>) {
        assert_eq!(parse(text), seconds.map(Duration::from_secs));
    }

    #[test]
    fn the_defaults_are_those_that_the_schema_promises() {
        let settings = HealthSettings::default();
        assert_eq!(settings.expiry_warning, Duration::from_hours(14 * 24));
        assert_eq!(settings.stuck.attach, Duration::from_mins(5));
        assert_eq!((settings.quota_warn, settings.quota_critical), (80, 95));
    }
}
