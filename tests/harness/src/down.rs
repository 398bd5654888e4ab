// SPDX-License-Identifier: Apache-2.0
//! `harness down`

use anyhow::Result;
use harness::{clean_up_all, find_runs};

/// Removes all clusters without a living owner, and reports the ones in use.
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
