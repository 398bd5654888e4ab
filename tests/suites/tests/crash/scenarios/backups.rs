// SPDX-License-Identifier: Apache-2.0
//! Backups, and volumes restored from them.

use std::time::Duration;

use anyhow::{Result, ensure};
use harness::wait_for_some;
use suites::life::{Life, Source};

use crate::run::{Run, Subject};
use crate::steps::{BACKUP, DELETE_BACKUP, DELETE_FROZEN_BACKUP, INCREMENTAL, RESTORE};
use crate::world::RPC_LIMIT;

const SOURCE: Subject = Subject::block("pvc-source");
const FULL: [(&str, &str); 1] = [("type", "backup")];
const MORE: [(&str, &str); 2] = [("type", "backup"), ("incremental", "true")];
const COPY: Subject = Subject::block("pvc-copy");
/// Longer than any test.
const FOR_EVER: Duration = Duration::from_hours(1);

/// Creates a backup, restores a volume from it, and deletes the backup before the volume.
pub(crate) async fn restored(run: &mut Run<'_>) -> Result<()> {
    run.spare();
    let source = run.create(&SOURCE).await?;
    run.write(&source, "early")?;
    run.disturb();
    let take = async |life: &Life| life.snapshot("backup-full", &source, &FULL).await;
    let backup = run.step(&BACKUP, &SOURCE, take).await?.snapshot_id;
    run.write(&source, "late")?;
    let from = Source::Snapshot(backup.clone());
    let restore = async |life: &Life| life.create_as(1, Some(&from)).await;
    let copy = run.step(&RESTORE, &COPY, restore).await?;
    run.expect(&copy, "early")?;
    run.spare();
    let delete = async |life: &Life| life.delete_snapshot(&backup).await;
    run.step(&DELETE_BACKUP, &SOURCE, delete).await?;
    run.expect(&copy, "early")?;
    run.expect(&source, "late")?;
    run.delete(&COPY, &copy).await?;
    run.delete(&SOURCE, &source).await
}

/// Creates an incremental backup, and deletes both backups in the order that the chain requires.
pub(crate) async fn incremental(run: &mut Run<'_>) -> Result<()> {
    run.spare();
    let source = run.create(&SOURCE).await?;
    run.write(&source, "early")?;
    let take = async |life: &Life| life.snapshot("backup-full", &source, &FULL).await;
    let first = run.step(&BACKUP, &SOURCE, take).await?.snapshot_id;
    run.write(&source, "late")?;
    run.disturb();
    let take = async |life: &Life| life.snapshot("backup-more", &source, &MORE).await;
    let second = run.step(&INCREMENTAL, &SOURCE, take).await?.snapshot_id;
    run.spare();
    let from = Source::Snapshot(second.clone());
    let restore = async |life: &Life| life.create_as(1, Some(&from)).await;
    let copy = run.step(&RESTORE, &COPY, restore).await?;
    run.expect(&copy, "late")?;
    run.disturb();
    let delete = async |life: &Life| life.delete_snapshot(&second).await;
    run.step(&DELETE_BACKUP, &SOURCE, delete).await?;
    run.spare();
    let delete = async |life: &Life| life.delete_snapshot(&first).await;
    run.step(&DELETE_BACKUP, &SOURCE, delete).await?;
    run.delete(&COPY, &copy).await?;
    run.delete(&SOURCE, &source).await
}

/// Deletes a backup whose creation no client repeats, so its temporary snapshot still exists.
pub(crate) async fn frozen(run: &mut Run<'_>) -> Result<()> {
    run.spare();
    let source = run.create(&SOURCE).await?;
    run.write(&source, "precious")?;
    let usual = run.latency("backup")?;
    run.world.simulator.set_latency("backup", FOR_EVER).await?;
    let begin = async |life: &Life| life.begin_snapshot("backup-frozen", &source, &FULL).await;
    let backup = run.step(&BACKUP, &SOURCE, begin).await?;
    ensure!(!backup.ready_to_use, "the backup is made, although nothing was to end");
    run.world.simulator.set_latency("backup", usual).await?;
    wait_for_some("the backup to be made", RPC_LIMIT, async || {
        let state = run.world.simulator.state().await?;
        Ok((state["backups"][0]["status"] == "available").then_some(()))
    })
    .await?;
    run.disturb();
    let delete = async |life: &Life| life.delete_snapshot(&backup.snapshot_id).await;
    run.step(&DELETE_FROZEN_BACKUP, &SOURCE, delete).await?;
    run.expect(&source, "precious")?;
    run.spare();
    run.delete(&SOURCE, &source).await
}
