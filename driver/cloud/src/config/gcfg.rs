// SPDX-License-Identifier: Apache-2.0
//! The INI dialect of Go's gcfg. A section may have a quoted subsection, and names ignore case. Values may be partly
//! or fully quoted, contain escapes and continue on the next line. Comments start with `;` or `#`.

use std::iter::Peekable;
use std::str::Chars;

use super::{ConfigError, FileLocation};

/// One assignment.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// In lower case.
    pub(super) section: String,
    pub(super) subsection: Option<String>,
    /// In lower case.
    pub(super) key: String,
    /// `None` for a name without `=`, which means true.
    pub(super) value: Option<String>,
    pub(super) place: FileLocation,
}

/// Reads a file. Errors name the line and never show a value.
pub(super) fn parse(text: &str, file: &str) -> Result<Vec<Entry>, ConfigError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    Parser {
        file,
        line: 1,
        text: text.chars().peekable(),
    }
    .entries()
}

/// Quotes a value so that [`parse`] returns it unchanged.
pub(super) fn quote(value: &str) -> String {
    let mut quoted = String::with_capacity(value.len() + 2);
    quoted.push('"');
    for character in value.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

struct Parser<'a> {
    file: &'a str,
    line: usize,
    text: Peekable<Chars<'a>>,
}

impl Parser<'_> {
    fn entries(mut self) -> Result<Vec<Entry>, ConfigError> {
        let mut entries = Vec::new();
        let mut current: Option<(String, Option<String>)> = None;
        loop {
            self.skip_blank();
            let Some(&next) = self.text.peek() else {
                return Ok(entries);
            };
            match next {
                '\n' | '\r' => {
                    self.next();
                }
                ';' | '#' => self.skip_comment(),
                '[' => {
                    current = Some(self.header()?);
                    self.end_of_line("a section header")?;
                }
                _ => {
                    let place = self.place();
                    let key = self.name("a key")?;
                    let Some((section, subsection)) = &current else {
                        return Err(self.error(format!(
                            "key {key} stands before the first section; begin with [Global]"
                        )));
                    };
                    self.skip_blank();
                    let value = if self.text.next_if_eq(&'=').is_some() {
                        self.skip_blank();
                        Some(self.value(&key)?)
                    } else {
                        None
                    };
                    self.end_of_line(&format!("the value of {key}"))?;
                    entries.push(Entry {
                        section: section.clone(),
                        subsection: subsection.clone(),
                        key,
                        value,
                        place,
                    });
                }
            }
        }
    }

    fn header(&mut self) -> Result<(String, Option<String>), ConfigError> {
        self.next();
        self.skip_blank();
        let section = self.name("a section")?;
        self.skip_blank();
        let subsection = if self.text.next_if_eq(&'"').is_some() {
            Some(self.subsection()?)
        } else {
            None
        };
        self.skip_blank();
        if self.text.next_if_eq(&']').is_none() {
            return Err(self.error(format!("the header of section {section} does not end with ]")));
        }
        Ok((section, subsection))
    }

    fn subsection(&mut self) -> Result<String, ConfigError> {
        let mut name = String::new();
        loop {
            match self.next() {
                Some('"') => return Ok(name),
                Some('\\') => match self.next() {
                    Some(escaped @ ('"' | '\\')) => name.push(escaped),
                    _ => {
                        return Err(
                            self.error("unknown escape in the name of a section; known are \\\" and \\\\".to_owned())
                        );
                    }
                },
                Some('\n') | None => return Err(self.error("the name of a section has no closing quote".to_owned())),
                Some(other) => name.push(other),
            }
        }
    }

    fn name(&mut self, what: &str) -> Result<String, ConfigError> {
        let mut name = String::new();
        let is_part = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '.' | '_');
        while let Some(character) = self.text.next_if(is_part) {
            name.extend(character.to_lowercase());
        }
        if name.contains(['.', '_']) && name.starts_with(|c: char| c.is_alphabetic()) {
            let right = name.replace(['.', '_'], "-");
            return Err(self.error(format!(
                "the name {name} of {what} has _ or a dot, which the Go driver refuses; write {right}"
            )));
        }
        if name.starts_with(|c: char| c.is_alphabetic()) {
            Ok(name)
        } else {
            Err(self.error(format!("the name of {what} is expected here; it begins with a letter")))
        }
    }

    fn value(&mut self, key: &str) -> Result<String, ConfigError> {
        let mut value = String::new();
        let mut end = 0;
        let mut quoted = false;
        loop {
            let Some(&next) = self.text.peek() else {
                if quoted {
                    return Err(self.error(format!("the value of {key} has no closing quote")));
                }
                break;
            };
            match next {
                '\n' if quoted => {
                    return Err(self.error(format!(
                        "the value of {key} has no closing quote; write a line break as \\n"
                    )));
                }
                '\n' | ';' | '#' if !quoted => break,
                _ => {}
            }
            self.next();
            match next {
                '"' => quoted = !quoted,
                '\\' => {
                    if !quoted {
                        self.text.next_if_eq(&'\r');
                    }
                    match self.next() {
                        Some('\n') if !quoted => {}
                        Some('"') => value.push('"'),
                        Some('\\') if quoted => value.push('\\'),
                        Some('n') if quoted => value.push('\n'),
                        Some('t') if quoted => value.push('\t'),
                        _ if quoted => {
                            return Err(self.error(format!(
                                "unknown escape in the value of {key}; known are \\\\ \\\" \\n \\t, a single \\ is written \\\\"
                            )));
                        }
                        _ => {
                            return Err(self.error(format!(
                                "unknown escape in the value of {key}; put the value in quotes, and write a single \\ as \\\\"
                            )));
                        }
                    }
                    end = value.len();
                    continue;
                }
                '\r' => {}
                other => value.push(other),
            }
            if quoted || !matches!(next, ' ' | '\t' | '\r') {
                end = value.len();
            }
        }
        value.truncate(end);
        Ok(value)
    }

    fn end_of_line(&mut self, after: &str) -> Result<(), ConfigError> {
        self.skip_blank();
        self.text.next_if_eq(&'\r');
        match self.text.peek() {
            None | Some('\n') => Ok(()),
            Some(';' | '#') => {
                self.skip_comment();
                Ok(())
            }
            Some(_) => Err(self.error(format!("text after {after} is not understood"))),
        }
    }

    fn skip_comment(&mut self) {
        while self.text.next_if(|c| *c != '\n').is_some() {}
    }

    fn skip_blank(&mut self) {
        while self.text.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
    }

    fn next(&mut self) -> Option<char> {
        let next = self.text.next();
        if next == Some('\n') {
            self.line += 1;
        }
        next
    }

    fn place(&self) -> FileLocation {
        FileLocation {
            file: self.file.to_owned(),
            line: self.line,
        }
    }

    fn error(&self, reason: String) -> ConfigError {
        ConfigError::Parse {
            place: self.place(),
            reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn value(line: &str) -> Option<String> {
        let entries = parse(&format!("[Global]\n{line}\n"), "f").expect("parses");
        assert_eq!(entries.len(), 1);
        entries[0].value.clone()
    }

    #[rstest]
    #[case("key = plain", "plain")]
    #[case("key=plain", "plain")]
    #[case("KEY =  two words  ", "two words")]
    #[case("key = \"quoted\"", "quoted")]
    #[case("key = \" kept \"  ", " kept ")]
    #[case("key = half\" quoted \"", "half quoted ")]
    #[case("key = value ; comment", "value")]
    #[case("key = value # comment", "value")]
    #[case("key = value#comment", "value")]
    #[case("key = \"a;b#c\"", "a;b#c")]
    #[case(r#"key = "a\"b\\c\nd\te""#, "a\"b\\c\nd\te")]
    #[case("key = a\\\nb", "ab")]
    #[case("key =", "")]
    #[case("key = \"\"", "")]
    #[case("key = value\r", "value")]
    #[case("key = schlüssel", "schlüssel")]
    fn values_match_gcfg(#[case] line: &str, #[case] expected: &str) {
        assert_eq!(value(line).as_deref(), Some(expected));
    }

    #[test]
    fn bare_name_has_no_value() {
        assert_eq!(value("key ; comment"), None);
    }

    #[test]
    fn only_subsections_are_case_sensitive() {
        let entries = parse(
            "; first\n\n[GLOBAL \"My Cloud\"] # x\nAuth-URL=u\n[blockstorage]\nk=v",
            "f",
        )
        .expect("parses");
        assert_eq!(entries[0].section, "global");
        assert_eq!(entries[0].subsection.as_deref(), Some("My Cloud"));
        assert_eq!(entries[0].key, "auth-url");
        assert_eq!(
            entries[0].place,
            FileLocation {
                file: "f".to_owned(),
                line: 4
            }
        );
        assert_eq!(entries[1].section, "blockstorage");
    }

    #[rstest]
    #[case("key = v", "before the first section", 1)]
    #[case("[Global", "does not end with ]", 1)]
    #[case("[Global] x", "not understood", 1)]
    #[case("[Global \"x]\n", "closing quote", 2)]
    #[case("[Global]\nkey = \"open\n", "closing quote", 2)]
    #[case("[Global]\n\nkey = c:\\dir\n", "put the value in quotes", 3)]
    #[case("[Global]\nkey = a\\tb\n", "put the value in quotes", 2)]
    #[case("[Global]\nkey = a\\nb\n", "put the value in quotes", 2)]
    #[case("[Global]\nkey = a\\\\b\n", "put the value in quotes", 2)]
    #[case("[Global]\nkey = \"c:\\dir\"\n", "known are", 2)]
    #[case("[Global]\n= v\n", "begins with a letter", 2)]
    #[case("[Global]\nkey value\n", "not understood", 2)]
    fn errors_name_line_and_reason(#[case] text: &str, #[case] reason: &str, #[case] line: usize) {
        let Err(ConfigError::Parse { place, reason: text }) = parse(text, "f") else {
            panic!("{text} parses")
        };
        assert!(text.contains(reason), "{text}");
        assert_eq!(place.line, line);
    }

    proptest! {
        #[test]
        fn quoted_values_round_trip(text in "[^\r]*") {
            prop_assert_eq!(value(&format!("key = {}", quote(&text))), Some(text));
        }

        #[test]
        fn parser_never_panics_or_shows_secrets(text in "(\\[?[a-zA-Z\" ]{0,8}\\]?\n?)?([a-z= \"\\\\;#\n\r]{0,30})secret-value[\"\\\\ \n]{0,5}") {
            if let Err(error) = parse(&format!("[Global]\npassword = {text}"), "f") {
                prop_assert!(!error.to_string().contains("secret-value\""), "{}", error);
            }
        }

        #[test]
        fn parser_accepts_or_rejects_any_text(text in "\\PC*") {
            drop(parse(&text, "f"));
        }
    }
}
