// SPDX-License-Identifier: Apache-2.0
//! Parses values of command lines and of `cloud.conf` as Go programs do.

use std::collections::BTreeMap;

/// Maximum number of values in one list.
const LONGEST_LIST: usize = 256;

/// Nanoseconds of the units of `time.ParseDuration`.
const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a boolean as `strconv.ParseBool`.
pub(super) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Parses a boolean of a `cloud.conf`. A key without `=` is true.
pub(super) fn parse_conf_bool(value: Option<&str>) -> Option<bool> {
    match value.map(str::to_ascii_lowercase).as_deref() {
        None | Some("true" | "yes" | "on" | "1") => Some(true),
        Some("false" | "no" | "off" | "0") => Some(false),
        Some(_) => None,
    }
}

/// Parses an integer of a `cloud.conf`: decimal or hexadecimal, with a sign.
pub(super) fn parse_conf_integer(text: &str) -> Option<i64> {
    let text = text.trim();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let magnitude = match hexadecimal {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    Some(sign * i64::from(magnitude.ok()?))
}

/// Parses a duration as `time.ParseDuration`, in nanoseconds.
pub(super) fn parse_duration(text: &str) -> Option<i128> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total: i128 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|character: char| !character.is_ascii_digit() && character != '.')?;
        let (number, tail) = rest.split_at(end);
        let end = tail
            .find(|character: char| character.is_ascii_digit() || character == '.')
            .unwrap_or(tail.len());
        let (unit, next) = tail.split_at(end);
        let unit = UNITS.iter().find(|(name, _)| *name == unit)?.1;
        total = total.checked_add(scale(number, unit)?)?;
        rest = next;
    }
    // Values that overflow are invalid in Go.
    (total <= i128::from(i64::MAX)).then_some(sign * total)
}

/// Multiplies a decimal number by a unit.
fn scale(number: &str, unit: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_number = |text: &str| text.len() <= 18 && text.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let value = |digits: &str| {
        if digits.is_empty() {
            Some(0)
        } else {
            digits.parse::<i128>().ok()
        }
    };
    let denominator = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let fraction = value(fraction)?.checked_mul(unit)? / denominator;
    value(whole)?.checked_mul(unit)?.checked_add(fraction)
}

/// Parses the value of a `StringSlice` of pflag: one record of CSV.
pub(super) fn parse_slice(text: &str) -> Option<Vec<String>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let mut fields = Vec::new();
    let mut rest = text;
    loop {
        if fields.len() == LONGEST_LIST {
            return None;
        }
        let (field, next) = match rest.strip_prefix('"') {
            Some(quoted) => split_quoted(quoted)?,
            None => match rest.split_once(',') {
                Some((field, next)) => (field.to_owned(), Some(next)),
                None => (rest.to_owned(), None),
            },
        };
        // A quote inside an unquoted field is an error in Go.
        if !rest.starts_with('"') && field.contains('"') {
            return None;
        }
        fields.push(field);
        match next {
            Some(next) => rest = next,
            None => return Some(fields),
        }
    }
}

/// Returns the field after an opening quote, and the text after its comma.
fn split_quoted(text: &str) -> Option<(String, Option<&str>)> {
    let mut field = String::new();
    let mut rest = text;
    loop {
        let (part, next) = rest.split_once('"')?;
        field.push_str(part);
        if let Some(next) = next.strip_prefix('"') {
            field.push('"');
            rest = next;
        } else if let Some(next) = next.strip_prefix(',') {
            return Some((field, Some(next)));
        } else {
            return next.is_empty().then_some((field, None));
        }
    }
}

/// Parses the value of a `StringToString` of pflag.
pub(super) fn parse_pairs(text: &str) -> Option<BTreeMap<String, String>> {
    let pairs = match text.matches('=').count() {
        0 => return None,
        1 => vec![text.trim_matches('"').to_owned()],
        _ => parse_slice(text)?,
    };
    let pairs = pairs.iter().map(|pair| {
        let (key, value) = pair.split_once('=')?;
        Some((key.to_owned(), value.to_owned()))
    });
    pairs.collect()
}

/// Parses feature gates: `A=true,B=false`.
pub(super) fn parse_gates(text: &str) -> Option<BTreeMap<String, bool>> {
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty()).map(|pair| {
        let (gate, value) = pair.split_once('=')?;
        Some((gate.trim().to_owned(), parse_bool(value.trim())?))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("180s", "3m")]
    #[case("1h0m", "60m")]
    #[case("1.5m", "90s")]
    #[case("0", "0s")]
    #[case("+250ms", "0.25s")]
    #[case("-1s", "-1000ms")]
    #[case("1µs", "1us")]
    fn durations_are_equal_in_all_spellings(#[case] left: &str, #[case] right: &str) {
        assert!(parse_duration(left).is_some());
        assert_eq!(parse_duration(left), parse_duration(right));
    }

    #[rstest]
    #[case("")]
    #[case("3")]
    #[case(".s")]
    #[case("3x")]
    #[case("s")]
    #[case("3m ")]
    #[case("1.2.3s")]
    #[case("99999999999999999999s")]
    #[case("300000000h")]
    fn rejects_what_go_rejects_as_duration(#[case] text: &str) {
        assert_eq!(parse_duration(text), None);
    }

    #[rstest]
    #[case("a,b", &["a", "b"])]
    #[case("\"region-one\"", &["region-one"])]
    #[case("\"a,b\",c", &["a,b", "c"])]
    #[case("\"a\"\"b\"", &["a\"b"])]
    #[case("a,", &["a", ""])]
    #[case("", &[])]
    fn slices_are_read_as_csv(#[case] text: &str, #[case] expected: &[&str]) {
        assert_eq!(parse_slice(text).expect("a slice"), expected);
    }

    #[rstest]
    #[case("\"a")]
    #[case("a\"b")]
    #[case("\"a\"b")]
    fn rejects_broken_csv(#[case] text: &str) {
        assert_eq!(parse_slice(text), None);
    }

    #[rstest]
    #[case("\"a=b\"", &[("a", "b")])]
    #[case("a=b,c", &[("a", "b,c")])]
    #[case("a=b,c=d", &[("a", "b"), ("c", "d")])]
    #[case("a=\"b\"", &[("a", "\"b")])]
    fn pairs_are_read_as_pflag_does(#[case] text: &str, #[case] expected: &[(&str, &str)]) {
        let expected = expected
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        assert_eq!(parse_pairs(text), Some(expected.collect()));
    }

    #[rstest]
    #[case("16", Some(16))]
    #[case("0x10", Some(16))]
    #[case("-1", Some(-1))]
    #[case("many", None)]
    fn integers_are_read_as_gcfg_does(#[case] text: &str, #[case] expected: Option<i64>) {
        assert_eq!(parse_conf_integer(text), expected);
    }

    #[test]
    fn feature_gates_have_no_order() {
        assert_eq!(parse_gates("A=true, B=0"), parse_gates("B=false,A=1"));
        assert_eq!(parse_gates("A=maybe"), None);
    }
}
