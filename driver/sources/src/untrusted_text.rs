// SPDX-License-Identifier: Apache-2.0
//! Text that other programs and users write.

use std::fmt::{self, Write as _};

/// Default limit of a text in characters.
const DEFAULT_LIMIT: usize = 1_000;
/// Characters that are reserved for the note about a shortened text.
const NOTE: usize = 40;

/// Text of a tenant, of OpenStack or of a device. Its `Display` is one printable line of limited length:
///
/// * control characters and characters that are invisible or change the direction of the text are escaped, as in `\u{1b}`;
/// * a line break becomes `; `, and a tab becomes a space;
/// * a text above the limit is shortened, with a note about its length.
///
/// The result does not change when it is displayed again.
#[derive(Debug, Clone, Copy)]
pub struct UntrustedText<'a> {
    text: &'a str,
    limit: usize,
}

impl<'a> UntrustedText<'a> {
    /// Displays at most 1,000 characters.
    pub fn new(text: &'a str) -> Self {
        Self::with_limit(text, DEFAULT_LIMIT)
    }

    /// Displays at most `limit` characters.
    pub fn with_limit(text: &'a str, limit: usize) -> Self {
        Self { text, limit }
    }

    /// Returns the line in double quotes. Escapes quotes, and the backslashes in front of any quote, so that the end of
    /// the text is unambiguous.
    pub fn quoted(self) -> String {
        let mut quoted = String::from('"');
        let mut backslashes = 0;
        for character in self.to_string().chars() {
            if character == '"' {
                quoted.push_str(&"\\".repeat(backslashes + 1));
            }
            backslashes = if character == '\\' { backslashes + 1 } else { 0 };
            quoted.push(character);
        }
        quoted.push_str(&"\\".repeat(backslashes));
        quoted.push('"');
        quoted
    }
}

impl fmt::Display for UntrustedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut line, mut count, mut cut) = (String::new(), 0, 0);
        let mut characters = self.text.trim().chars().peekable();
        while let Some(character) = characters.next() {
            let start = line.len();
            match character {
                '\r' if characters.peek() == Some(&'\n') => {}
                '\n' => line.push_str("; "),
                '\t' => line.push(' '),
                _ if is_printable(character) => line.push(character),
                _ => line.extend(character.escape_unicode()),
            }
            count += line.get(start..).map_or(0, |piece| piece.chars().count());
            if count + NOTE <= self.limit {
                cut = line.len();
            }
            if count > self.limit {
                line.truncate(cut);
                let length = self.text.chars().count();
                return write!(f, "{line}… ({length} characters)");
            }
        }
        f.write_str(&line)
    }
}

/// Whether a character is visible, or a space.
pub fn is_printable(character: char) -> bool {
    match character {
        '"' | '\'' | '\\' => true,
        // Letters without a glyph.
        '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' => false,
        // Escapes control, format, private, unassigned and combining characters, and all spaces but one.
        _ => character.escape_debug().len() == 1,
    }
}

/// Escapes the unprintable characters of a JSON text, except line breaks. The JSON value remains the same.
pub fn escape_json(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if character == '\n' || is_printable(character) {
            escaped.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            let _ = write!(escaped, "\\u{unit:04x}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_displayed_unchanged() {
        for text in ["volume \"a\" isn't here: C:\\x", "zażółć gęślą", "容量 µ €…", ""] {
            assert_eq!(UntrustedText::new(text).to_string(), text);
        }
        assert_eq!(UntrustedText::new(" one\r\n\ttwo\n").to_string(), "one;  two");
    }

    #[test]
    fn escapes_control_and_invisible_characters() {
        let controls = (0..0x20).chain(0x7f..0xa0).filter_map(char::from_u32);
        let controls = controls.filter(|control| !matches!(control, '\n' | '\t'));
        let invisible = "\u{a0}\u{ad}\u{34f}\u{61c}\u{115f}\u{180e}\u{200b}\u{200e}\u{200f}\u{2028}\u{202a}\u{202b}\u{202c}\
                         \u{202d}\u{202e}\u{2060}\u{2066}\u{2067}\u{2068}\u{2069}\u{3164}\u{e000}\u{fe0f}\u{feff}\u{fff9}\u{e0041}";
        for character in controls.chain(invisible.chars()) {
            let text = format!("a{character}b");
            let shown = UntrustedText::new(&text).to_string();
            assert_eq!(shown, format!("a\\u{{{:x}}}b", u32::from(character)));
            let json = escape_json(&format!("\"{text}\""));
            assert!(json.is_ascii(), "{json}");
            if u32::from(character) >= 0x20 {
                assert_eq!(json.matches("\\u").count(), character.len_utf16(), "{json}");
            }
        }
    }

    #[test]
    fn displayed_line_is_stable_and_limited() {
        let texts = [
            "x".repeat(1_001),
            "\u{1b}".repeat(5_000),
            "\n".repeat(999) + "x",
            "é\u{202e}".repeat(400),
        ];
        for text in &texts {
            let once = UntrustedText::new(text).to_string();
            assert!(once.chars().count() <= 1_000, "{}", once.chars().count());
            assert_eq!(UntrustedText::new(&once).to_string(), once);
        }
        assert!(texts[0].starts_with(&UntrustedText::new(&texts[0]).to_string()[..900]));
        assert!(
            UntrustedText::new(&texts[0])
                .to_string()
                .ends_with("… (1001 characters)")
        );
    }

    #[test]
    fn quoted_text_escapes_quotes() {
        assert_eq!(UntrustedText::new("a\" b").quoted(), r#""a\" b""#);
        assert_eq!(UntrustedText::new(r#"a\" b"#).quoted(), r#""a\\\" b""#);
        assert_eq!(UntrustedText::new(r"C:\a\").quoted(), r#""C:\a\\""#);
    }
}
