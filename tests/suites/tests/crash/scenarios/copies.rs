// SPDX-License-Identifier: Apache-2.0
//! Snapshots, and volumes from snapshots and from volumes.

use anyhow::{Context as _, Result};
use suites::life::{Life, Source};

use crate::run::{Run, Subject};
use crate::steps::{CLONE, DELETE_SNAPSHOT, FROM_SNAPSHOT, SNAPSHOT};

const SOURCE: Subject = Subject::block("pvc-source");
const COPY: Subject = Subject::block("pvc-copy");
const SMALL: Subject = Subject::mounted("pvc-small", "ext4");
const LARGE: Subject = Subject::mounted("pvc-large", "ext4");

/// A snapshot retains the data of its time, and is deleted after a volume was created from it.
pub(crate) async fn snapshot(run: &mut Run<'_>) -> Result<()> {
    run.spare();
    let source = run.create(&SOURCE).await?;
    run.write(&source, "early")?;
    run.disturb();
    let take = async |life: &Life| life.snapshot("snapshot-early", &source, &[]).await;
    let snapshot = run.step(&SNAPSHOT, &SOURCE, take).await?;
    run.write(&source, "late")?;
    let from = Source::Snapshot(snapshot.snapshot_id.clone());
    let fill = async |life: &Life| life.create_as(1, Some(&from)).await;
    let copy = run.step(&FROM_SNAPSHOT, &COPY, fill).await?;
    run.expect(&copy, "early")?;
    run.expect(&source, "late")?;
    let delete = async |life: &Life| life.delete_snapshot(&snapshot.snapshot_id).await;
    run.step(&DELETE_SNAPSHOT, &SOURCE, delete).await?;
    run.expect(&copy, "early")?;
    run.expect(&source, "late")?;
    run.spare();
    run.delete(&COPY, &copy).await?;
    run.delete(&SOURCE, &source).await
}

/// Clones a volume.
pub(crate) async fn clone(run: &mut Run<'_>) -> Result<()> {
    run.spare();
    let source = run.create(&SOURCE).await?;
    run.write(&source, "precious")?;
    run.disturb();
    let from = Source::Volume(source.volume_id.clone());
    let fill = async |life: &Life| life.create_as(1, Some(&from)).await;
    let copy = run.step(&CLONE, &COPY, fill).await?;
    run.expect(&copy, "precious")?;
    run.expect(&source, "precious")?;
    run.spare();
    run.delete(&COPY, &copy).await?;
    run.delete(&SOURCE, &source).await
}

/// Creates a larger volume with the file system of a smaller one, which grows at NodeStageVolume.
pub(crate) async fn larger(run: &mut Run<'_>) -> Result<()> {
    run.spare();
    let source = run.create(&SMALL).await?;
    run.bring_up(&SMALL, &source).await?;
    run.shell(&SMALL, "echo precious > TARGET/file; sync TARGET/file")
        .await?;
    run.take_down(&SMALL, &source).await?;
    let from = Source::Volume(source.volume_id.clone());
    let fill = async |life: &Life| life.create_as(2, Some(&from)).await;
    let copy = run.step(&CLONE, &LARGE, fill).await?;
    let context = run.attach(&LARGE, &copy).await?;
    run.disturb();
    run.stage(&LARGE, &copy, &context).await?;
    run.shell(
        &LARGE,
        "grep -qx precious TARGET/file; test $(df --output=size TARGET | tail -1) -gt 1800000",
    )
    .await
    .context("the data is not what was written, or the file system has not grown")?;
    run.spare();
    run.take_down(&LARGE, &copy).await?;
    run.delete(&LARGE, &copy).await?;
    run.delete(&SMALL, &source).await
}
