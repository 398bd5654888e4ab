// SPDX-License-Identifier: Apache-2.0
//! Output of a program, bounded in memory and in messages.

use csi_sources::UntrustedText;

/// Bytes that are retained from each end of a stream.
const RETAINED: usize = 32 << 10;
/// Limit of foreign text in one message, in characters.
const MESSAGE_CHARACTERS: usize = 2_000;
/// Characters of a shortened message on each side of the omission. The note about the omission fits into the rest.
const HALF_MESSAGE: usize = (MESSAGE_CHARACTERS - 60) / 2;

/// Beginning and end of an output stream of a program. Uses bounded memory for any output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolOutput {
    head: Vec<u8>,
    /// The latest bytes after the head, up to twice [`RETAINED`].
    recent: Vec<u8>,
    length: u64,
}

impl ToolOutput {
    /// Appends bytes. Drops the oldest bytes after the head if there are too many.
    pub fn push(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        let room = RETAINED.saturating_sub(self.head.len()).min(bytes.len());
        let (head, rest) = bytes.split_at(room);
        self.head.extend_from_slice(head);
        if rest.len() >= RETAINED {
            self.recent.clear();
        }
        self.recent.extend_from_slice(last(rest));
        if self.recent.len() > 2 * RETAINED {
            self.recent.drain(..self.recent.len() - RETAINED);
        }
    }

    /// Returns the complete output; `None` if a part of it was dropped, because the rest must not be parsed.
    pub fn complete(&self) -> Option<String> {
        (self.length <= 2 * RETAINED as u64).then(|| self.retained())
    }

    /// Whether the program wrote only white space.
    pub fn is_blank(&self) -> bool {
        self.complete().is_some_and(|text| text.trim().is_empty())
    }

    /// Returns the number of bytes that the program wrote.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns the output as one escaped line of at most 2,000 characters, for logs and errors.
    pub fn message(&self) -> String {
        shorten(&escape(&self.retained()), self.length())
    }

    fn retained(&self) -> String {
        let bytes = [&self.head, last(&self.recent)].concat();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Returns the bytes at the end that are retained.
fn last(bytes: &[u8]) -> &[u8] {
    bytes.get(bytes.len().saturating_sub(RETAINED)..).unwrap_or_default()
}

impl From<&str> for ToolOutput {
    fn from(text: &str) -> Self {
        let mut output = Self::default();
        output.push(text.as_bytes());
        output
    }
}

/// Returns foreign text as one escaped line of at most 2,000 characters.
pub(crate) fn excerpt(text: &str) -> String {
    shorten(&escape(text), text.len() as u64)
}

/// Returns the whole text as one printable line.
fn escape(text: &str) -> String {
    UntrustedText::with_limit(text, usize::MAX).to_string()
}

fn shorten(line: &str, bytes: u64) -> String {
    let characters = line.chars().count();
    if characters <= MESSAGE_CHARACTERS {
        return line.to_owned();
    }
    let first: String = line.chars().take(HALF_MESSAGE).collect();
    let last: String = line.chars().skip(characters - HALF_MESSAGE).collect();
    format!("{first} [shortened; {bytes} bytes in all] {last}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_output_is_complete() {
        let mut output = ToolOutput::from("TYPE=ext4\n");
        output.push(b"USAGE=filesystem\n");
        assert_eq!(output.complete().as_deref(), Some("TYPE=ext4\nUSAGE=filesystem\n"));
        assert_eq!(output.message(), "TYPE=ext4; USAGE=filesystem");
        assert!(!output.is_blank());
        assert!(ToolOutput::from(" \n").is_blank());
    }

    #[test]
    fn long_output_retains_both_ends() {
        let mut output = ToolOutput::from("first line\n");
        for _ in 0..10_000 {
            output.push(&[b'x'; 1000]);
        }
        output.push(b"\nlast line\n");
        assert_eq!(output.length(), 10_000_022);
        assert_eq!(output.complete(), None);
        assert!(!output.is_blank());
        let message = output.message();
        assert!(message.starts_with("first line; xxx"), "{message}");
        assert!(message.ends_with("xxx; last line"), "{message}");
        assert!(message.contains("10000022 bytes in all"), "{message}");
        assert!(message.chars().count() <= MESSAGE_CHARACTERS);
    }

    #[test]
    fn output_beyond_one_end_is_complete() {
        let output = ToolOutput::from("y".repeat(2 * RETAINED).as_str());
        assert_eq!(output.complete().map(|text| text.len()), Some(2 * RETAINED));
        let longer = ToolOutput::from("y".repeat(2 * RETAINED + 1).as_str());
        assert_eq!(longer.complete(), None);
    }

    #[test]
    fn messages_escape_terminal_controls() {
        let output = ToolOutput::from("a\u{1b}]52;c\u{7}\0b\rc\u{202e}d\té");
        assert_eq!(output.message(), r"a\u{1b}]52;c\u{7}\u{0}b\u{d}c\u{202e}d é");
        let mut half = ToolOutput::default();
        half.push(b"caf\xc3");
        assert_eq!(half.message(), "caf\u{fffd}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn any_output_is_bounded(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40_000), 0..8)) {
            let mut output = ToolOutput::default();
            let mut whole = Vec::new();
            for piece in &pieces {
                output.push(piece);
                whole.extend_from_slice(piece);
            }
            prop_assert!(output.head.len() <= RETAINED && output.recent.len() <= 2 * RETAINED);
            prop_assert_eq!(output.length(), whole.len() as u64);
            prop_assert!(whole.starts_with(&output.head));
            prop_assert!(whole.ends_with(last(&output.recent)));
            let is_complete = whole.len() <= 2 * RETAINED;
            prop_assert_eq!(output.complete(), is_complete.then(|| String::from_utf8_lossy(&whole).into_owned()));
            let message = output.message();
            prop_assert!(message.chars().count() <= MESSAGE_CHARACTERS);
            prop_assert!(!message.contains(|character: char| character.is_control()));
        }
    }
}
