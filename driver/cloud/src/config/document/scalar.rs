// SPDX-License-Identifier: Apache-2.0
//! Scalars as YAML 1.1 resolves them, which PyYAML implements.

/// Python writes smaller numbers with an exponent. Like Rust, it also does so from 10^16 on.
const SMALLEST_WITHOUT_EXPONENT: f64 = 1e-4;

/// A scalar. A number is text if Python's `str` writes it like the document.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::config) enum YamlScalar {
    Null,
    Bool(bool),
    Text(String),
    /// A number or a time that Python writes differently from the document.
    Inexact,
}

impl YamlScalar {
    /// Resolves a scalar without quotes.
    pub(super) fn of_plain(text: &str) -> Self {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return Self::Null,
            "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "true" | "True" | "TRUE" => return Self::Bool(true),
            "no" | "No" | "NO" | "off" | "Off" | "OFF" | "false" | "False" | "FALSE" => return Self::Bool(false),
            _ => {}
        }
        let is_other = if is_integer(text) {
            !is_written_as_integer(text)
        } else if is_float(text) {
            !is_written_as_float(text)
        } else {
            is_time(text)
        };
        if is_other {
            Self::Inexact
        } else {
            Self::Text(text.to_owned())
        }
    }
}

/// Whether a scalar has no quotes. The parser copies a scalar with escapes or several lines; others are a part of the document.
pub(super) fn is_plain(document: &str, scalar: &str) -> bool {
    let at = scalar.as_ptr().addr().checked_sub(document.as_ptr().addr());
    let Some(at) = at.filter(|at| *at <= document.len()) else {
        return scalar.is_empty();
    };
    // The end of a text with escapes may be a part of the document, too.
    let byte = |at: Option<usize>| at.and_then(|at| document.as_bytes().get(at));
    let begins = byte(at.checked_sub(1)).is_none_or(|byte| byte.is_ascii_whitespace() || b"[{,:".contains(byte));
    let is_quoted = byte(at.checked_add(scalar.len())).is_some_and(|byte| matches!(byte, b'"' | b'\''));
    begins && !is_quoted
}

fn unsigned(text: &str) -> &str {
    text.strip_prefix(['-', '+']).unwrap_or(text)
}

fn all(text: &str, is_allowed: impl Fn(u8) -> bool) -> bool {
    !text.is_empty() && text.bytes().all(is_allowed)
}

fn is_digits(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit()) && all(text, |byte| byte.is_ascii_digit() || byte == b'_')
}

/// A number with the base 60: `12:30`. Each further part has one or two digits up to 59.
fn is_sexagesimal(text: &str) -> bool {
    let mut parts = text.split(':');
    let first = parts.next().unwrap_or_default();
    let mut rest = parts.peekable();
    let is_part = |part: &str| {
        all(part, |byte| byte.is_ascii_digit()) && part.parse::<u8>().is_ok_and(|n| n < 60) && part.len() <= 2
    };
    is_digits(first) && rest.peek().is_some() && rest.all(is_part)
}

fn is_integer(text: &str) -> bool {
    let number = unsigned(text);
    if let Some(digits) = number.strip_prefix("0b") {
        return all(digits, |byte| matches!(byte, b'0' | b'1' | b'_'));
    }
    if let Some(digits) = number.strip_prefix("0x") {
        return all(digits, |byte| byte.is_ascii_hexdigit() || byte == b'_');
    }
    if let Some(digits) = number.strip_prefix('0').filter(|digits| !digits.is_empty()) {
        return all(digits, |byte| matches!(byte, b'0'..=b'7' | b'_'));
    }
    is_digits(number) || is_sexagesimal(number)
}

fn is_float(text: &str) -> bool {
    let number = unsigned(text);
    if matches!(number, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    let Some((whole, rest)) = number.split_once('.') else {
        return false;
    };
    let (fraction, exponent) = match rest.find(['e', 'E']) {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    let is_exponent = |text: &str| text.starts_with(['-', '+']) && all(&text[1..], |byte| byte.is_ascii_digit());
    let is_fraction = fraction.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let is_whole = match whole {
        "" => text.starts_with('.') && fraction.starts_with(|c: char| c.is_ascii_digit()),
        whole => is_digits(whole) || (exponent.is_none() && is_sexagesimal(whole)),
    };
    is_whole && is_fraction && exponent.is_none_or(is_exponent)
}

/// Whether Python writes the integer as it is in the document.
fn is_written_as_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    text == "0" || (digits.starts_with(|c: char| ('1'..='9').contains(&c)) && all(digits, |byte| byte.is_ascii_digit()))
}

/// Whether Python writes the number with a fraction as it is in the document.
fn is_written_as_float(text: &str) -> bool {
    let Ok(value) = text.parse::<f64>() else { return false };
    let is_small = value != 0.0 && value.abs() < SMALLEST_WITHOUT_EXPONENT;
    !is_small && !text.contains(['e', 'E']) && format!("{value:?}") == text
}

/// A date with a time of the day. A date alone keeps its text.
fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    let starts_with_year = bytes.len() > 8 && bytes[..4].iter().all(u8::is_ascii_digit) && bytes[4] == b'-';
    let is_of_time = |byte: &u8| byte.is_ascii_digit() || b"-:.+TtZ \t".contains(byte);
    starts_with_year && text.matches(':').count() >= 2 && bytes.iter().all(is_of_time)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain("secret", true)]
    #[case::digits("12345", true)]
    #[case::zero("0", true)]
    #[case::negative("-5", true)]
    #[case::negative_zero("-0", false)]
    #[case::decimal("12.5", true)]
    #[case::whole("1.0", true)]
    #[case::trailing_zero("1.50", false)]
    #[case::no_digit_behind("1.", false)]
    #[case::no_digit_before(".5", false)]
    #[case::long_fraction("0.1234567890123456789", false)]
    #[case::small("0.00001", false)]
    #[case::large("12345678901234567.0", false)]
    #[case::python_exponent("1.5e+3", false)]
    #[case::text_with_exponent("1.5e3", true)]
    #[case::underscores("1_000", false)]
    #[case::octal("010", false)]
    #[case::not_octal("089", true)]
    #[case::binary("0b11", false)]
    #[case::sexagesimal("12:30", false)]
    #[case::no_sexagesimal("12:75", true)]
    #[case::sexagesimal_float("12:30.5", false)]
    #[case::date("2024-01-02", true)]
    #[case::time("2024-01-02 10:11:12", false)]
    #[case::stamp("2024-01-02T10:11:12Z", false)]
    #[case::nan(".nan", false)]
    #[case::version("1.2.3", true)]
    #[case::address("10.0.0.1", true)]
    #[case::id("0d3c2d6e", true)]
    fn scalars_match_python_texts(#[case] text: &str, #[case] is_kept: bool) {
        assert_eq!(YamlScalar::of_plain(text) == YamlScalar::Text(text.to_owned()), is_kept);
    }
}
