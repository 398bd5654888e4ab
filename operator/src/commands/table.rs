//! What reports for terminals have in common: tables and notes.

use std::fmt::{self, Write};

/// Two spaces between columns that are as wide as their widest cell; nothing at the ends of lines.
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

/// The end of a report: its notes, a line each, below an empty one.
pub(crate) fn write_notes(out: &mut impl Write, notes: &[String]) -> fmt::Result {
    if !notes.is_empty() {
        writeln!(out)?;
    }
    notes.iter().try_for_each(|note| writeln!(out, "Note: {note}"))
}

#[cfg(test)]
mod tests {
    use super::{table, write_notes};

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let text = table(
            &["A", "LONGER"],
            &[vec!["ääää".into(), "b".into()], vec!["c".into(), String::new()]],
        );

        assert_eq!(text, "  A     LONGER\n  ääää  b\n  c\n");
    }

    #[test]
    fn notes_stand_apart_and_without_any_there_is_no_empty_line() {
        let mut text = String::new();
        write_notes(&mut text, &[]).expect("written");
        assert_eq!(text, "");
        write_notes(&mut text, &["a".into(), "b".into()]).expect("written");
        assert_eq!(text, "\nNote: a\nNote: b\n");
    }
}
