// SPDX-License-Identifier: Apache-2.0
//! Group snapshots.

use anyhow::{Context as _, Result};
use suites::life::{Life, Source};

use crate::run::{Run, Subject};
use crate::steps::{DELETE_GROUP_SNAPSHOT, FROM_MEMBER, GROUP_SNAPSHOT};

const ONE: Subject = Subject::block("pvc-one");
const OTHER: Subject = Subject::block("pvc-other");
const COPY: Subject = Subject::block("pvc-copy");

const TOGETHER: [(&str, &str); 1] = [("group-type", "consistent")];

/// Takes a group snapshot of two volumes, restores a volume from a member, and deletes all.
pub(crate) async fn snapshot(run: &mut Run<'_>) -> Result<()> {
    run.spare();
    let one = run.create(&ONE).await?;
    let other = run.create(&OTHER).await?;
    run.write(&one, "early one")?;
    run.write(&other, "early other")?;
    run.disturb();
    let take = async |life: &Life| life.group_snapshot("group-early", &[&one, &other], &TOGETHER).await;
    let cut = run.step(&GROUP_SNAPSHOT, &ONE, take).await?;
    run.write(&one, "late one")?;
    let member = cut
        .snapshots
        .iter()
        .find(|member| member.source_volume_id == one.volume_id);
    let member = member.context("a volume has no snapshot in the group")?;
    let from = Source::Snapshot(member.snapshot_id.clone());
    let copy = run.copy(&FROM_MEMBER, &COPY, 1, from).await?;
    run.expect(&copy, "early one")?;
    let delete = async |life: &Life| life.delete_group_snapshot(&cut).await;
    run.step(&DELETE_GROUP_SNAPSHOT, &ONE, delete).await?;
    run.expect(&one, "late one")?;
    run.expect(&other, "early other")?;
    run.spare();
    for (subject, volume) in [(&COPY, &copy), (&ONE, &one), (&OTHER, &other)] {
        run.delete(subject, volume).await?;
    }
    Ok(())
}
