//! external-attacher: one VolumeAttachment from its creation to its end.

use std::collections::BTreeMap;
use std::time::Duration;

use csi_proto::csi::v1::{ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest};
use tonic::Code;

use crate::cluster::{Backoff, Cluster, Sidecar, VolumeMode};
use crate::ledger::Attached;

/// Asks for an attachment until it is made or no longer wanted. To drop the future is to delete the VolumeAttachment: the
/// call that is under way ends, and [`detach`] follows. Gives the publish context.
pub(super) async fn attach(
    cluster: &Cluster,
    volume: &str,
    server: &str,
    mode: VolumeMode,
    limit: Duration,
) -> BTreeMap<String, String> {
    let schedule = &cluster.schedule;
    let pair = (volume.to_owned(), server.to_owned());
    cluster.ledger.book().attachments.insert(pair.clone(), Attached::Asked);
    let mut backoff = Backoff::new();
    loop {
        let request = ControllerPublishVolumeRequest {
            volume_id: volume.to_owned(),
            node_id: server.to_owned(),
            volume_capability: Some(mode.capability()),
            ..ControllerPublishVolumeRequest::default()
        };
        let call = async |mut client: csi_proto::csi::v1::controller_client::ControllerClient<_>, request| {
            client.controller_publish_volume(request).await
        };
        match cluster.controller(Sidecar::Attacher, limit, request, call).await {
            Ok(answer) => {
                schedule.note(&format!("volume {volume} is attached to {server}"));
                cluster.judge.published(volume, server);
                cluster.ledger.book().attachments.insert(pair, Attached::Made);
                return answer.publish_context;
            }
            Err(status) => {
                schedule.note(&format!(
                    "attachment of {volume} to {server}: {:?}: {}",
                    status.code(),
                    status.message()
                ));
                if status.code() == Code::NotFound {
                    cluster
                        .judge
                        .not_found("ControllerPublishVolume", volume, Some(server), status.message());
                }
            }
        }
        backoff.pause(schedule, volume).await;
    }
}

/// Takes an attachment away, however far it is.
pub(super) async fn detach(cluster: &Cluster, volume: &str, server: &str, limit: Duration) {
    let schedule = &cluster.schedule;
    let pair = (volume.to_owned(), server.to_owned());
    cluster
        .ledger
        .book()
        .attachments
        .insert(pair.clone(), Attached::Leaving);
    let mut backoff = Backoff::new();
    loop {
        let request = ControllerUnpublishVolumeRequest {
            volume_id: volume.to_owned(),
            node_id: server.to_owned(),
            ..ControllerUnpublishVolumeRequest::default()
        };
        let call = async |mut client: csi_proto::csi::v1::controller_client::ControllerClient<_>, request| {
            client.controller_unpublish_volume(request).await
        };
        match cluster.controller(Sidecar::Attacher, limit, request, call).await {
            Ok(_) => {
                schedule.note(&format!("volume {volume} is detached from {server}"));
                cluster.judge.unpublished(volume, server);
                cluster.ledger.book().attachments.remove(&pair);
                return;
            }
            Err(status) => schedule.note(&format!(
                "detachment of {volume} from {server}: {:?}: {}",
                status.code(),
                status.message()
            )),
        }
        backoff.pause(schedule, volume).await;
    }
}
