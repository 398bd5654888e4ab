// SPDX-License-Identifier: Apache-2.0
//! A volume with a file system and a raw one, from creation to deletion.

use anyhow::{Context as _, Result};

use crate::run::{Run, Subject};

const MOUNTED: Subject = Subject::mounted("pvc-mounted", "ext4");
const BLOCK: Subject = Subject::block("pvc-block");

/// Creates, uses, detaches, reuses and deletes a volume.
pub(crate) async fn mounted(run: &mut Run<'_>) -> Result<()> {
    let volume = run.create(&MOUNTED).await?;
    run.bring_up(&MOUNTED, &volume).await?;
    run.write_file(&MOUNTED).await?;
    run.take_down(&MOUNTED, &volume).await?;
    run.spare();
    let context = run.attach(&MOUNTED, &volume).await?;
    // The volume has a file system now, so NodeStageVolume runs other commands.
    run.disturb();
    run.stage(&MOUNTED, &volume, &context).await?;
    run.expect_file(&MOUNTED).await?;
    run.spare();
    run.take_down(&MOUNTED, &volume).await?;
    run.disturb();
    run.delete(&MOUNTED, &volume).await
}

/// The same with a raw device.
pub(crate) async fn block(run: &mut Run<'_>) -> Result<()> {
    run.spare();
    let volume = run.create(&BLOCK).await?;
    let context = run.attach(&BLOCK, &volume).await?;
    run.disturb();
    run.stage(&BLOCK, &volume, &context).await?;
    run.shell(&BLOCK, "printf precious | dd of=TARGET conv=notrunc,fsync status=none")
        .await?;
    run.take_down(&BLOCK, &volume).await?;
    run.spare();
    run.bring_up(&BLOCK, &volume).await?;
    run.shell(&BLOCK, "test \"$(head -c 8 TARGET)\" = precious")
        .await
        .context("the data is not what was written")?;
    run.take_down(&BLOCK, &volume).await?;
    run.delete(&BLOCK, &volume).await
}
