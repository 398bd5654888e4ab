// SPDX-License-Identifier: Apache-2.0
//! Scenarios with volumes. Each RPC is disturbed in one scenario, and undisturbed where it is only preparation.

pub(crate) mod backups;
pub(crate) mod copies;
pub(crate) mod groups;
pub(crate) mod growth;
pub(crate) mod life;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use anyhow::{Context as _, Result, ensure};
use csi_proto::csi::v1::Volume;
use suites::life::{Life, Source};

use crate::run::{Run, Subject};
use crate::steps::{CREATE, DELETE, NODE_PUBLISH, NODE_UNPUBLISH, PUBLISH, STAGE, Step, UNPUBLISH, UNSTAGE};

/// Offset and length of the tests' data in a raw volume.
const PLACE: u64 = 12 << 10;
const LENGTH: usize = 16;

impl Run<'_> {
    async fn create(&mut self, subject: &Subject) -> Result<Volume> {
        self.step(&CREATE, subject, async |life| life.create().await).await
    }

    async fn delete(&mut self, subject: &Subject, volume: &Volume) -> Result<()> {
        self.step(&DELETE, subject, async |life| life.delete(volume).await)
            .await
    }

    async fn attach(&mut self, subject: &Subject, volume: &Volume) -> Result<BTreeMap<String, String>> {
        self.step(&PUBLISH, subject, async |life| life.attach(volume).await)
            .await
    }

    async fn stage(&mut self, subject: &Subject, volume: &Volume, context: &BTreeMap<String, String>) -> Result<()> {
        let stage = async |life: &Life| life.stage(volume, context).await;
        self.step(&STAGE, subject, stage).await?;
        let publish = async |life: &Life| life.publish(volume, context).await;
        self.step(&NODE_PUBLISH, subject, publish).await
    }

    async fn bring_up(&mut self, subject: &Subject, volume: &Volume) -> Result<()> {
        let context = self.attach(subject, volume).await?;
        self.stage(subject, volume, &context).await
    }

    async fn take_down(&mut self, subject: &Subject, volume: &Volume) -> Result<()> {
        let unpublish = async |life: &Life| life.unpublish(volume).await;
        self.step(&NODE_UNPUBLISH, subject, unpublish).await?;
        let unstage = async |life: &Life| life.unstage(volume).await;
        self.step(&UNSTAGE, subject, unstage).await?;
        let detach = async |life: &Life| life.detach(volume).await;
        self.step(&UNPUBLISH, subject, detach).await
    }

    /// Runs a script in which `TARGET` is the target path of the volume.
    async fn shell(&self, subject: &Subject, script: &str) -> Result<()> {
        self.life(subject)?.shell(&self.world.lab, script).await.map(drop)
    }

    async fn write_file(&self, subject: &Subject) -> Result<()> {
        self.life(subject)?.write_file(&self.world.lab).await
    }

    async fn expect_file(&self, subject: &Subject) -> Result<()> {
        self.life(subject)?.expect_file(&self.world.lab).await
    }

    /// Creates a volume of this size from a source.
    async fn copy(&mut self, step: &Step, subject: &Subject, gib: i64, source: Source) -> Result<Volume> {
        self.step(step, subject, async |life| life.create_as(gib, Some(&source)).await)
            .await
    }

    /// Takes a snapshot or backup of a volume, and returns its id.
    async fn snapshot(
        &mut self,
        step: &Step,
        subject: &Subject,
        name: &str,
        volume: &Volume,
        parameters: &[(&str, &str)],
    ) -> Result<String> {
        let take = async |life: &Life| life.snapshot(name, volume, parameters).await;
        Ok(self.step(step, subject, take).await?.snapshot_id)
    }

    async fn delete_snapshot(&mut self, step: &Step, subject: &Subject, id: &str) -> Result<()> {
        self.step(step, subject, async |life| life.delete_snapshot(id).await)
            .await
    }

    /// Writes to a detached volume, as a guest would have done before.
    fn write(&self, volume: &Volume, text: &str) -> Result<()> {
        let mut bytes = [0; LENGTH];
        bytes
            .get_mut(..text.len())
            .context("the text is too long")?
            .copy_from_slice(text.as_bytes());
        let file = File::options()
            .write(true)
            .open(self.image(volume))
            .context("the volume has no image")?;
        file.write_all_at(&bytes, PLACE).context("the image cannot be written")
    }

    /// Fails if a detached volume has other data.
    fn expect(&self, volume: &Volume, text: &str) -> Result<()> {
        let mut bytes = [0; LENGTH];
        let file = File::open(self.image(volume)).context("the volume has no image")?;
        file.read_exact_at(&mut bytes, PLACE)
            .context("the image cannot be read")?;
        let content = String::from_utf8_lossy(&bytes);
        let content = content.trim_end_matches('\0');
        ensure!(
            content == text,
            "volume {} holds {content:?} and not {text:?}",
            volume.volume_id
        );
        Ok(())
    }

    fn image(&self, volume: &Volume) -> std::path::PathBuf {
        let name = format!("volumes/volumes/{}.img", volume.volume_id);
        self.world.lab.path(&name)
    }
}
