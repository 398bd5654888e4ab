// SPDX-License-Identifier: Apache-2.0
//! Which tests show that a known fault of the Go driver is cured here: a page made from the names of the tests.
//!
//! A test that cures issue 1234 of kubernetes/cloud-provider-openstack ends in `_issue_1234`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use harness::workspace_root;

mod rows;

use rows::{ROWS, Row};

/// Where the page is.
pub fn page() -> PathBuf {
    workspace_root().join("docs/go-driver-issues.md")
}

/// Folders of the repository that hold tests.
const SOURCES: [&str; 4] = ["crds", "driver", "operator", "tests"];
const MARK: &str = "_issue_";
/// What stands where a row has no test.
pub const UNTESTED: &str = "none yet";
const HEAD: &str = "\
# Faults of the Go driver, and the tests that show them cured

Made from the names of the tests by `cargo run -p suites --bin issue-table`; do not edit. The numbers are issues and pull
requests of kubernetes/cloud-provider-openstack. A test fails on the behaviour that its row describes.

| issues | what went wrong or was missing | what this driver does | tests |
|---|---|---|---|
";

/// The tests of a file: their names, and the numbers that they end in.
fn tests_in(source: &str) -> Vec<(String, Vec<u32>)> {
    let mut found = Vec::new();
    for line in source.lines() {
        let line = line.trim_start();
        let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
        let line = line.strip_prefix("async ").unwrap_or(line);
        let Some(rest) = line.strip_prefix("fn ") else { continue };
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let numbers: Vec<u32> = name.split(MARK).skip(1).filter_map(|part| part.parse().ok()).collect();
        if !numbers.is_empty() {
            found.push((name, numbers));
        }
    }
    found
}

fn rust_files(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    for entry in entries {
        let path = entry
            .with_context(|| format!("cannot list {}", directory.display()))?
            .path();
        if path.is_dir() {
            rust_files(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Number of an issue → tests as `file: name`, in order.
fn tests() -> Result<BTreeMap<u32, Vec<String>>> {
    let root = workspace_root();
    let mut files = Vec::new();
    for folder in SOURCES {
        rust_files(&root.join(folder), &mut files)?;
    }
    files.sort();
    let mut tests: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for file in files {
        let source = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let place = file.strip_prefix(&root).unwrap_or(&file).display().to_string();
        for (name, numbers) in tests_in(&source) {
            for number in numbers {
                tests.entry(number).or_default().push(format!("`{place}`: {name}"));
            }
        }
    }
    Ok(tests)
}

fn line(row: &Row, tests: &BTreeMap<u32, Vec<String>>) -> String {
    let mut names: Vec<&str> = row
        .issues
        .iter()
        .filter_map(|number| tests.get(number))
        .flatten()
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    names.dedup();
    let issues: Vec<String> = row.issues.iter().map(|number| format!("#{number}")).collect();
    let names = if names.is_empty() {
        UNTESTED.to_owned()
    } else {
        names.join("<br>")
    };
    format!("| {} | {} | {} | {names} |\n", issues.join(", "), row.fault, row.here)
}

/// The page as the sources have it now. A test whose number no row has is an error.
pub fn table() -> Result<String> {
    let tests = tests()?;
    for (number, names) in &tests {
        let known = ROWS.iter().any(|row| row.issues.contains(number));
        ensure!(
            known,
            "no row of tests/suites/src/issues/rows.rs has the issue {number} of {names:?}"
        );
    }
    let mut text = HEAD.to_owned();
    for row in ROWS {
        let _ = write!(text, "{}", line(row, &tests));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_found_with_all_its_numbers_and_other_functions_are_not() {
        let source = "#[test]\nfn it_waits_issue_12_issue_345() {}\n    async fn another_issue_7(x: u8) {}\nfn issue_free() {}\n// fn no_issue_9\n";
        let found = tests_in(source);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].1, [12, 345]);
        assert_eq!(found[1], ("another_issue_7".to_owned(), vec![7]));
    }

    #[test]
    fn a_row_without_tests_says_so() {
        let row = Row {
            issues: &[1, 2],
            fault: "f",
            here: "h",
        };
        assert_eq!(line(&row, &BTreeMap::new()), "| #1, #2 | f | h | none yet |\n");
    }
}
