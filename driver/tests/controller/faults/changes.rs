// SPDX-License-Identifier: Apache-2.0
//! Expanding and modifying volumes.

use csi_proto::csi::v1::{CapacityRange, ControllerExpandVolumeRequest, ControllerModifyVolumeRequest};
use tonic::Code;

use super::{CALL, CHANGING, Expected, over_all_faults, volume};
use crate::support::{GIB, within};

#[tokio::test(start_paused = true)]
async fn controller_expand_volume_is_infeasible_only_if_impossible() {
    let expected = Expected(CHANGING, &[]);
    over_all_faults("extend_volume", expected, volume, async |driver, volume_id| {
        let request = ControllerExpandVolumeRequest {
            volume_id,
            capacity_range: Some(CapacityRange {
                required_bytes: 2 * GIB,
                limit_bytes: 0,
            }),
            ..ControllerExpandVolumeRequest::default()
        };
        let answer = driver
            .controller()
            .controller_expand_volume(within(request, CALL))
            .await;
        answer.map(drop)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn controller_modify_volume_is_infeasible_only_if_refused() {
    let expected = Expected(CHANGING, &[("400", Code::InvalidArgument)]);
    over_all_faults("retype_volume", expected, volume, async |driver, volume_id| {
        let request = ControllerModifyVolumeRequest {
            volume_id,
            mutable_parameters: [("type".to_owned(), "slow".to_owned())].into(),
            ..ControllerModifyVolumeRequest::default()
        };
        let answer = driver
            .controller()
            .controller_modify_volume(within(request, CALL))
            .await;
        answer.map(drop)
    })
    .await;
}
