// SPDX-License-Identifier: Apache-2.0
//! Sends the same requests to real services and to the simulator, and compares statuses, fields, and sequences of
//! states. Fails on differences that are not listed in `expected/fidelity.json`, and on listed ones that do not exist.

mod scenario;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use suites::cloud::Cloud as _;
use suites::lab::in_lab;
use suites::openstack::Api;
use suites::real_cloud::RealCloud;
use suites::shape;
use suites::simulator::{REAL_LATENCIES, SERVER_ID, Simulator};

use crate::scenario::{Observation, play};

const NAMES: (&str, &str) = ("real", "simulated");

#[test]
fn simulator_responds_like_real_services() {
    in_lab(async |lab| {
        let cloud = RealCloud::start(&lab).await?;
        let server = cloud.servers().first().context("no server")?.id.clone();
        let real = play(cloud.api(), &server).await.context("on real services")?;
        cloud.stop().await?;

        lab.shell("umount /dev/disk/by-id").await?;
        let simulator = Simulator::start(&lab, REAL_LATENCIES).await?;
        let api = Api::login(simulator.cloud_conf()).await?;
        let simulated = play(&api, SERVER_ID).await.context("on the simulator")?;
        simulator.stop().await?;

        compare(&differences(&real, &simulated))
    });
}

/// Returns the differences as `STEP: WHAT`.
fn differences(
    real: &BTreeMap<&'static str, Observation>,
    simulated: &BTreeMap<&'static str, Observation>,
) -> BTreeSet<String> {
    let mut collected: BTreeSet<String> = simulated
        .keys()
        .filter(|step| !real.contains_key(*step))
        .map(|step| format!("{step}: only simulated"))
        .collect();
    for (step, real) in real {
        let Some(simulated) = simulated.get(step) else {
            collected.insert(format!("{step}: only real"));
            continue;
        };
        if real.status != simulated.status {
            collected.insert(format!(
                "{step}: status: real {} ({}), simulated {} ({})",
                real.status, real.message, simulated.status, simulated.message
            ));
            continue;
        }
        if real.states.last() != simulated.states.last() {
            collected.insert(format!(
                "{step}: states: real {:?}, simulated {:?}",
                real.states, simulated.states
            ));
        }
        for difference in shape::differences(&real.shape, &simulated.shape, NAMES) {
            collected.insert(format!("{step}: {difference}"));
        }
    }
    collected
}

/// A known difference and its reason.
#[derive(Deserialize)]
struct KnownDifference {
    difference: String,
    reason: String,
}

fn compare(found: &BTreeSet<String>) -> Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/expected/fidelity.json");
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let known: Vec<KnownDifference> =
        serde_json::from_str(&text).with_context(|| format!("{path} is not what this test reads"))?;
    ensure!(
        known.iter().all(|known| !known.reason.is_empty()),
        "a difference without a reason"
    );
    let known: BTreeSet<String> = known.into_iter().map(|known| known.difference).collect();
    let new: Vec<&String> = found.difference(&known).collect();
    let outdated: Vec<&String> = known.difference(found).collect();
    ensure!(
        new.is_empty() && outdated.is_empty(),
        "differences that are not listed: {new:#?}\nlisted ones that are gone: {outdated:#?}"
    );
    Ok(())
}
