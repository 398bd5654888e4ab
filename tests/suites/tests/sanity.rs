//! csi-sanity against our driver, the simulator and real loop devices.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use suites::drivers::{Driver, Role};
use suites::lab::in_lab;
use suites::sanity::{self, Access, Report, SPECS};
use suites::simulator::Simulator;

#[test]
fn csi_sanity_passes_with_mounted_volumes() {
    in_lab(async |lab| all_that_is_claimed_passes(&lab, Access::Mount).await);
}

#[test]
fn csi_sanity_passes_with_block_volumes() {
    in_lab(async |lab| all_that_is_claimed_passes(&lab, Access::Block).await);
}

async fn all_that_is_claimed_passes(lab: &suites::lab::Lab, access: Access) -> Result<()> {
    let simulator = Simulator::start(lab, "").await?;
    let driver = Driver::ours(lab, &simulator, Role::Both, &[]).await?;
    let report = sanity::run(lab, &driver, access, &BTreeMap::new()).await?;
    println!("csi-sanity, {access:?}: {}", report.summary());
    compare(&report, &NotClaimed::read()?).with_context(|| driver.tail())?;
    ensure!(
        simulator.volume_names().await?.is_empty(),
        "volumes are left: {:?}",
        simulator.volume_names().await?
    );
    ensure!(
        lab.mounts().await?.is_empty(),
        "mounts are left: {:?}",
        lab.mounts().await?
    );
    driver.stop().await?;
    simulator.stop().await
}

/// The specs that are skipped because the driver does not claim a capability yet, by capability: `expected/not-claimed.json`.
#[derive(Deserialize)]
struct NotClaimed(BTreeMap<String, BTreeSet<String>>);

impl NotClaimed {
    fn read() -> Result<Self> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/expected/not-claimed.json");
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        serde_json::from_str(&text).with_context(|| format!("{path} is not what this test reads"))
    }

    fn specs(&self) -> BTreeSet<&str> {
        self.0.values().flatten().map(String::as_str).collect()
    }
}

fn compare(report: &Report, not_claimed: &NotClaimed) -> Result<()> {
    let failures: Vec<String> = report
        .failures()
        .map(|(spec, reason)| format!("* {spec}\n{reason}"))
        .collect();
    ensure!(
        failures.is_empty(),
        "{} specs failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
    let (skipped, expected) = (report.skipped(), not_claimed.specs());
    let unexpected: Vec<_> = skipped.difference(&expected).collect();
    ensure!(
        unexpected.is_empty(),
        "skipped although the driver claims what they need: {unexpected:#?}"
    );
    let passed: Vec<_> = expected.difference(&skipped).collect();
    ensure!(
        passed.is_empty(),
        "listed as not claimed and not skipped: take them off the list: {passed:#?}"
    );
    ensure!(
        report.passed().len() == SPECS - expected.len(),
        "{} specs passed",
        report.passed().len()
    );
    Ok(())
}
