// SPDX-License-Identifier: Apache-2.0
//! Volumes get to nodes and away from them.

use csi_proto::csi::v1::ControllerUnpublishVolumeRequest;
use tonic::Code;

use super::{CALL, CHANGING, Expected, MAKING, over_all_faults, volume};
use crate::support::{Driver, NODE, publish_request, within};

#[tokio::test(start_paused = true)]
async fn controller_publish_volume_leaves_open_what_may_still_be_attached() {
    let expected = Expected(
        MAKING,
        &[
            ("400", Code::Internal),
            // Server and volume are there: it may pass.
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
async fn controller_unpublish_volume_tells_what_keeps_the_volume_attached() {
    let expected = Expected(
        CHANGING,
        &[
            // Nova says that it is not attached, and Cinder that it is: whoever is right tells it later.
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
