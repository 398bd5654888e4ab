//! Tables for terminals.

use std::fmt::Write as _;

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

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let text = table(
            &["A", "LONGER"],
            &[vec!["ääää".into(), "b".into()], vec!["c".into(), String::new()]],
        );

        assert_eq!(text, "  A     LONGER\n  ääää  b\n  c\n");
    }
}
