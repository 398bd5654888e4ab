// SPDX-License-Identifier: Apache-2.0
//! Common parts of reports for terminals: tables, notes and folded lines.

use std::{
    fmt::{self, Write},
    io::{self, IsTerminal},
};

use csi_sources::{UntrustedText, is_printable};
use terminal_size::{Width, terminal_size_of};

/// Minimum width of a terminal, in columns, for folding.
const NARROWEST: usize = 40;

/// Formats a table. Two spaces separate columns, and each column is as wide as its widest cell. Lines have no trailing
/// spaces.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or_default();
        widest.max(head.get(column).map_or(0, |title| title.chars().count()))
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    let head: Vec<String> = head.iter().map(ToString::to_string).collect();
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "  {cell:width$}");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Writes the notes at the end of a report, one per line, after an empty line.
pub(crate) fn write_notes(out: &mut impl Write, notes: &[String]) -> fmt::Result {
    if !notes.is_empty() {
        writeln!(out)?;
    }
    let notes = notes.iter().map(|note| UntrustedText::new(note));
    notes.into_iter().try_for_each(|note| writeln!(out, "Note: {note}"))
}

/// Formats text for standard output: escapes characters that are not printable, and folds lines at the width of a
/// terminal. Lines to a pipe or file are not folded.
pub(crate) fn for_terminal(text: &str) -> String {
    let text = escape_characters(text);
    let stdout = io::stdout();
    let size = if stdout.is_terminal() {
        terminal_size_of(stdout)
    } else {
        None
    };
    match size {
        Some((Width(width), _)) if usize::from(width) >= NARROWEST => fold(&text, width.into()),
        _ => text,
    }
}

/// Escapes characters that are not printable, except line breaks. Callers escape text of other programs already; this
/// function protects the terminal against callers that do not.
fn escape_characters(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if character == '\n' || is_printable(character) {
            escaped.push(character);
        } else {
            escaped.extend(character.escape_unicode());
        }
    }
    escaped
}

/// Folds lines at spaces, and indents continuation lines by two more spaces than the first line. Rows of tables, which
/// contain two adjacent spaces, are not folded, and words are not split.
fn fold(text: &str, width: usize) -> String {
    let mut folded = String::new();
    for line in text.lines() {
        let words = line.trim_start();
        if line.chars().count() <= width || words.contains("  ") {
            folded.push_str(line);
            folded.push('\n');
            continue;
        }
        let indent = line.len() - words.len();
        let mut column = indent;
        folded.push_str(&line[..indent]);
        for (number, word) in words.split(' ').enumerate() {
            let length = word.chars().count();
            if number > 0 && column + 1 + length > width {
                column = indent + 2;
                let _ = write!(folded, "\n{:column$}", "");
            } else if number > 0 {
                folded.push(' ');
                column += 1;
            }
            folded.push_str(word);
            column += length;
        }
        folded.push('\n');
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::{fold, table, write_notes};

    #[test]
    fn long_lines_are_folded_and_tables_are_not() {
        let text = "short\n  one two three four\n  NAME    VERSION    IMAGE\n    https://a.very.long/address here\n";
        let folded = fold(text, 12);
        assert_eq!(
            folded,
            "short\n  one two\n    three\n    four\n  NAME    VERSION    IMAGE\n    https://a.very.long/address\n      here\n"
        );
        assert_eq!(fold(text, 80), text);
    }

    #[test]
    fn columns_have_width_of_widest_cell() {
        let text = table(
            &["A", "LONGER"],
            &[vec!["ääää".into(), "b".into()], vec!["c".into(), String::new()]],
        );

        assert_eq!(text, "  A     LONGER\n  ääää  b\n  c\n");
    }

    #[test]
    fn empty_line_precedes_notes() {
        let mut text = String::new();
        write_notes(&mut text, &[]).expect("written");
        assert_eq!(text, "");
        write_notes(&mut text, &["a".into(), "b".into()]).expect("written");
        assert_eq!(text, "\nNote: a\nNote: b\n");
    }
}
