//! csi-sanity against our driver, the simulator and real loop devices.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use suites::drivers::{Driver, Ours, Role};
use suites::lab::{Lab, in_lab};
use suites::sanity::{self, Access, Options, Report, SPECS};
use suites::simulator::Simulator;

/// The suite fills a node up to its limit; a small one keeps that short.
const LIMIT: &str = "--max-volumes-per-node=4";

#[test]
fn csi_sanity_passes_with_mounted_volumes() {
    in_lab(async |lab| {
        let simulator = Simulator::start(&lab, "").await?;
        let driver = Ours::new(Role::Both).flag(LIMIT).start(&lab, &simulator).await?;
        check(
            &lab,
            &simulator,
            &driver,
            Options {
                access: Access::Mount,
                ..Options::default()
            },
        )
        .await?;
        driver.stop().await?;
        simulator.stop().await
    });
}

#[test]
fn csi_sanity_passes_with_block_volumes() {
    in_lab(async |lab| {
        let simulator = Simulator::start(&lab, "").await?;
        let driver = Ours::new(Role::Both).flag(LIMIT).start(&lab, &simulator).await?;
        check(
            &lab,
            &simulator,
            &driver,
            Options {
                access: Access::Block,
                ..Options::default()
            },
        )
        .await?;
        driver.stop().await?;
        simulator.stop().await
    });
}

#[test]
fn csi_sanity_passes_with_controller_and_node_in_two_processes() {
    in_lab(async |lab| {
        let simulator = Simulator::start(&lab, "").await?;
        let controller = Ours::new(Role::Controller).flag(LIMIT).start(&lab, &simulator).await?;
        let node = Ours::new(Role::Node).flag(LIMIT).start(&lab, &simulator).await?;
        check(
            &lab,
            &simulator,
            &node,
            Options {
                controller: Some(&controller),
                ..Options::default()
            },
        )
        .await?;
        node.stop().await?;
        controller.stop().await?;
        simulator.stop().await
    });
}

/// Every spec passes but those for capabilities that are not claimed, and nothing is left.
async fn check(lab: &Lab, simulator: &Simulator, driver: &Driver, options: Options<'_>) -> Result<()> {
    let options = Options {
        attach_limit: true,
        ..options
    };
    let report = sanity::run(lab, driver, &options).await?;
    let processes = if options.controller.is_some() {
        "two processes"
    } else {
        "one process"
    };
    report.announce(&format!("our driver, {:?} volumes, {processes}", options.access));
    compare(&report, &not_claimed()?).with_context(|| driver.tail())?;
    let volumes = simulator.volume_names().await?;
    ensure!(volumes.is_empty(), "volumes are left: {volumes:?}");
    let mounts = lab.mounts().await?;
    ensure!(mounts.is_empty(), "mounts are left: {mounts:?}");
    Ok(())
}

/// A reason of csi-sanity to skip specs: `expected/not-claimed.json` has those that hold, with the capability that the driver
/// does not claim yet.
#[derive(Deserialize)]
struct NotClaimed {
    capability: String,
    reason: String,
    specs: usize,
}

fn not_claimed() -> Result<Vec<NotClaimed>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/expected/not-claimed.json");
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    serde_json::from_str(&text).with_context(|| format!("{path} is not what this test reads"))
}

fn compare(report: &Report, not_claimed: &[NotClaimed]) -> Result<()> {
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

    let mut skipped: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (spec, reason) in report.skipped() {
        skipped.entry(reason).or_default().push(spec);
    }
    for NotClaimed {
        capability,
        reason,
        specs,
    } in not_claimed
    {
        let found = skipped.remove(reason.as_str()).unwrap_or_default();
        ensure!(
            found.len() == *specs,
            "{capability}: {} specs and not {specs} are skipped: {found:#?}",
            found.len()
        );
    }
    ensure!(skipped.is_empty(), "skipped for no reason that is listed: {skipped:#?}");
    let expected = SPECS - not_claimed.iter().map(|entry| entry.specs).sum::<usize>();
    ensure!(
        report.passed() == expected,
        "{} specs passed and not {expected}",
        report.passed()
    );
    Ok(())
}
