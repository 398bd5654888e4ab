// SPDX-License-Identifier: Apache-2.0
//! Attaching and detaching volumes.

use csi_proto::csi::v1::ControllerUnpublishVolumeRequest;
use tonic::Code;

use super::{CALL, CHANGING, CREATING, Expected, over_all_faults, volume};
use crate::support::{Driver, NODE, publish_request, within};

#[tokio::test(start_paused = true)]
async fn controller_publish_volume_is_final_only_if_detached() {
    let expected = Expected(
        CREATING,
        &[
            ("400", Code::Internal),
            // Server and volume exist, so the error may be temporary.
            ("404", Code::Aborted),
        ],
    );
    over_all_faults("attach_volume", expected, volume, async |driver, volume| {
        let request = within(publish_request(&volume, NODE), CALL);
        driver.controller().controller_publish_volume(request).await.map(drop)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn controller_unpublish_volume_reports_remaining_attachment() {
    let expected = Expected(
        CHANGING,
        &[
            // Nova reports the volume as detached, and Cinder as attached. A retry resolves the contradiction.
            ("404", Code::Aborted),
        ],
    );
    let attached = async |_: &_, driver: &Driver| {
        let volume = driver.volume("pvc-1").await;
        driver.publish(&volume, NODE).await.expect("attached");
        volume
    };
    over_all_faults("detach_volume", expected, attached, async |driver, volume_id| {
        let request = ControllerUnpublishVolumeRequest {
            volume_id,
            node_id: NODE.into(),
            ..ControllerUnpublishVolumeRequest::default()
        };
        let answer = driver
            .controller()
            .controller_unpublish_volume(within(request, CALL))
            .await;
        answer.map(drop)
    })
    .await;
}
