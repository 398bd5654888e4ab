// SPDX-License-Identifier: Apache-2.0
//! Backups, and volumes restored from them.

use std::time::Duration;

use anyhow::{Result, ensure};
use harness::wait_for;
use suites::expect::expect_field;
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
    let backup = run.snapshot(&BACKUP, &SOURCE, "backup-full", &source, &FULL).await?;
    run.write(&source, "late")?;
    let from = Source::Snapshot(backup.clone());
    let copy = run.copy(&RESTORE, &COPY, 1, from).await?;
    run.expect(&copy, "early")?;
    run.spare();
    run.delete_snapshot(&DELETE_BACKUP, &SOURCE, &backup).await?;
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
    let first = run.snapshot(&BACKUP, &SOURCE, "backup-full", &source, &FULL).await?;
    run.write(&source, "late")?;
    run.disturb();
    let second = run
        .snapshot(&INCREMENTAL, &SOURCE, "backup-more", &source, &MORE)
        .await?;
    run.spare();
    let from = Source::Snapshot(second.clone());
    let copy = run.copy(&RESTORE, &COPY, 1, from).await?;
    run.expect(&copy, "late")?;
    run.disturb();
    run.delete_snapshot(&DELETE_BACKUP, &SOURCE, &second).await?;
    run.spare();
    run.delete_snapshot(&DELETE_BACKUP, &SOURCE, &first).await?;
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
    wait_for("the backup to be available", RPC_LIMIT, async || {
        let state = run.world.simulator.state().await?;
        expect_field(&state, "/backups/0/status", "available")
    })
    .await?;
    run.disturb();
    run.delete_snapshot(&DELETE_FROZEN_BACKUP, &SOURCE, &backup.snapshot_id)
        .await?;
    run.expect(&source, "precious")?;
    run.spare();
    run.delete(&SOURCE, &source).await
}
