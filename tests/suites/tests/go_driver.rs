//! The Go driver against the simulator: if it works unchanged, the simulator is true enough.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context as _, Result, ensure};
use suites::drivers::Driver;
use suites::lab::{Lab, in_lab};
use suites::life::Life;
use suites::sanity::{self, Access};
use suites::simulator::{REAL_LATENCIES, SERVER_ID, Simulator};

#[test]
fn the_go_driver_takes_a_volume_from_create_to_delete() {
    in_lab(async |lab| one_life(lab, "ext4").await);
}

async fn one_life(lab: Rc<Lab>, fs_type: &str) -> Result<()> {
    let simulator = Simulator::start(&lab, REAL_LATENCIES).await?;
    let driver = Driver::go(&lab, &simulator).await?;
    let life = Life::mounted(&lab, driver.channel(), driver.channel(), "pvc-go", fs_type)?;
    let (node_id, _) = life.node_info().await?;
    ensure!(
        node_id == SERVER_ID,
        "the node calls itself {node_id}: the metadata service was not asked"
    );

    let volume = life.create().await?;
    ensure!(simulator.volume_names().await? == ["pvc-go"]);
    let context = life.attach(&volume).await?;
    ensure!(lab.loop_devices().await?.len() == 1, "the attachment is no loop device");
    life.stage(&volume, &context).await?;
    life.publish(&volume, &context).await?;

    let target = life.target().display();
    lab.shell(&format!("echo precious > {target}/file; sync {target}/file"))
        .await?;
    let kind = lab
        .shell(&format!("findmnt --noheadings --output FSTYPE --target {target}/file"))
        .await?;
    ensure!(kind.trim() == fs_type, "the file is on {kind}");

    life.unpublish(&volume).await?;
    life.unstage(&volume).await?;
    ensure!(
        lab.mounts().await?.is_empty(),
        "left mounted: {:?}",
        lab.mounts().await?
    );
    life.detach(&volume).await?;
    ensure!(
        lab.loop_devices().await?.is_empty(),
        "the loop device outlives the attachment"
    );
    life.delete(&volume).await?;
    suites::lab::wait_for("the volume to go", std::time::Duration::from_secs(10), async || {
        Ok(simulator.volume_names().await?.is_empty().then_some(()))
    })
    .await?;
    driver.stop().await.context("the Go driver does not end")?;
    simulator.stop().await
}

#[test]
fn csi_sanity_finds_the_same_faults_in_the_go_driver_as_on_real_services() {
    in_lab(async |lab| {
        let simulator =
            Simulator::start(&lab, &format!("{REAL_LATENCIES},answer={}", std::env::var("ANSWER")?)).await?;
        let driver = Driver::go(&lab, &simulator).await?;
        let report = sanity::run(&lab, &driver, Access::Mount, &BTreeMap::from([("type", "fast")])).await?;
        println!("csi-sanity, Go driver, real latencies: {}", report.summary());
        let expected = sanity::read_list(&expected("go-driver.failed"))?;
        let failed: BTreeSet<String> = report.failed().into_iter().map(str::to_owned).collect();
        let (new, gone): (Vec<_>, Vec<_>) = (
            failed.difference(&expected).collect(),
            expected.difference(&failed).collect(),
        );
        ensure!(
            new.is_empty() && gone.is_empty(),
            "failed although it is not listed: {new:#?}\nlisted although it passed: {gone:#?}\nall failures:\n{}",
            report.failures()
        );
        driver.stop().await?;
        simulator.stop().await
    });
}

fn expected(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("expected").join(name)
}
