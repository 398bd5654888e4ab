// SPDX-License-Identifier: Apache-2.0
//! Kills the node driver inside mkfs, between two writes.

use std::pin::pin;

use anyhow::{Context as _, Result, bail};
use suites::drivers::Role;
use suites::lab::in_lab;
use suites::mkfs::StoppedMkfs;

use crate::report::{Report, seed};
use crate::run::Subject;
use crate::world::World;

/// Points per mkfs, distributed over its writes.
const POINTS: u32 = 5;

#[test]
fn format_survives_kill_inside_mkfs() {
    in_lab(async |lab| {
        let seed = seed()?;
        let report = Report::new(format!("inside mkfs (CRASH_SEED={seed})"));
        let mut world = World::start(lab).await?;
        // mkfs.ext4 makes about 150 writes, and mkfs.xfs about 65.
        for (fs_type, writes) in [("ext4", 150), ("xfs", 65)] {
            for number in 0..POINTS {
                let part = writes / POINTS;
                let after = (number * part + seed % part).max(1);
                inside(&mut world, fs_type, after)
                    .await
                    .with_context(|| format!("mkfs.{fs_type}, write {after}, CRASH_SEED={seed}"))?;
                let point = format!("NodeStageVolume: in mkfs.{fs_type}, after write {after}");
                report.life(vec![point], Vec::new());
            }
        }
        report.print();
        world.stop().await
    });
}

/// Runs a lifecycle whose first node process is killed after this number of mkfs writes.
async fn inside(world: &mut World, fs_type: &'static str, after: u32) -> Result<()> {
    let subject = Subject::mounted("pvc-mkfs", fs_type);
    let mkfs = StoppedMkfs::after(after, &world.lab, fs_type)?;
    world.start_node_with(mkfs.programs()).await?;
    let life = world.life(subject.name, subject.fs_type)?;
    let volume = life.create().await?;
    let context = life.attach(&volume).await?;
    let caught = {
        let stage = pin!(life.stage(&volume, &context));
        tokio::select! {
            done = stage => bail!("staged before mkfs was caught: {done:?}"),
            caught = mkfs.caught() => caught?,
        }
    };
    world.replace(Role::Node).await?;
    caught.ended().await?;
    let life = world.life(subject.name, subject.fs_type)?;
    life.bring_up(&volume).await?;
    life.write_file(&world.lab).await?;
    life.take_down(&volume).await?;
    life.bring_up(&volume).await?;
    life.expect_file(&world.lab).await?;
    life.take_down(&volume).await?;
    life.delete(&volume).await?;
    crate::state::nothing_in(&crate::state::collect(world).await?)
}
