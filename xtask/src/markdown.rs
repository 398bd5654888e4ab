// SPDX-License-Identifier: Apache-2.0
//! Text of Markdown pages.

/// Escapes text for a cell of a table.
pub(crate) fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
