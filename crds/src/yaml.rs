// SPDX-License-Identifier: Apache-2.0
//! Writes Kubernetes objects as YAML that all parsers read alike.
//!
//! `kubectl` parses YAML 1.1, where `yes`, `off` and `12:30` are not strings. Writers of YAML 1.2 emit them
//! unquoted. Therefore only unambiguous strings are plain. All others are quoted as in JSON, which is valid
//! in both versions.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

/// Serializes one object as a YAML document without a `---` line, with keys in alphabetical order. It
/// converts through JSON, so that names and enums match the Kubernetes API.
pub fn to_yaml(object: &impl Serialize) -> Result<String, serde_json::Error> {
    let mut out = String::new();
    node(&mut out, &serde_json::to_value(object)?, 0, ValuePosition::Root);
    Ok(out)
}

/// Position of a value in the document. It determines whether the value starts on the current line.
#[derive(Clone, Copy, PartialEq)]
enum ValuePosition {
    Root,
    AfterKey,
    AfterDash,
}

fn node(out: &mut String, value: &Value, depth: usize, place: ValuePosition) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            if place == ValuePosition::AfterKey {
                out.push('\n');
            }
            for (index, (key, value)) in map.iter().enumerate() {
                if index > 0 || place != ValuePosition::AfterDash {
                    indent(out, depth);
                }
                scalar(out, key);
                out.push(':');
                node(out, value, depth + 1, ValuePosition::AfterKey);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            if place == ValuePosition::AfterKey {
                out.push('\n');
            }
            // kubectl indents a list like its key.
            let depth = if place == ValuePosition::AfterKey {
                depth - 1
            } else {
                depth
            };
            for (index, item) in items.iter().enumerate() {
                if index > 0 || place != ValuePosition::AfterDash {
                    indent(out, depth);
                }
                out.push('-');
                out.push(' ');
                node(out, item, depth + 1, ValuePosition::AfterDash);
            }
        }
        leaf => {
            if place == ValuePosition::AfterKey {
                out.push(' ');
            }
            match leaf {
                Value::String(text) => scalar(out, text),
                other => {
                    let _ = write!(out, "{other}");
                }
            }
            out.push('\n');
        }
    }
}

fn indent(out: &mut String, depth: usize) {
    for _ in 0..depth {
        out.push_str("  ");
    }
}

fn scalar(out: &mut String, text: &str) {
    if is_plain(text) {
        out.push_str(text);
    } else {
        // Serializing a string cannot fail. `Value` displays itself as JSON.
        let _ = write!(out, "{}", Value::from(text));
    }
}

/// Whether all parsers read the text as the same string without quotes.
fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 12] = [
        "y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "infinity",
    ];
    let starts_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    starts_plain
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || " ./_-,()".contains(c))
        && !text.ends_with(' ')
        && !WORDS.contains(&text.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::to_yaml;

    #[rstest]
    #[case::boolean_of_yaml_1_1("yes")]
    #[case::boolean_in_capitals("NO")]
    #[case::switch("off")]
    #[case::letter("y")]
    #[case::sexagesimal("12:30")]
    #[case::number("1.5")]
    #[case::octal("0644")]
    #[case::exponent("1e3")]
    #[case::null("null")]
    #[case::tilde("~")]
    #[case::empty("")]
    #[case::comment("a #b")]
    #[case::mapping("a: b")]
    #[case::anchor("&a")]
    #[case::lines("a\nb")]
    #[case::space_at_the_end("a ")]
    #[case::percentage("10%")]
    #[case::version("v1.2")]
    #[case::date("2026-01-01")]
    fn ambiguous_strings_survive_round_trip(#[case] text: &str) {
        let object = json!({ "key": text, text: [text] });

        let yaml = to_yaml(&object).unwrap();

        assert_eq!(serde_yaml::from_str::<Value>(&yaml).unwrap(), object);
    }

    #[rstest]
    #[case("yes")]
    #[case("Off")]
    #[case("n")]
    #[case("12:30")]
    #[case("10%")]
    fn strings_ambiguous_in_yaml_1_1_are_quoted(#[case] text: &str) {
        assert_eq!(to_yaml(&json!({ "key": text })).unwrap(), format!("key: \"{text}\"\n"));
    }

    #[test]
    fn nested_lists_and_maps_survive_round_trip() {
        let object = json!({
            "list": [{ "a": 1, "b": { "c": [] } }, ["x", ["y", {}]], null, true, -1.5],
            "empty": {},
            "map": { "deep": { "deeper": [{ "end": "here, (at last)" }] } },
        });

        let yaml = to_yaml(&object).unwrap();

        assert_eq!(serde_yaml::from_str::<Value>(&yaml).unwrap(), object, "{yaml}");
    }
}
