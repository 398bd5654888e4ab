// SPDX-License-Identifier: Apache-2.0

use cinder_cloud::{AttachOptions, AttachOutcome, CloudError, ServerId, Volume};
use openstack_sim::{Effect, Fault, When};

use crate::support::{ONE, Stage, stage};

impl Stage {
    async fn attach_as(&self, volume: &Volume, read_only: bool) -> Result<AttachOutcome, CloudError> {
        let options = AttachOptions {
            read_only,
            ..AttachOptions::default()
        };
        self.cloud.attach(&volume.id, &ServerId::new(ONE), options).await
    }
}

#[tokio::test(start_paused = true)]
async fn attach_rejects_other_access_mode() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    for read_only in [true, false, true] {
        for _ in 0..2 {
            stage
                .attach_as(&volume, read_only)
                .await
                .expect("attached, and attached again");
        }
        let error = stage.attach_as(&volume, !read_only).await.expect_err("the other mode");
        assert!(
            matches!(error, CloudError::AttachedDifferently { read_only: mode, .. } if mode == read_only),
            "{error}"
        );
        stage.cloud.detach(&volume.id, None).await.expect("detached");
    }
}

#[tokio::test(start_paused = true)]
async fn interrupted_read_only_attachment_is_completed() {
    for operation in ["merge_volume_metadata", "attach_volume"] {
        for when in [When::Before, When::After] {
            for skip in 0..2 {
                let stage = stage().await;
                let volume = stage.create("pvc-1").await;
                let lost = Fault::on(operation).skip(skip).times(1).effect(Effect::cut(when));
                stage.sim.fault(lost).expect("a rule");
                if stage.attach_as(&volume, true).await.is_err() {
                    stage.attach_as(&volume, true).await.expect("the next one");
                }
                let error = stage.attach_as(&volume, false).await.expect_err("it is read-only");
                assert!(
                    matches!(error, CloudError::AttachedDifferently { read_only: true, .. }),
                    "{error}"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn writable_attachment_needs_no_extra_request() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    stage.attach_as(&volume, false).await.expect("attached");
    assert_eq!(stage.sim.count("merge_volume_metadata"), 0);
}

impl Stage {
    /// The metadata keys of the volume, without those of its creation.
    fn metadata_keys(&self, volume: &Volume) -> Vec<String> {
        let state = self.sim.state();
        let listed = state
            .volumes
            .iter()
            .find(|listed| listed.id == volume.id.as_str())
            .expect("it is there");
        let metadata_keys = listed.metadata.keys().filter(|key| key.contains("read-only-at"));
        metadata_keys.cloned().collect()
    }
}

#[tokio::test(start_paused = true)]
async fn detachment_removes_read_only_mark() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    for server in [Some(&ServerId::new(ONE)), None] {
        stage.attach_as(&volume, true).await.expect("attached");
        assert_eq!(stage.metadata_keys(&volume).len(), 1);
        stage.cloud.detach(&volume.id, server).await.expect("detached");
        assert_eq!(stage.metadata_keys(&volume), Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn stale_read_only_mark_is_ignored() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    stage.attach_as(&volume, true).await.expect("attached");
    let refused = Fault::on("delete_volume_metadata")
        .times(1)
        .effect(Effect::policy("volume:delete_volume_metadata"));
    stage.sim.fault(refused).expect("a rule");
    let server = ServerId::new(ONE);
    stage
        .cloud
        .detach(&volume.id, Some(&server))
        .await
        .expect("detached all the same");
    assert_eq!(stage.metadata_keys(&volume).len(), 1);
    stage.attach_as(&volume, false).await.expect("attached for writing");
    stage.cloud.detach(&volume.id, Some(&server)).await.expect("detached");
    assert_eq!(stage.metadata_keys(&volume), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn other_process_removes_read_only_mark() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let server = ServerId::new(ONE);
    stage.attach_as(&volume, true).await.expect("attached");
    let another = stage.other_process();
    another.detach(&volume.id, Some(&server)).await.expect("detached");
    assert_eq!(stage.metadata_keys(&volume), Vec::<String>::new());

    stage.attach_as(&volume, false).await.expect("attached");
    stage.cloud.detach(&volume.id, Some(&server)).await.expect("detached");
    assert_eq!(stage.sim.count("delete_volume_metadata"), 1);
}
