//! external-resizer: ControllerExpandVolume until it is done or cannot be done.

use std::time::Duration;

use csi_proto::csi::v1::{CapacityRange, ControllerExpandVolumeRequest};
use tonic::Code;

use crate::cluster::{Backoff, Cluster, Sidecar, VolumeMode};

/// Grows a volume. Gives its new size where its node has to grow it as well, and nothing where that is not so or it cannot be grown.
pub(super) async fn expand(
    cluster: &Cluster,
    volume: &str,
    bytes: i64,
    mode: VolumeMode,
    limit: Duration,
) -> Option<i64> {
    let schedule = &cluster.schedule;
    let mut backoff = Backoff::new();
    loop {
        let request = ControllerExpandVolumeRequest {
            volume_id: volume.to_owned(),
            capacity_range: Some(CapacityRange {
                required_bytes: bytes,
                limit_bytes: 0,
            }),
            volume_capability: Some(mode.capability()),
            ..ControllerExpandVolumeRequest::default()
        };
        let call = async |mut client: csi_proto::csi::v1::controller_client::ControllerClient<_>, request| {
            client.controller_expand_volume(request).await
        };
        match cluster.controller(Sidecar::Resizer, limit, request, call).await {
            Ok(answer) => {
                schedule.note(&format!("volume {volume} has {} bytes", answer.capacity_bytes));
                cluster.judge.expanded(volume, bytes, answer.capacity_bytes);
                return answer.node_expansion_required.then_some(answer.capacity_bytes);
            }
            Err(status) => {
                schedule.note(&format!(
                    "expansion of {volume}: {:?}: {}",
                    status.code(),
                    status.message()
                ));
                match status.code() {
                    Code::NotFound => {
                        cluster
                            .judge
                            .not_found("ControllerExpandVolume", volume, None, status.message());
                        return None;
                    }
                    Code::InvalidArgument | Code::OutOfRange => return None,
                    _ => {}
                }
            }
        }
        backoff.pause(schedule, volume).await;
    }
}
