// SPDX-License-Identifier: Apache-2.0
//! Runs csi-sanity and reads its report.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use crate::drivers::Driver;
use crate::ginkgo::{self, Outcome};
use crate::lab::Lab;
use crate::process::Process;
use crate::programs;

/// Number of specs of csi-sanity v5.6.0 that can run; its authors marked one more as pending.
pub const SPECS: usize = 102;
/// Number of repeated calls in the idempotency specs: `IdempotentCount`, for which there is no flag.
pub const REPEATS: usize = 10;
/// Limit of a run. Real services on a busy machine need more than eight minutes.
const TIMEOUT: Duration = Duration::from_mins(20);
const CLEAN_UP: Duration = Duration::from_secs(45);

/// Specs of csi-sanity v5.6.0 as published that a correct driver fails; see docs/conformance.md.
pub const DECIDED_BY_CORRECTION: &[&str] =
    &["CreateSnapshot [Controller Server] should succeed when creating a snapshot with accessibility requirements"];
/// The field that differs between equal messages in these specs, which the failure message prints.
const FIELD: &str = "sizeCache";

/// The build of csi-sanity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Suite {
    /// With one corrected comparison.
    #[default]
    Corrected,
    /// As published.
    Published,
}

impl Suite {
    fn program(self) -> Result<PathBuf> {
        match self {
            Self::Corrected => programs::csi_sanity(),
            Self::Published => programs::csi_sanity_published(),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Corrected => "csi-sanity, one comparison corrected",
            Self::Published => "csi-sanity as published",
        }
    }

    /// Returns the specs that must fail.
    const fn wrong(self) -> &'static [&'static str] {
        match self {
            Self::Corrected => &[],
            Self::Published => DECIDED_BY_CORRECTION,
        }
    }
}

/// Use of a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Access {
    /// With a file system.
    #[default]
    Mount,
    /// As a raw block device.
    Block,
}

impl Access {
    const fn name(self) -> &'static str {
        match self {
            Self::Mount => "mount",
            Self::Block => "block",
        }
    }
}

/// Results of a run, by full name of the spec.
#[derive(Debug)]
pub struct Report {
    suite: Suite,
    specs: BTreeMap<String, Outcome>,
}

impl Report {
    /// Returns the number of passed specs.
    pub fn passed(&self) -> usize {
        self.specs
            .values()
            .filter(|outcome| **outcome == Outcome::Passed)
            .count()
    }

    /// Returns the skipped specs with their reasons.
    pub fn skipped(&self) -> impl Iterator<Item = (&str, &str)> {
        self.specs.iter().filter_map(|(name, outcome)| match outcome {
            Outcome::Skipped(reason) => Some((name.as_str(), reason.as_str())),
            _ => None,
        })
    }

    /// Returns the failures with their reasons.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.specs.iter().filter_map(|(name, outcome)| match outcome {
            Outcome::Failed(reason) => Some((name.as_str(), reason.as_str())),
            _ => None,
        })
    }

    /// Prints one line with the number of specs that ran, passed, failed and were skipped. The test framework does not
    /// capture it.
    pub fn announce(&self, what: &str) {
        let (passed, failed, skipped) = (self.passed(), self.failures().count(), self.skipped().count());
        let (suite, ran) = (self.suite.name(), passed + failed);
        let line = format!("{suite}, {what}: {ran} specs run: {passed} passed, {failed} failed; {skipped} skipped\n");
        // Standard error may be closed.
        drop(std::io::stderr().write_all(line.as_bytes()));
    }

    /// Checks that all specs ran and passed, except those with a fault in the suite itself, which must fail for that
    /// reason.
    pub fn check(&self) -> Result<()> {
        let failures: Vec<String> = self
            .failures()
            .filter(|(spec, reason)| !(self.suite.wrong().contains(spec) && reason.contains(FIELD)))
            .map(|(spec, reason)| format!("* {spec}\n{reason}"))
            .collect();
        ensure!(
            failures.is_empty(),
            "{} specs failed:\n{}",
            failures.len(),
            failures.join("\n")
        );
        let skipped: Vec<(&str, &str)> = self.skipped().collect();
        ensure!(skipped.is_empty(), "skipped: {skipped:#?}");
        let outdated: Vec<&&str> = self
            .suite
            .wrong()
            .iter()
            .filter(|spec| !matches!(self.specs.get(**spec), Some(Outcome::Failed(_))))
            .collect();
        ensure!(
            outdated.is_empty(),
            "the list of specs that fail as published is outdated, these do not: {outdated:#?}"
        );
        let expected = SPECS - self.suite.wrong().len();
        ensure!(
            self.passed() == expected,
            "{} specs passed and not {expected}",
            self.passed()
        );
        Ok(())
    }

    fn read(suite: Suite, path: &Path) -> Result<Self> {
        let specs = ginkgo::read(path).context("csi-sanity")?;
        let specs: BTreeMap<_, _> = specs.into_iter().map(|spec| (spec.name, spec.outcome)).collect();
        let ran = specs.values().filter(|outcome| **outcome != Outcome::Pending).count();
        if ran != SPECS {
            bail!("csi-sanity has {ran} specs and not {SPECS}: has its version changed?");
        }
        Ok(Self { suite, specs })
    }
}

/// Calls of the suite, according to the driver's JSON log.
#[derive(Debug, Default)]
pub struct Calls {
    /// Numbers of completed RPCs by code, per volume.
    ended: BTreeMap<(String, String), BTreeMap<String, usize>>,
}

#[derive(Deserialize)]
struct Ended {
    rpc: String,
    code: String,
    volume: String,
}

impl Calls {
    /// Reads the logs of the driver's processes.
    pub fn read(logs: &[String]) -> Self {
        let mut calls = Self::default();
        let lines = logs.iter().flat_map(|log| log.lines());
        for Ended { rpc, code, volume } in lines.filter_map(|line| serde_json::from_str(line).ok()) {
            let by_volume = calls.ended.entry((rpc, code)).or_default();
            *by_volume.entry(volume).or_default() += 1;
        }
        calls
    }

    /// Returns the number of calls of an RPC with this code.
    pub fn count(&self, rpc: &str, code: &str) -> usize {
        self.by_volume(rpc, code).sum()
    }

    /// Returns the highest number of successful calls of an RPC for one volume.
    pub fn repeats(&self, rpc: &str) -> usize {
        self.by_volume(rpc, "OK").max().unwrap_or_default()
    }

    fn by_volume(&self, rpc: &str, code: &str) -> impl Iterator<Item = usize> {
        let counts = self.ended.get(&(rpc.to_owned(), code.to_owned()));
        counts.into_iter().flat_map(|by_volume| by_volume.values().copied())
    }
}

/// Options of the suite.
#[derive(Debug, Clone, Default)]
pub struct Options<'a> {
    /// The build of csi-sanity.
    pub suite: Suite,
    /// Use of volumes.
    pub access: Access,
    /// Parameters of the StorageClass.
    pub parameters: BTreeMap<&'static str, &'static str>,
    /// Parameters of a VolumeAttributesClass.
    pub mutable_parameters: BTreeMap<&'static str, &'static str>,
    /// Whether to fill the node up to its volume limit and request one more.
    pub attach_limit: bool,
    /// The driver with the Controller service, if it is another process.
    pub controller: Option<&'a Driver>,
}

/// Runs csi-sanity against a driver.
pub async fn run(lab: &Lab, driver: &Driver, options: &Options<'_>) -> Result<Report> {
    let report = lab.path("sanity-report.json");
    let mut command = lab.command(options.suite.program()?)?;
    command
        .arg(format!("--csi.endpoint=unix://{}", driver.socket().display()))
        .arg(format!("--csi.mountdir={}", lab.path("target").display()))
        .arg(format!("--csi.stagingdir={}", lab.path("staging").display()))
        .arg(format!("--csi.testvolumeaccesstype={}", options.access.name()))
        .arg(format!("--csi.testnodevolumeattachlimit={}", options.attach_limit))
        .arg(format!("--ginkgo.json-report={}", report.display()))
        .args(["--ginkgo.no-color", "--ginkgo.v", "--ginkgo.seed=1"])
        .arg(format!("--ginkgo.timeout={}s", TIMEOUT.as_secs()));
    if let Some(controller) = options.controller {
        command.arg(format!(
            "--csi.controllerendpoint=unix://{}",
            controller.socket().display()
        ));
    }
    let files = [
        ("testvolumeparameters", &options.parameters),
        ("testvolumemutableparameters", &options.mutable_parameters),
    ];
    for (flag, parameters) in files {
        if !parameters.is_empty() {
            let file = lab.path(&format!("{flag}.yaml"));
            let lines: Vec<String> = parameters
                .iter()
                .map(|(key, value)| format!("{key}: {value}\n"))
                .collect();
            fs::write(&file, lines.concat()).with_context(|| format!("cannot write {}", file.display()))?;
            command.arg(format!("--csi.{flag}={}", file.display()));
        }
    }
    let process = Process::spawn("csi-sanity", command, &lab.path("sanity.log"))?;
    // ginkgo has the same limit and then cleans up in the grace period.
    process.wait(TIMEOUT + CLEAN_UP).await?;
    Report::read(options.suite, &report)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRONG: &str = DECIDED_BY_CORRECTION[0];
    const REASON: &str = "failed: Expected … sizeCache: 0, to equal … sizeCache: 49";

    /// Returns a report in which all specs passed, except these.
    fn report(suite: Suite, others: &[(&str, Outcome)]) -> Report {
        let named = DECIDED_BY_CORRECTION
            .iter()
            .map(|spec| ((*spec).to_owned(), Outcome::Passed));
        let rest = (DECIDED_BY_CORRECTION.len()..SPECS).map(|number| (format!("spec {number}"), Outcome::Passed));
        let mut specs: BTreeMap<String, Outcome> = named.chain(rest).collect();
        for (spec, outcome) in others {
            specs.insert((*spec).to_owned(), outcome.clone());
        }
        Report { suite, specs }
    }

    fn failed(reason: &str) -> Outcome {
        Outcome::Failed(reason.to_owned())
    }

    fn complaint(report: &Report) -> String {
        report.check().unwrap_err().to_string()
    }

    #[test]
    fn corrected_suite_requires_all_specs() {
        report(Suite::Corrected, &[]).check().unwrap();
        let one = report(Suite::Corrected, &[(WRONG, failed(REASON))]);
        assert!(complaint(&one).contains(WRONG));
    }

    #[test]
    fn published_suite_permits_only_listed_failures() {
        report(Suite::Published, &[(WRONG, failed(REASON))]).check().unwrap();
        let another = report(Suite::Published, &[(WRONG, failed(REASON)), ("spec 7", failed(REASON))]);
        assert!(complaint(&another).contains("spec 7"));
        let otherwise = report(Suite::Published, &[(WRONG, failed("no such volume"))]);
        assert!(complaint(&otherwise).contains("no such volume"));
    }

    #[test]
    fn passing_or_missing_listed_spec_fails() {
        let passed = report(Suite::Published, &[]);
        assert!(complaint(&passed).contains("outdated"));
        let mut missing = report(Suite::Published, &[("one more", Outcome::Passed)]);
        missing.specs.remove(WRONG);
        assert!(complaint(&missing).contains("outdated"));
    }

    #[test]
    fn skipped_or_missing_spec_fails() {
        for suite in [Suite::Corrected, Suite::Published] {
            let wrong = suite.wrong().iter().map(|spec| (*spec, failed(REASON)));
            let wrong: Vec<_> = wrong.collect();
            let mut skipped = report(suite, &wrong);
            skipped
                .specs
                .insert("spec 7".to_owned(), Outcome::Skipped("no tape".to_owned()));
            assert!(complaint(&skipped).contains("no tape"));
            let mut lost = report(suite, &wrong);
            lost.specs.remove("spec 7");
            assert!(complaint(&lost).contains("passed and not"));
        }
    }
}
