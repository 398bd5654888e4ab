// SPDX-License-Identifier: Apache-2.0
//! external-attacher: one VolumeAttachment from its creation to its end.

use std::collections::BTreeMap;
use std::time::Duration;

use csi_proto::csi::v1::{
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, ControllerUnpublishVolumeRequest,
};
use tonic::Code;

use crate::cluster::{Answer, Cluster, Controller, Sidecar, VolumeMode};
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
    let pair = (volume.to_owned(), server.to_owned());
    cluster.ledger.book().attachments.insert(pair.clone(), Attached::Asked);
    let publish = || {
        let request = ControllerPublishVolumeRequest {
            volume_id: volume.to_owned(),
            node_id: server.to_owned(),
            volume_capability: Some(mode.capability()),
            ..ControllerPublishVolumeRequest::default()
        };
        let call = async |mut client: Controller, request| client.controller_publish_volume(request).await;
        cluster.controller(Sidecar::Attacher, limit, request, call)
    };
    let end = |answer: Answer<ControllerPublishVolumeResponse>| match answer {
        Ok(ControllerPublishVolumeResponse { publish_context }) => {
            let schedule = &cluster.schedule;
            schedule.note(&format!("volume {volume} is attached to {server}"));
            cluster.judge.published(volume, server, &publish_context);
            let mut book = cluster.ledger.book();
            book.attachments.insert(pair.clone(), Attached::Made);
            Some(publish_context)
        }
        Err((Code::NotFound, message)) => {
            let judge = &cluster.judge;
            judge.not_found("ControllerPublishVolume", volume, Some(server), &message);
            None
        }
        Err(_) => None,
    };
    let what = format!("attachment of {volume} to {server}");
    cluster.repeat(&what, publish, end).await
}

/// Takes an attachment away, however far it is.
pub(super) async fn detach(cluster: &Cluster, volume: &str, server: &str, limit: Duration) {
    let pair = (volume.to_owned(), server.to_owned());
    cluster
        .ledger
        .book()
        .attachments
        .insert(pair.clone(), Attached::Leaving);
    let unpublish = || {
        let request = ControllerUnpublishVolumeRequest {
            volume_id: volume.to_owned(),
            node_id: server.to_owned(),
            ..ControllerUnpublishVolumeRequest::default()
        };
        let call = async |mut client: Controller, request| client.controller_unpublish_volume(request).await;
        cluster.controller(Sidecar::Attacher, limit, request, call)
    };
    let end = |answer: Answer<_>| {
        answer.ok()?;
        let schedule = &cluster.schedule;
        schedule.note(&format!("volume {volume} is detached from {server}"));
        cluster.judge.unpublished(volume, server);
        cluster.ledger.book().attachments.remove(&pair);
        Some(())
    };
    let what = format!("detachment of {volume} from {server}");
    cluster.repeat(&what, unpublish, end).await;
}
