// SPDX-License-Identifier: Apache-2.0
//! Generates the page of faults of the Go driver, with the tests that prove the fixes. The name of a test for issue
//! 1234 of kubernetes/cloud-provider-openstack ends in `_issue_1234`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context as _, Result, ensure};
use cinder_operator_core::templates::{self, Template};
use serde::Deserialize;

use crate::paths::ROOT;

static ROWS: Template<Vec<Row>> = LazyLock::new(|| templates::read(include_str!("../issues.yaml")));

/// A fault, or several faults with one fix.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    issues: Vec<u32>,
    fault: String,
    here: String,
}

/// Folders of the repository with tests.
const SOURCES: [&str; 4] = ["crds", "driver", "operator", "tests"];
const MARK: &str = "_issue_";
const HEAD: &str = "\
# Faults of the Go driver, and the tests that show them fixed

Made from the names of the tests by `make generate`; do not edit. The numbers are issues and pull
requests of kubernetes/cloud-provider-openstack. A test fails on the behaviour that its row describes.

| issues | what went wrong or was missing | what this driver does | tests |
|---|---|---|---|
";

/// The tests of a file: their names, and the issue numbers at the end of these names.
fn tests_in(source: &str) -> Vec<(String, Vec<u32>)> {
    let mut tests = Vec::new();
    for line in source.lines() {
        let line = line.trim_start();
        let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
        let line = line.strip_prefix("async ").unwrap_or(line);
        let Some(rest) = line.strip_prefix("fn ") else { continue };
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let numbers: Vec<u32> = name.split(MARK).skip(1).filter_map(|part| part.parse().ok()).collect();
        if !numbers.is_empty() {
            tests.push((name, numbers));
        }
    }
    tests
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

/// Maps the number of an issue to its sorted tests, as `file: name`.
fn tests() -> Result<BTreeMap<u32, Vec<String>>> {
    let root = Path::new(ROOT);
    let mut files = Vec::new();
    for folder in SOURCES {
        rust_files(&root.join(folder), &mut files)?;
    }
    files.sort();
    let mut tests: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for file in files {
        let source = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let place = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        for (name, numbers) in tests_in(&source) {
            for number in numbers {
                tests.entry(number).or_default().push(format!("`{place}`: {name}"));
            }
        }
    }
    Ok(tests)
}

fn line(row: &Row, tests: &BTreeMap<u32, Vec<String>>) -> Result<String> {
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
    ensure!(!names.is_empty(), "no test shows the fix of {}", issues.join(", "));
    let (issues, names) = (issues.join(", "), names.join("<br>"));
    Ok(format!("| {issues} | {} | {} | {names} |\n", row.fault, row.here))
}

/// Generates the page. Each test with a number needs a row, and each row needs a test.
pub(crate) fn page() -> Result<String> {
    let (rows, tests) = (templates::get(&ROWS)?, tests()?);
    for (number, names) in &tests {
        let is_known = rows.iter().any(|row| row.issues.contains(number));
        ensure!(
            is_known,
            "xtask/issues.yaml has no row with the issue {number} of {names:?}"
        );
    }
    let mut text = HEAD.to_owned();
    for row in rows {
        let _ = write!(text, "{}", line(row, &tests)?);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_found_with_all_issue_numbers() {
        let source = "#[test]\nfn it_waits_issue_12_issue_345() {}\n    async fn another_issue_7(x: u8) {}\nfn issue_free() {}\n// fn no_issue_9\n";
        let tests = tests_in(source);
        assert_eq!(tests.len(), 2);
        assert_eq!(tests[0].1, [12, 345]);
        assert_eq!(tests[1], ("another_issue_7".to_owned(), vec![7]));
    }

    #[test]
    fn row_needs_a_test() {
        let row = Row {
            issues: vec![1, 2],
            fault: "f".to_owned(),
            here: "h".to_owned(),
        };
        assert!(line(&row, &BTreeMap::new()).is_err());
        let tests = BTreeMap::from([(2, vec!["`f`: t".to_owned()])]);
        assert_eq!(line(&row, &tests).expect("a row"), "| #1, #2 | f | h | `f`: t |\n");
    }
}
