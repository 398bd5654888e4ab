// SPDX-License-Identifier: Apache-2.0
//! `harness down`

use anyhow::Result;
use harness::{clean_up_all, find_runs};

/// Removes what no living process owns and says what another one still uses.
pub(crate) fn run() -> Result<()> {
    let removed = clean_up_all()?;
    println!("{removed} removed");
    for (run, _) in find_runs()?.iter().filter(|(_, owned)| *owned) {
        println!(
            "{} belongs to a running process, which removes it when it ends",
            run.directory().display()
        );
    }
    Ok(())
}
