// SPDX-License-Identifier: Apache-2.0
//! Writes `docs/go-driver-issues.md` from the names of the tests.

use anyhow::{Context as _, Result};

fn main() -> Result<()> {
    let page = suites::issues::page();
    std::fs::write(&page, suites::issues::table()?).with_context(|| format!("cannot write {}", page.display()))
}
