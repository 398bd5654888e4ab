// SPDX-License-Identifier: Apache-2.0
//! Shared parts of messages and names.

use csi_sources::UntrustedText;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Maximum number of names in a message.
const NAMED: usize = 10;

/// Returns the first names, and the number of omitted ones.
pub fn join_truncated(names: &[String]) -> String {
    let shown = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(NAMED) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}

/// Escapes every text in a value and truncates it to `longest` characters.
pub fn make_printable<T: Serialize + DeserializeOwned>(value: T, longest: usize) -> T {
    let Ok(mut json) = serde_json::to_value(&value) else {
        return value;
    };
    if escape_texts(&mut json, longest) {
        serde_json::from_value(json).unwrap_or(value)
    } else {
        value
    }
}

/// Returns whether a text changed.
fn escape_texts(value: &mut Value, longest: usize) -> bool {
    match value {
        Value::String(text) => {
            let printable = UntrustedText::with_limit(text, longest).to_string();
            let is_changed = printable != *text;
            *text = printable;
            is_changed
        }
        Value::Array(items) => {
            let changed = items
                .iter_mut()
                .filter_map(|item| escape_texts(item, longest).then_some(()));
            changed.count() > 0
        }
        Value::Object(fields) => {
            let changed = fields
                .values_mut()
                .filter_map(|field| escape_texts(field, longest).then_some(()));
            changed.count() > 0
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Returns a count with its noun, an English word or a kind of Kubernetes. The noun is plural for any count but one.
pub fn in_words(count: usize, what: &str) -> String {
    match what {
        _ if count == 1 => format!("1 {what}"),
        _ if what.ends_with('s') => format!("{count} {what}es"),
        _ => format!("{count} {what}s"),
    }
}

/// Returns the candidate that a misspelt word most likely means. It tolerates swapped, missing and doubled letters,
/// and another case.
pub fn nearest_candidate<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let distances = candidates.into_iter().map(|candidate| {
        let distance = strsim::osa_distance(&lower, &candidate.to_lowercase());
        (distance, candidate)
    });
    // At most a third of the letters may differ.
    let is_near = |(distance, candidate): &(usize, &str)| *distance <= (candidate.chars().count() / 3).max(1);
    distances.filter(is_near).min().map(|(_, candidate)| candidate)
}

/// Returns the first hexadecimal digits of the SHA-256 digest.
pub fn short_hash(bytes: impl AsRef<[u8]>, digits: usize) -> String {
    let mut hash = format!("{:x}", Sha256::digest(bytes));
    hash.truncate(digits);
    hash
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use std::collections::BTreeMap;

    use super::{in_words, join_truncated, make_printable, nearest_candidate};

    #[test]
    fn all_texts_of_value_become_printable() {
        let value = BTreeMap::from([
            ("a".to_owned(), vec!["plain".to_owned(), "\u{1b}[2J".to_owned()]),
            ("b".to_owned(), vec!["x\ny".to_owned()]),
        ]);
        let printable = make_printable(value, 100);
        assert_eq!(printable["a"], ["plain", "\\u{1b}[2J"]);
        assert_eq!(printable["b"], ["x; y"]);
    }

    #[rstest]
    #[case::none(0, "node", "0 nodes")]
    #[case::one(1, "StorageClass", "1 StorageClass")]
    #[case::more(2, "PersistentVolume", "2 PersistentVolumes")]
    #[case::ends_with_s(3, "StorageClass", "3 StorageClasses")]
    fn counted_nouns_have_singular_or_plural(#[case] count: usize, #[case] what: &str, #[case] expected: &str) {
        assert_eq!(in_words(count, what), expected);
    }

    #[rstest]
    #[case::swapped("tpye", Some("type"))]
    #[case::missing("availabilty", Some("availability"))]
    #[case::in_another_case("MkfsOptions", Some("mkfsOptions"))]
    #[case::longer("availability-zone", None)]
    #[case::another_word("iops", None)]
    fn misspelt_word_matches_nearest_candidate(#[case] word: &str, #[case] expected: Option<&str>) {
        assert_eq!(
            nearest_candidate(word, ["type", "availability", "mkfsOptions"]),
            expected
        );
    }

    #[test]
    fn ten_names_are_listed_and_others_counted() {
        let names: Vec<String> = (1..=12).map(|number| number.to_string()).collect();
        assert_eq!(join_truncated(&names[..2]), "1, 2");
        assert_eq!(join_truncated(&names[..10]), "1, 2, 3, 4, 5, 6, 7, 8, 9, 10");
        assert_eq!(join_truncated(&names), "1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more");
    }
}
