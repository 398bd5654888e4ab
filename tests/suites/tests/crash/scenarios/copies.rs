// SPDX-License-Identifier: Apache-2.0
//! Snapshots, and volumes from snapshots and from volumes.

use anyhow::{Context as _, Result};
use suites::life::Source;

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
    let snapshot = run.snapshot(&SNAPSHOT, &SOURCE, "snapshot-early", &source, &[]).await?;
    run.write(&source, "late")?;
    let from = Source::Snapshot(snapshot.clone());
    let copy = run.copy(&FROM_SNAPSHOT, &COPY, 1, from).await?;
    run.expect(&copy, "early")?;
    run.expect(&source, "late")?;
    run.delete_snapshot(&DELETE_SNAPSHOT, &SOURCE, &snapshot).await?;
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
    let copy = run.copy(&CLONE, &COPY, 1, from).await?;
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
    run.write_file(&SMALL).await?;
    run.take_down(&SMALL, &source).await?;
    let from = Source::Volume(source.volume_id.clone());
    let copy = run.copy(&CLONE, &LARGE, 2, from).await?;
    let context = run.attach(&LARGE, &copy).await?;
    run.disturb();
    run.stage(&LARGE, &copy, &context).await?;
    run.expect_file(&LARGE).await?;
    run.shell(&LARGE, "test $(df --output=size TARGET | tail -1) -gt 1800000")
        .await
        .context("the file system has not grown")?;
    run.spare();
    run.take_down(&LARGE, &copy).await?;
    run.delete(&LARGE, &copy).await?;
    run.delete(&SMALL, &source).await
}
