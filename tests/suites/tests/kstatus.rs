// SPDX-License-Identifier: Apache-2.0
//! The status of a `CinderCSIDriver` as Helm and Flux read it, by the library that Helm is built with.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use harness::workspace_root;
use serde_json::Value;
use suites::programs;

/// Which is written by a test of operator/core.
const TABLE: &str = "tests/suites/expected/kstatus.json";

#[test]
fn kstatus_computes_documented_status_of_every_case() -> Result<()> {
    let table: Vec<Value> = serde_json::from_slice(&std::fs::read(workspace_root().join(TABLE))?)?;
    let objects: Vec<&Value> = table.iter().map(|row| &row["object"]).collect();
    let computed = compute(&serde_json::to_vec(&objects)?)?;
    let computed: Vec<&str> = computed.lines().collect();
    ensure!(!table.is_empty() && computed.len() == table.len(), "{computed:?}");
    for (row, computed) in table.iter().zip(computed) {
        ensure!(row["expected"] == computed, "{}: {computed}", row["case"]);
    }
    Ok(())
}

fn compute(objects: &[u8]) -> Result<String> {
    let mut program = Command::new(programs::go_program("helm", "kstatus")?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run kstatus")?;
    program.stdin.take().context("it has no input")?.write_all(objects)?;
    let output = program.wait_with_output()?;
    ensure!(output.status.success(), "kstatus failed ({})", output.status);
    Ok(String::from_utf8(output.stdout)?)
}
