// SPDX-License-Identifier: Apache-2.0
//! Timestamps of OpenStack.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Parses a timestamp of Cinder or Keystone. One without a time zone is in UTC.
pub fn parse_timestamp(text: &str) -> Option<Timestamp> {
    if let Ok(timestamp) = text.parse() {
        return Some(timestamp);
    }
    let time: DateTime = text.parse().ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("2026-01-01T12:00:00.000000", Some("2026-01-01T12:00:00Z"))]
    #[case("2026-01-01T12:00:00Z", Some("2026-01-01T12:00:00Z"))]
    #[case("2026-01-01T12:00:00+00:00", Some("2026-01-01T12:00:00Z"))]
    #[case("", None)]
    #[case("yesterday", None)]
    fn timestamp_without_zone_is_utc(#[case] text: &str, #[case] expected: Option<&str>) {
        let expected = expected.map(|expected| expected.parse().expect("a timestamp"));
        assert_eq!(parse_timestamp(text), expected);
    }
}
