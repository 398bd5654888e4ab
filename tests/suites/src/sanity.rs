//! csi-sanity and what it reports.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::drivers::Driver;
use crate::ginkgo::{self, Outcome};
use crate::lab::Lab;
use crate::process::Process;
use crate::programs;

/// Specs of csi-sanity v5.6.0 that can run; one more is marked as pending by its authors.
pub const SPECS: usize = 102;
/// How often the specs on idempotency repeat a call: `IdempotentCount`, for which the program has no flag.
pub const REPEATS: usize = 10;
const TIMEOUT: Duration = Duration::from_mins(8);
const CLEAN_UP: Duration = Duration::from_secs(45);

/// How a volume is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Access {
    /// With a file system on it.
    #[default]
    Mount,
    /// As a device.
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

/// What a run reported: every spec by its whole name.
#[derive(Debug)]
pub struct Report {
    specs: BTreeMap<String, Outcome>,
}

impl Report {
    /// How many specs passed.
    pub fn passed(&self) -> usize {
        self.specs
            .values()
            .filter(|outcome| **outcome == Outcome::Passed)
            .count()
    }

    /// The skipped specs with their reasons.
    pub fn skipped(&self) -> impl Iterator<Item = (&str, &str)> {
        self.specs.iter().filter_map(|(name, outcome)| match outcome {
            Outcome::Skipped(reason) => Some((name.as_str(), reason.as_str())),
            _ => None,
        })
    }

    /// The failures with their reasons.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.specs.iter().filter_map(|(name, outcome)| match outcome {
            Outcome::Failed(reason) => Some((name.as_str(), reason.as_str())),
            _ => None,
        })
    }

    /// Prints one line: how many specs ran, passed, failed, were skipped. It is shown even where the output of tests that
    /// pass is not.
    pub fn announce(&self, what: &str) {
        let (passed, failed, skipped) = (self.passed(), self.failures().count(), self.skipped().count());
        let ran = passed + failed;
        let line =
            format!("csi-sanity, {what}: {ran} specs run: {passed} passed, {failed} failed; {skipped} skipped\n");
        // Nobody reads it where standard error is closed.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    fn read(path: &Path) -> Result<Self> {
        let specs = ginkgo::read(path).context("csi-sanity")?;
        let specs: BTreeMap<_, _> = specs.into_iter().map(|spec| (spec.name, spec.outcome)).collect();
        let found = specs.values().filter(|outcome| **outcome != Outcome::Pending).count();
        if found != SPECS {
            bail!("csi-sanity has {found} specs and not {SPECS}: has its version changed?");
        }
        Ok(Self { specs })
    }
}

/// The calls that reached our driver, as the lines of its JSON log tell.
#[derive(Debug, Default)]
pub struct Calls {
    /// How often each RPC ended with each code, by volume.
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

    /// How often an RPC ended with this code.
    pub fn count(&self, rpc: &str, code: &str) -> usize {
        self.by_volume(rpc, code).sum()
    }

    /// How often an RPC succeeded for the one volume for which it did so most often.
    pub fn repeats(&self, rpc: &str) -> usize {
        self.by_volume(rpc, "OK").max().unwrap_or_default()
    }

    fn by_volume(&self, rpc: &str, code: &str) -> impl Iterator<Item = usize> {
        let found = self.ended.get(&(rpc.to_owned(), code.to_owned()));
        found.into_iter().flat_map(|by_volume| by_volume.values().copied())
    }
}

/// What differs from the suite's defaults.
#[derive(Debug, Clone, Default)]
pub struct Options<'a> {
    /// How volumes are used.
    pub access: Access,
    /// Parameters of the StorageClass.
    pub parameters: BTreeMap<&'static str, &'static str>,
    /// Parameters of a VolumeAttributesClass.
    pub mutable_parameters: BTreeMap<&'static str, &'static str>,
    /// Fills the node up to its limit of volumes and asks for one more.
    pub attach_limit: bool,
    /// Where the Controller service is, if not beside the Node service.
    pub controller: Option<&'a Driver>,
}

/// Runs csi-sanity against a driver to its end.
pub async fn run(lab: &Lab, driver: &Driver, options: &Options<'_>) -> Result<Report> {
    let report = lab.path("sanity-report.json");
    let mut command = lab.command(programs::csi_sanity()?)?;
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
    // ginkgo ends the suite itself at its own limit; the grace is for its clean-up.
    process.wait(TIMEOUT + CLEAN_UP).await?;
    Report::read(&report)
}
