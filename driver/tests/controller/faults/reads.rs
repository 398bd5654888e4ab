// SPDX-License-Identifier: Apache-2.0
//! Read-only RPCs.

use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::{
    ControllerGetVolumeHealthRequest, ControllerGetVolumeRequest, ControllerListVolumeHealthRequest,
    GetCapacityRequest, ListVolumesRequest, ValidateVolumeCapabilitiesRequest,
};
use tonic::Code;

use super::{CALL, Expected, READING, nothing, over_all_faults, volume};
use crate::support::{capability, within};

/// The expected codes of a read-only RPC.
pub(super) const READ_ONLY: Expected = Expected(READING, &[]);

#[tokio::test(start_paused = true)]
async fn validate_volume_capabilities_reports_failed_query() {
    over_all_faults("get_volume", READ_ONLY, volume, async |driver, volume_id| {
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
async fn controller_get_volume_reports_failed_query() {
    over_all_faults("get_volume", READ_ONLY, volume, async |driver, volume_id| {
        let request = within(ControllerGetVolumeRequest { volume_id }, CALL);
        driver.controller().controller_get_volume(request).await.map(drop)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn controller_get_volume_health_reports_failed_query() {
    over_all_faults("get_volume", READ_ONLY, volume, async |driver, volume_id| {
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
async fn controller_list_volume_health_reports_failed_query() {
    over_all_faults("list_volumes_detail", READ_ONLY, nothing, async |driver, _| {
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
async fn list_volumes_reports_failed_query() {
    over_all_faults("list_volumes_detail", READ_ONLY, nothing, async |driver, _| {
        let request = within(ListVolumesRequest::default(), CALL);
        driver.controller().list_volumes(request).await.map(drop)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn get_capacity_reports_failed_query() {
    // Without permission to read quotas, or without quotas, the capacity is unlimited.
    let expected = Expected(READING, &[("403 policy", Code::Ok), ("404", Code::Ok)]);
    over_all_faults("get_volume_quota", expected, nothing, async |driver, _| {
        let request = within(GetCapacityRequest::default(), CALL);
        driver.controller().get_capacity(request).await.map(drop)
    })
    .await;
}
