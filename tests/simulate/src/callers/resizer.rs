// SPDX-License-Identifier: Apache-2.0
//! external-resizer: ControllerExpandVolume and ControllerModifyVolume until they succeed or are infeasible.

use csi_proto::csi::v1::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerModifyVolumeRequest,
};
use tonic::Code;

use super::Claim;
use crate::call::{Call, Sidecar};
use crate::cluster::{Answer, Cluster, Controller};

/// Expands a volume. Returns its new size if the node has to expand it as well.
pub(super) async fn expand(cluster: &Cluster, claim: &Claim, bytes: i64) -> Option<i64> {
    let (volume, limit) = (claim.volume.as_str(), claim.limit);
    let expand = || {
        let request = ControllerExpandVolumeRequest {
            volume_id: volume.to_owned(),
            capacity_range: Some(CapacityRange {
                required_bytes: bytes,
                limit_bytes: 0,
            }),
            volume_capability: Some(claim.capability()),
            secrets: claim.secrets.clone(),
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
    let call = Call::Expand {
        volume: volume.to_owned(),
        bytes,
    };
    cluster.repeat(call, expand, end).await
}

/// Changes the type of a volume, unless that is infeasible: `isInfeasibleError` of external-resizer.
pub(super) async fn modify(cluster: &Cluster, claim: &Claim, volume_type: &'static str) {
    let (volume, limit) = (claim.volume.as_str(), claim.limit);
    let modify = || {
        let request = ControllerModifyVolumeRequest {
            volume_id: volume.to_owned(),
            mutable_parameters: [("type".to_owned(), volume_type.to_owned())].into(),
            secrets: claim.secrets.clone(),
        };
        let call = async |mut client: Controller, request| client.controller_modify_volume(request).await;
        cluster.controller(Sidecar::Resizer, limit, request, call)
    };
    let end = |answer: Answer<_>| match answer {
        Ok(_) => {
            cluster
                .schedule
                .note(&format!("volume {volume} has type {volume_type}"));
            cluster.judge.modified(volume, volume_type);
            Some(())
        }
        Err((Code::InvalidArgument | Code::NotFound | Code::OutOfRange, _)) => Some(()),
        Err(_) => None,
    };
    let call = Call::Modify {
        volume: volume.to_owned(),
        volume_type,
    };
    cluster.repeat(call, modify, end).await;
}
