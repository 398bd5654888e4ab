// SPDX-License-Identifier: Apache-2.0
//! Runs csi-sanity against our driver on real loop devices: with the simulator, and with real Keystone, Cinder and
//! Nova.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use harness::workspace_root;
use suites::cloud::Cloud;
use suites::contracts;
use suites::drivers::{Ours, Role};
use suites::lab::{Lab, in_lab};
use suites::openstack::Api;
use suites::real_cloud::RealCloud;
use suites::sanity::{self, Access, Calls, DECIDED_BY_CORRECTION, Options, REPEATS, Suite};
use suites::simulator::Simulator;

/// Volume limit of the node. It is low, because the suite fills the node up to it.
const LIMIT: u32 = 4;

#[test]
fn csi_sanity_passes_with_mounted_volumes() {
    in_lab(async |lab| on_simulator(&lab, Suite::Corrected, Access::Mount, Processes::One).await);
}

#[test]
fn csi_sanity_passes_with_block_volumes() {
    in_lab(async |lab| on_simulator(&lab, Suite::Corrected, Access::Block, Processes::One).await);
}

#[test]
fn csi_sanity_passes_with_mounts_two_processes() {
    in_lab(async |lab| on_simulator(&lab, Suite::Corrected, Access::Mount, Processes::Two).await);
}

#[test]
fn csi_sanity_passes_with_blocks_two_processes() {
    in_lab(async |lab| on_simulator(&lab, Suite::Corrected, Access::Block, Processes::Two).await);
}

#[test]
fn published_csi_sanity_fails_only_in_listed_specs() {
    in_lab(async |lab| on_simulator(&lab, Suite::Published, Access::Mount, Processes::One).await);
}

#[test]
fn real_csi_sanity_passes_with_mounts_two_processes() {
    in_lab(async |lab| on_real_services(&lab, Suite::Corrected, Access::Mount, Processes::Two).await);
}

#[test]
#[ignore = "takes minutes: make sanity"]
fn real_csi_sanity_passes_with_mounts() {
    in_lab(async |lab| on_real_services(&lab, Suite::Corrected, Access::Mount, Processes::One).await);
}

#[test]
#[ignore = "takes minutes: make sanity"]
fn real_csi_sanity_passes_with_blocks() {
    in_lab(async |lab| on_real_services(&lab, Suite::Corrected, Access::Block, Processes::One).await);
}

#[test]
#[ignore = "takes minutes: make sanity"]
fn real_csi_sanity_passes_with_blocks_two_processes() {
    in_lab(async |lab| on_real_services(&lab, Suite::Corrected, Access::Block, Processes::Two).await);
}

#[test]
#[ignore = "takes minutes: make sanity"]
fn real_published_csi_sanity_fails_only_listed_specs() {
    in_lab(async |lab| on_real_services(&lab, Suite::Published, Access::Mount, Processes::Two).await);
}

#[tokio::test]
async fn conformance_page_explains_corrected_comparison() -> Result<()> {
    let read = |path| fs::read_to_string(workspace_root().join(path)).with_context(|| format!("cannot read {path}"));
    let (page, build) = (read("docs/conformance.md")?, read("tests/tools/build")?);
    for spec in DECIDED_BY_CORRECTION {
        ensure!(page.contains(&format!("`{spec}`")), "the page does not name {spec}");
    }
    for name in ["WRONG", "RIGHT"] {
        let line = build
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix("='")?.strip_suffix('\''));
        let line = line.with_context(|| format!("tests/tools/build sets no {name}"))?;
        ensure!(
            page.contains(&format!("```go\n{line}\n```\n")),
            "the page does not quote {line}"
        );
    }
    let shown = contracts::equality().await?;
    ensure!(
        page.contains(&format!("```text\n{shown}```\n")),
        "the page does not quote what tests/tools/contracts/equality prints:\n{shown}"
    );
    Ok(())
}

/// Number of driver processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Processes {
    /// One with all services.
    One,
    /// A controller, and a node without credentials.
    Two,
}

async fn on_simulator(lab: &Lab, suite: Suite, access: Access, processes: Processes) -> Result<()> {
    let simulator = Simulator::start(lab, "").await?;
    run(lab, &simulator, suite, access, processes, "the simulator").await?;
    let remaining = Api::login(simulator.cloud_conf()).await?.block_storage().await?;
    ensure!(remaining.is_empty(), "left in the simulator: {remaining:#?}");
    simulator.stop().await
}

async fn on_real_services(lab: &Lab, suite: Suite, access: Access, processes: Processes) -> Result<()> {
    let cloud = RealCloud::start(lab).await?;
    run(lab, &cloud, suite, access, processes, "real services").await?;
    cloud.stop().await
}

/// Checks that every spec runs and passes, except those with a fault in the suite itself, and that nothing remains.
async fn run(
    lab: &Lab,
    cloud: &impl Cloud,
    suite: Suite,
    access: Access,
    processes: Processes,
    on: &str,
) -> Result<()> {
    // The suite sets no file system, and one of its specs expands a mounted volume. ext4 permits that only with
    // CAP_SYS_RESOURCE, which root lacks in many containers.
    let limit = lab.path("limit.conf");
    fs::write(&limit, format!("[BlockStorage]\nnode-volume-attach-limit = {LIMIT}\n"))?;
    let start = async |role| {
        let ours = Ours::new(role).json_log().flag("--default-fs-type=xfs");
        let limit = match role {
            // The node process has no cloud.conf.
            Role::Node => format!("--max-volumes-per-node={LIMIT}"),
            Role::Controller | Role::Both => format!("--cloud-config={}", limit.display()),
        };
        ours.flag(limit).start(lab, cloud).await
    };
    let (node, controller) = match processes {
        Processes::One => (start(Role::Both).await?, None),
        Processes::Two => (start(Role::Node).await?, Some(start(Role::Controller).await?)),
    };
    let options = Options {
        suite,
        access,
        parameters: BTreeMap::from([("type", "fast")]),
        mutable_parameters: BTreeMap::from([("type", "slow")]),
        attach_limit: true,
        controller: controller.as_ref(),
    };
    let report = sanity::run(lab, &node, &options).await?;
    report.announce(&format!(
        "our driver on {on}, {access:?} volumes, processes: {processes:?}"
    ));
    report
        .check()
        .with_context(|| controller.as_ref().unwrap_or(&node).tail())?;
    let mut logs = vec![node.log()?];
    if let Some(controller) = &controller {
        logs.push(controller.log()?);
    }
    check_calls(&Calls::read(&logs))?;
    let mounts = lab.mounts().await?;
    ensure!(mounts.is_empty(), "mounts are left: {mounts:?}");
    node.stop().await?;
    match controller {
        Some(controller) => controller.stop().await,
        None => Ok(()),
    }
}

/// Checks that optional calls of the suite, and repeated ones, have reached the driver.
fn check_calls(calls: &Calls) -> Result<()> {
    for rpc in ["ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume"] {
        let repeats = calls.repeats(rpc);
        ensure!(
            repeats == REPEATS,
            "{rpc} was repeated {repeats} times for one volume and not {REPEATS}"
        );
    }
    // Results of the mutable parameters, the volume limit, and missing volumes.
    for (rpc, code) in [
        ("ControllerModifyVolume", "OK"),
        ("ControllerModifyVolume", "INVALID_ARGUMENT"),
        ("ControllerPublishVolume", "RESOURCE_EXHAUSTED"),
    ] {
        ensure!(calls.count(rpc, code) > 0, "{rpc} never ended with {code}");
    }
    Ok(())
}
