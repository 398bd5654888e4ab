// SPDX-License-Identifier: Apache-2.0
//! Limits of YAML documents, because the parser's time grows faster than the depth of a document.

/// The maximum size of a document, in bytes.
const LONGEST: usize = 64 << 10;
/// The maximum nesting of lists and mappings.
const DEEPEST: usize = 64;

/// Returns the reason to reject a YAML document before it is parsed; `None` for an acceptable one. Unclosed brackets
/// in texts count too.
pub fn refuse_yaml(text: &str) -> Option<String> {
    if text.len() > LONGEST {
        return Some(format!(
            "it has {} bytes, and {LONGEST} are the most that is read",
            text.len()
        ));
    }
    let mut open: usize = 0;
    for (number, line) in text.lines().enumerate() {
        let mut lists = 0;
        let mut rest = line.trim_start();
        while let Some(inner) = ["- ", "? "].iter().find_map(|mark| rest.strip_prefix(mark)) {
            lists += 1;
            rest = inner.trim_start();
        }
        for character in rest.chars() {
            match character {
                '[' | '{' => open += 1,
                ']' | '}' => open = open.saturating_sub(1),
                _ => continue,
            }
            if open + lists > DEEPEST {
                break;
            }
        }
        if open + lists > DEEPEST {
            let number = number + 1;
            return Some(format!(
                "its lists and mappings are nested deeper than {DEEPEST} levels in line {number}"
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::usual("clouds:\n  a: {auth: {password: 'x['}}\n- - a\n", None)]
    #[case::brackets(&format!("clouds: {}", "[".repeat(100_000 / 2)), Some("line 1"))]
    #[case::one_in_each_line(&"[\n".repeat(65), Some("line 65"))]
    #[case::mappings(&format!("a: 1\nb: {}", "{a: ".repeat(65)), Some("line 2"))]
    #[case::lists(&"- ".repeat(65), Some("nested deeper"))]
    #[case::lists_and_brackets(&format!("{}{}", "- ".repeat(60), "[".repeat(5)), Some("nested deeper"))]
    #[case::just_as_deep_as_allowed(&format!("{}{}", "[".repeat(64), "]".repeat(64)), None)]
    #[case::long(&"a".repeat(LONGEST + 1), Some("65537 bytes"))]
    fn rejects_long_or_deep_documents(#[case] text: &str, #[case] reason: Option<&str>) {
        let refusal = refuse_yaml(text);
        assert_eq!(refusal.is_some(), reason.is_some(), "{refusal:?}");
        assert!(refusal.unwrap_or_default().contains(reason.unwrap_or_default()));
    }
}
