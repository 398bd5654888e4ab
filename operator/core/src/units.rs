// SPDX-License-Identifier: Apache-2.0
//! Parses durations and quantities in the notation of Kubernetes.

use std::time::Duration;

/// Parses a duration such as 90s, 15m, 1h30m or 14d. It must be positive. A day has 24 hours.
pub fn duration(text: &str) -> Option<Duration> {
    let (mut time, mut rest) = (Duration::ZERO, text);
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let (unit, after) = after.split_at(after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len()));
        let milliseconds: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        let part = number.parse::<u64>().ok()?.checked_mul(milliseconds)?;
        time = time.checked_add(Duration::from_millis(part))?;
        rest = after;
    }
    (!time.is_zero()).then_some(time)
}

/// Parses a quantity in thousandths of its unit. `None` for an invalid or finer quantity.
pub fn thousandths(text: &str) -> Option<i128> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.'));
    let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
    let scale = match suffix {
        "m" => 1,
        "" => 1_000,
        "k" => 1_000_000,
        "M" => 1_000_000_000,
        "G" => 1_000_000_000_000,
        "T" => 1_000_000_000_000_000,
        "P" => 1_000_000_000_000_000_000,
        "E" => 1_000_000_000_000_000_000_000,
        "Ki" => 1_000 << 10,
        "Mi" => 1_000 << 20,
        "Gi" => 1_000 << 30,
        "Ti" => 1_000 << 40,
        "Pi" => 1_000 << 50,
        "Ei" => 1_000 << 60,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let divisor = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let scaled = digits.checked_mul(scale)?;
    (scaled % divisor == 0).then_some(scaled / divisor)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("90s", Some(90_000))]
    #[case("1h30m", Some(5_400_000))]
    #[case("14d", Some(1_209_600_000))]
    #[case("30m1h", Some(5_400_000))]
    #[case("250ms", Some(250))]
    #[case("", None)]
    #[case("0s", None)]
    #[case("5", None)]
    #[case("m", None)]
    #[case("1h 30m", None)]
    #[case("-5s", None)]
    #[case("99999999999999999999s", None)]
    fn durations_parse_as_in_schema(#[case] text: &str, #[case] milliseconds: Option<u64>) {
        assert_eq!(duration(text), milliseconds.map(Duration::from_millis));
    }

    #[rstest]
    #[case("100m", Some(100))]
    #[case("0.1", Some(100))]
    #[case("1.5Gi", Some(1_610_612_736_000))]
    #[case("8E", Some(8_000_000_000_000_000_000_000))]
    #[case("1u", None)]
    #[case("0.0001", None)]
    #[case("Gi", None)]
    #[case("", None)]
    fn quantities_parse_with_every_unit(#[case] text: &str, #[case] expected: Option<i128>) {
        assert_eq!(thousandths(text), expected);
    }
}
