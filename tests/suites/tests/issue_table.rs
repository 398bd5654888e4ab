// SPDX-License-Identifier: Apache-2.0
//! `docs/go-driver-issues.md` says what the tests' names say.

use anyhow::{Context as _, Result, ensure};
use suites::issues::UNTESTED;

#[test]
fn the_page_of_cured_faults_is_made_from_the_tests_that_there_are() -> Result<()> {
    let page = suites::issues::page();
    let written = std::fs::read_to_string(&page).with_context(|| format!("cannot read {}", page.display()))?;
    ensure!(
        written == suites::issues::table()?,
        "{} is out of date: run `cargo run -p suites --bin issue-table`",
        page.display()
    );
    let untested: Vec<&str> = written.lines().filter(|line| line.contains(UNTESTED)).collect();
    ensure!(untested.is_empty(), "rows without a test: {untested:#?}");
    Ok(())
}
