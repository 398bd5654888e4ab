// SPDX-License-Identifier: Apache-2.0
//! RPCs that only look.

use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::{
    ControllerGetVolumeHealthRequest, ControllerGetVolumeRequest, ControllerListVolumeHealthRequest,
    GetCapacityRequest, ListVolumesRequest, ValidateVolumeCapabilitiesRequest,
};
use tonic::Code;

use super::{CALL, Expected, LOOKING, nothing, over_all_faults, volume};
use crate::support::{capability, within};

/// What an RPC that only looks is answered with.
pub(super) const LOOK: Expected = Expected(LOOKING, &[]);

#[tokio::test(start_paused = true)]
async fn validate_volume_capabilities_tells_why_it_cannot_look() {
    over_all_faults("get_volume", LOOK, volume, async |driver, volume_id| {
        let request = ValidateVolumeCapabilitiesRequest {
            volume_id,
            volume_capabilities: vec![capability(Mode::SingleNodeWriter)],
            ..ValidateVolumeCapabilitiesRequest::default()
        };
        let answer = driver
            .controller()
            .validate_volume_capabilities(within(request, CALL))
            .await;
        answer.map(drop)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn controller_get_volume_tells_why_it_cannot_look() {
    over_all_faults("get_volume", LOOK, volume, async |driver, volume_id| {
        let request = within(ControllerGetVolumeRequest { volume_id }, CALL);
        driver.controller().controller_get_volume(request).await.map(drop)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn controller_get_volume_health_tells_why_it_cannot_look() {
    over_all_faults("get_volume", LOOK, volume, async |driver, volume_id| {
        let request = ControllerGetVolumeHealthRequest {
            volume_id,
            ..ControllerGetVolumeHealthRequest::default()
        };
        let answer = driver
            .controller()
            .controller_get_volume_health(within(request, CALL))
            .await;
        answer.map(drop)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn controller_list_volume_health_tells_why_it_cannot_look() {
    over_all_faults("list_volumes_detail", LOOK, nothing, async |driver, _| {
        let request = within(ControllerListVolumeHealthRequest::default(), CALL);
        driver
            .controller()
            .controller_list_volume_health(request)
            .await
            .map(drop)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn list_volumes_tells_why_it_cannot_look() {
    over_all_faults("list_volumes_detail", LOOK, nothing, async |driver, _| {
        let request = within(ListVolumesRequest::default(), CALL);
        driver.controller().list_volumes(request).await.map(drop)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn get_capacity_tells_why_it_cannot_look() {
    // Without the right to see quotas, or where there are none, nothing bounds the capacity.
    let expected = Expected(LOOKING, &[("403 policy", Code::Ok), ("404", Code::Ok)]);
    over_all_faults("get_volume_quota", expected, nothing, async |driver, _| {
        let request = within(GetCapacityRequest::default(), CALL);
        driver.controller().get_capacity(request).await.map(drop)
    })
    .await;
}
