// SPDX-License-Identifier: Apache-2.0
//! external-resizer: ControllerExpandVolume until it is done or cannot be done.

use std::time::Duration;

use csi_proto::csi::v1::{CapacityRange, ControllerExpandVolumeRequest, ControllerExpandVolumeResponse};
use tonic::Code;

use crate::cluster::{Answer, Cluster, Controller, Sidecar, VolumeMode};

/// Grows a volume. Gives its new size where its node has to grow it as well, and nothing where that is not so or it cannot be grown.
pub(super) async fn expand(
    cluster: &Cluster,
    volume: &str,
    bytes: i64,
    mode: VolumeMode,
    limit: Duration,
) -> Option<i64> {
    let expand = || {
        let request = ControllerExpandVolumeRequest {
            volume_id: volume.to_owned(),
            capacity_range: Some(CapacityRange {
                required_bytes: bytes,
                limit_bytes: 0,
            }),
            volume_capability: Some(mode.capability()),
            ..ControllerExpandVolumeRequest::default()
        };
        let call = async |mut client: Controller, request| client.controller_expand_volume(request).await;
        cluster.controller(Sidecar::Resizer, limit, request, call)
    };
    let end = |answer: Answer<ControllerExpandVolumeResponse>| match answer {
        Ok(answer) => {
            let (schedule, size) = (&cluster.schedule, answer.capacity_bytes);
            schedule.note(&format!("volume {volume} has {size} bytes"));
            cluster.judge.expanded(volume, bytes, size);
            Some(answer.node_expansion_required.then_some(size))
        }
        Err((Code::NotFound, message)) => {
            let judge = &cluster.judge;
            judge.not_found("ControllerExpandVolume", volume, None, &message);
            Some(None)
        }
        Err((Code::InvalidArgument | Code::OutOfRange, _)) => Some(None),
        Err(_) => None,
    };
    cluster.repeat(&format!("expansion of {volume}"), expand, end).await
}
