// SPDX-License-Identifier: Apache-2.0
//! Tests of encrypted volume types, whose disks are smaller in a server than in Cinder.

use anyhow::{Context as _, Result, ensure};
use cinder_csi_driver::parameters::PUBLISH_SIZE;
use csi_proto::csi::v1::Volume;
use suites::drivers::Installation;
use suites::expect::expect_equal;
use suites::lab::{Lab, in_lab};
use suites::life::{GIB, Life};
use suites::simulator::Simulator;

const NAME: &str = "pvc-encrypted";
const MIB: i64 = 1 << 20;

#[test]
fn luks1_volume_expands_and_pod_restarts() {
    in_lab(async |lab| grows(&lab, 2).await);
}

#[test]
fn luks2_volume_expands_and_pod_restarts() {
    in_lab(async |lab| grows(&lab, 16).await);
}

/// Expands a volume with a header of this size from one to two GiB while a pod uses it, and again while the pod
/// restarts.
async fn grows(lab: &Lab, header_mib: i64) -> Result<()> {
    // Uses the default type, which is this one.
    let simulator = Simulator::start_with_types(lab, &[&format!("fast,encrypted={header_mib}")]).await?;
    let installation = Installation::start(lab, simulator).await?;
    // This machine grows a mounted ext4 only for processes with more capabilities than a test has.
    let life = installation.life(lab, NAME, "xfs")?;

    let volume = life.create().await?;
    let context = life.bring_up(&volume).await?;
    let has_size = context.contains_key(PUBLISH_SIZE);
    ensure!(!has_size, "the size of the disk is not known: {context:?}");
    life.write_file(lab).await?;
    ensure!(life.expand(&volume, 2).await?, "a file system has nothing to grow");
    let size = 2 * GIB - header_mib * MIB;
    expand_on_node(&life, &volume, size).await?;

    life.unpublish(&volume).await?;
    life.unstage(&volume).await?;
    life.stage(&volume, &context).await?;
    // The kubelet repeats the call as long as the claim's status has the old size.
    expand_on_node(&life, &volume, size).await?;
    life.publish(&volume, &context).await?;
    life.expect_file(lab).await?;
    let has_grown = "test $(df --output=size TARGET | tail -1) -gt 1900000";
    let has_grown = life.shell(lab, has_grown).await;
    has_grown.context("the file system has not grown")?;

    life.take_down(&volume).await?;
    life.delete(&volume).await?;
    ensure!(life.failures() == 0, "calls were repeated");
    installation.stop().await
}

/// Calls NodeExpandVolume for two GiB, and checks that it returns the size of the disk.
async fn expand_on_node(life: &Life, volume: &Volume, bytes: i64) -> Result<()> {
    let answered = life.expand_on_node(volume, 2).await?;
    expect_equal("size in the response", &answered, &bytes)
}
