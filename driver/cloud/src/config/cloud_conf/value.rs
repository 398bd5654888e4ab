// SPDX-License-Identifier: Apache-2.0
//! Values as gcfg reads them.

use std::time::Duration;

use super::super::ConfigError;
use super::super::gcfg::Entry;

pub(super) fn bad(entry: &Entry, reason: &str) -> ConfigError {
    ConfigError::BadValue {
        place: entry.place.clone(),
        key: format!("[{}] {}", entry.section, entry.key),
        reason: reason.to_owned(),
    }
}

/// Reads a text. As in cinder-csi-plugin, an empty text counts as unset, and a name without `=` is rejected.
pub(super) fn text(entry: &Entry) -> Result<Option<String>, ConfigError> {
    match &entry.value {
        None => Err(bad(entry, "has no value; write KEY = VALUE")),
        Some(value) => Ok(Some(value.clone()).filter(|value| !value.is_empty())),
    }
}

/// Reads a boolean; a name without `=` is true.
pub(super) fn flag(entry: &Entry) -> Result<bool, ConfigError> {
    match entry.value.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None | Some("true" | "yes" | "on" | "1") => Ok(true),
        Some("false" | "no" | "off" | "0") => Ok(false),
        Some(_) => Err(bad(entry, "must be true or false")),
    }
}

/// Reads a signed number of 64 bits, decimal or with `0x`.
pub(super) fn integer(entry: &Entry) -> Result<i64, ConfigError> {
    let value = entry.value.as_deref().unwrap_or_default().trim();
    let hexadecimal = [("0x", 1), ("-0x", -1)]
        .into_iter()
        .find_map(|(prefix, sign)| value.strip_prefix(prefix).map(|digits| (digits, sign)));
    let number = match hexadecimal {
        Some((digits, _)) if digits.starts_with(['+', '-']) => None,
        Some((digits, sign)) => i64::from_str_radix(digits, 16).ok().map(|number| number * sign),
        None => value.parse().ok(),
    };
    number.ok_or_else(|| bad(entry, "must be a number"))
}

/// Reads `LEFT=RIGHT` and trims the blanks around both parts.
pub(super) fn pair(entry: &Entry, form: &str) -> Result<(String, String), ConfigError> {
    let pair = entry.value.as_deref().and_then(|value| value.split_once('='));
    let trimmed = |text: &str| text.trim_matches([' ', '\t']).to_owned();
    pair.map(|(left, right)| (trimmed(left), trimmed(right)))
        .filter(|(left, right)| !left.is_empty() && !right.is_empty())
        .ok_or_else(|| bad(entry, form))
}

/// Reads a duration as Go writes it: `1m30s`, `500ms`, `1.5s`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let (number, tail) = rest.split_at(unit_at);
        let number: f64 = number.parse().ok()?;
        let unit_end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        sum = sum.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
        rest = tail;
    }
    Some(sum)
}
