// SPDX-License-Identifier: Apache-2.0
//! Expansion and modification of volumes.

use anyhow::{Context as _, Result, ensure};
use suites::life::Life;

use crate::run::{Run, Subject};
use crate::steps::{EXPAND, MODIFY, NODE_EXPAND};

// This machine grows a mounted ext4 only for processes with more capabilities than a test has.
const MOUNTED: Subject = Subject::mounted("pvc-growing", "xfs");
const BLOCK: Subject = Subject::block("pvc-growing-block");
const CHANGED: Subject = Subject::block("pvc-changing");

/// Expands a mounted file system.
pub(crate) async fn mounted(run: &mut Run<'_>) -> Result<()> {
    run.spare();
    let volume = run.create(&MOUNTED).await?;
    run.bring_up(&MOUNTED, &volume).await?;
    run.write_file(&MOUNTED).await?;
    run.disturb();
    let more = run
        .step(&EXPAND, &MOUNTED, async |life| life.expand(&volume, 2).await)
        .await?;
    ensure!(more, "a file system has nothing to grow");
    let expand = async |life: &Life| life.expand_on_node(&volume, 2).await;
    run.step(&NODE_EXPAND, &MOUNTED, expand).await?;
    run.expect_file(&MOUNTED).await?;
    run.shell(&MOUNTED, "test $(df --output=size TARGET | tail -1) -gt 1800000")
        .await
        .context("the file system has not grown")?;
    run.spare();
    run.take_down(&MOUNTED, &volume).await?;
    run.delete(&MOUNTED, &volume).await
}

/// Expands a raw device in use.
pub(crate) async fn block(run: &mut Run<'_>) -> Result<()> {
    run.spare();
    let volume = run.create(&BLOCK).await?;
    run.bring_up(&BLOCK, &volume).await?;
    run.shell(&BLOCK, "printf precious | dd of=TARGET conv=notrunc,fsync status=none")
        .await?;
    run.disturb();
    run.step(&EXPAND, &BLOCK, async |life| life.expand(&volume, 2).await)
        .await?;
    let expand = async |life: &Life| life.expand_on_node(&volume, 2).await;
    run.step(&NODE_EXPAND, &BLOCK, expand).await?;
    run.shell(
        &BLOCK,
        "test \"$(head -c 8 TARGET)\" = precious; test $(blockdev --getsize64 TARGET) = 2147483648",
    )
    .await
    .context("the data is not what was written, or the device has not grown")?;
    run.spare();
    run.take_down(&BLOCK, &volume).await?;
    run.delete(&BLOCK, &volume).await
}

/// Changes type and metadata.
pub(crate) async fn modified(run: &mut Run<'_>) -> Result<()> {
    run.spare();
    let volume = run.create(&CHANGED).await?;
    run.write(&volume, "precious")?;
    run.disturb();
    let changes = [("type", "slow"), ("metadata.tier", "silver")];
    run.step(&MODIFY, &CHANGED, async |life| life.modify(&volume, &changes).await)
        .await?;
    run.expect(&volume, "precious")?;
    run.spare();
    run.delete(&CHANGED, &volume).await
}
