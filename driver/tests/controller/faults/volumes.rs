// SPDX-License-Identifier: Apache-2.0
//! Creating and deleting volumes.

use csi_proto::csi::v1::DeleteVolumeRequest;
use tonic::Code;

use super::{CALL, CHANGING, CREATING, Expected, over_all_faults, volume};
use crate::support::{create_request, within};

#[tokio::test(start_paused = true)]
async fn create_volume_is_final_only_without_volume() {
    let expected = Expected(CREATING, &[("404", Code::InvalidArgument)]);
    let name = async |_: &_, _: &_| "pvc-1".to_owned();
    over_all_faults("create_volume", expected, name, async |driver, name| {
        let request = within(create_request(&name), CALL);
        driver.controller().create_volume(request).await.map(drop)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn delete_volume_reports_obstacle() {
    let expected = Expected(CHANGING, &[("404", Code::Ok)]);
    over_all_faults("delete_volume", expected, volume, async |driver, volume_id| {
        let request = DeleteVolumeRequest {
            volume_id,
            ..DeleteVolumeRequest::default()
        };
        driver.controller().delete_volume(within(request, CALL)).await.map(drop)
    })
    .await;
}
