// SPDX-License-Identifier: Apache-2.0
//! Runs the Go driver against the simulator, to check that the simulator is sufficiently accurate.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::wait_for;
use serde::Deserialize;
use suites::cloud::OtherLogin;
use suites::drivers::{Driver, Ours, Role};
use suites::expect::{expect_equal, expect_none};
use suites::lab::{Lab, in_lab};
use suites::life::Life;
use suites::real_cloud::RealCloud;
use suites::sanity::{self, Options, Report};
use suites::simulator::{REAL_LATENCIES, SERVER_ID, Simulator};

#[test]
fn go_driver_runs_volume_lifecycle() {
    in_lab(async |lab| one_life(lab, "ext4").await);
}

async fn one_life(lab: Rc<Lab>, fs_type: &str) -> Result<()> {
    let simulator = Simulator::start(&lab, REAL_LATENCIES).await?;
    let driver = Driver::go(&lab, &simulator).await?;
    let life = Life::mounted(&lab, driver.channel(), driver.channel(), "pvc-go", fs_type)?;
    let (node_id, _) = life.node_info().await?;
    // From the metadata service.
    expect_equal("id of the node", &node_id, SERVER_ID)?;

    let volume = life.create().await?;
    expect_equal("volumes", &simulator.volume_names().await?, &["pvc-go"])?;
    life.bring_up(&volume).await?;
    expect_equal("number of loop devices", &lab.loop_devices().await?.len(), &1)?;
    life.write_file(&lab).await?;
    let find = "findmnt --noheadings --output FSTYPE --target TARGET/file";
    expect_equal("file system", life.shell(&lab, find).await?.trim(), fs_type)?;

    life.unpublish(&volume).await?;
    life.unstage(&volume).await?;
    expect_none("mounts", &lab.mounts().await?)?;
    life.detach(&volume).await?;
    expect_none("loop devices", &lab.loop_devices().await?)?;
    life.delete(&volume).await?;
    wait_for("the volume to go", Duration::from_secs(10), async || {
        expect_none("volumes", &simulator.volume_names().await?)
    })
    .await?;
    driver.stop().await.context("the Go driver does not end")?;
    simulator.stop().await
}

#[test]
fn our_driver_continues_with_go_driver_volume() {
    in_lab(async |lab| {
        let simulator = Simulator::start(&lab, "").await?;
        let go = Driver::go(&lab, &simulator).await?;
        let life = Life::mounted(&lab, go.channel(), go.channel(), "pvc-inherited", "ext4")?;
        let volume = life.create().await?;
        // The Go driver does not wait for Cinder, so its attach is repeated until the volume is available.
        let context = life.bring_up(&volume).await?;
        life.write_file(&lab).await?;
        go.stop().await?;

        let ours = Ours::new(Role::Both).start(&lab, &simulator).await?;
        let life = life.over(ours.channel(), ours.channel());
        // The kubelet repeats these calls after a restart; they must have no effect.
        life.stage(&volume, &context).await?;
        life.publish(&volume, &context).await?;
        let again = life.attach(&volume).await?;
        // Our driver adds the size; the Go driver's entries are unchanged.
        let is_retained = context.iter().all(|(key, value)| again.get(key) == Some(value));
        ensure!(is_retained, "the publish context was {context:?} and is {again:?}");
        life.unpublish(&volume).await?;
        life.unstage(&volume).await?;
        // The next pod on this node.
        life.stage(&volume, &context).await?;
        life.publish(&volume, &context).await?;
        life.expect_file(&lab).await?;
        life.take_down(&volume).await?;
        life.delete(&volume).await?;
        expect_none("volumes", &simulator.volume_names().await?)?;
        ours.stop().await?;
        simulator.stop().await
    });
}

#[test]
fn go_driver_has_listed_faults_on_simulator() {
    in_lab(async |lab| {
        let simulator = Simulator::start(&lab, REAL_LATENCIES).await?;
        let driver = Driver::go(&lab, &simulator).await?;
        let options = Options {
            parameters: BTreeMap::from([("type", "fast")]),
            ..Options::default()
        };
        let report = sanity::run(&lab, &driver, &options).await?;
        report.announce("Go driver, latencies of real services");
        compare(&report, &Expected::read()?, TestedCloud::Simulator)?;
        driver.stop().await?;
        simulator.stop().await
    });
}

#[test]
#[ignore = "takes minutes: make sanity"]
fn go_driver_has_listed_faults_on_real_services() {
    in_lab(async |lab| {
        let cloud = RealCloud::start(&lab).await?;
        // The application credential of the cloud permits only the requests of our driver.
        let conf = cloud.member_conf().to_owned();
        let driver = Driver::go(&lab, &OtherLogin { conf }).await?;
        let options = Options {
            parameters: BTreeMap::from([("type", "fast")]),
            ..Options::default()
        };
        let report = sanity::run(&lab, &driver, &options).await?;
        report.announce("Go driver, real services");
        compare(&report, &Expected::read()?, TestedCloud::RealServices)?;
        driver.stop().await?;
        // Remaining resources are listed failures: a clean-up could not delete a volume.
        cloud.leave().await
    });
}

/// Expected failures, from `expected/go-driver.json`.
#[derive(Deserialize)]
struct Expected {
    /// Failures by kind. Most are races whose result depends on the load of the machine. A spec need not fail, but each
    /// kind must occur.
    kinds: Vec<Fault>,
    /// Failures that may occur in the clean-up of any spec.
    clean_up: CleanUp,
    passes_on_real_services: SimulatorFailures,
    skipped: usize,
}

/// The cloud of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TestedCloud {
    Simulator,
    RealServices,
}

#[derive(Deserialize)]
struct Fault {
    kind: String,
    /// Parts of the possible failure messages.
    messages: Vec<String>,
    specs: BTreeSet<String>,
}

/// Specs that fail only on the simulator.
#[derive(Deserialize)]
struct SimulatorFailures {
    specs: BTreeSet<String>,
}

impl Fault {
    fn explains(&self, spec: &str, reason: &str) -> bool {
        self.specs.contains(spec) && self.messages.iter().any(|message| reason.contains(message))
    }
}

#[derive(Deserialize)]
struct CleanUp {
    /// Parts of the possible failure messages.
    messages: Vec<String>,
}

impl CleanUp {
    fn explains(&self, reason: &str) -> bool {
        self.messages.iter().any(|message| reason.contains(message))
    }
}

impl Expected {
    fn read() -> Result<Self> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/expected/go-driver.json");
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        serde_json::from_str(&text).with_context(|| format!("{path} is not what this test reads"))
    }
}

fn compare(report: &Report, expected: &Expected, against: TestedCloud) -> Result<()> {
    let mut unexpected: Vec<String> = Vec::new();
    let mut seen = BTreeSet::new();
    for (spec, reason) in report.failures() {
        let kind = expected.kinds.iter().find(|kind| kind.explains(spec, reason));
        match kind {
            Some(kind) => {
                seen.insert(kind.kind.as_str());
            }
            None if expected.clean_up.explains(reason) => println!("{spec}: failed in its clean-up"),
            None => unexpected.push(format!("{spec}: {reason}")),
        }
    }
    let unexpected = unexpected.join("\n");
    ensure!(
        unexpected.is_empty(),
        "fails for no reason that is listed:\n{unexpected}"
    );
    let kinds = expected.kinds.iter().map(|kind| kind.kind.as_str());
    let missing: Vec<&str> = kinds.filter(|kind| !seen.contains(kind)).collect();
    ensure!(missing.is_empty(), "never happens: {missing:#?}");
    if against == TestedCloud::RealServices {
        let passing = &expected.passes_on_real_services.specs;
        let failed: Vec<&str> = report
            .failures()
            .filter(|(spec, reason)| passing.contains(*spec) && !expected.clean_up.explains(reason))
            .map(|(spec, _)| spec)
            .collect();
        // `expected` lists them as passing.
        expect_none("failures on real services", &failed)?;
    }
    expect_equal("number of skipped specs", &report.skipped().count(), &expected.skipped)
}
