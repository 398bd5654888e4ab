// SPDX-License-Identifier: Apache-2.0
//! external-provisioner: CreateVolume until an OK or a final error, DeleteVolume until an OK.

use std::time::Duration;

use csi_proto::csi::v1::{CreateVolumeResponse, DeleteVolumeRequest, Volume};

use super::order::Order;
use crate::call::{Call, Sidecar};
use crate::cluster::{Answer, Cluster, Controller, Secrets};
use crate::judge::ends_creation;
use crate::ledger::ResourceState;

/// Creates the volume of a claim. After the deletion of the claim (`is_deleted`), a final error ends the calls;
/// otherwise, the volume is created first and then deleted. Returns `None` without a volume.
pub(super) async fn create(cluster: &Cluster, order: &Order, is_deleted: impl Fn() -> bool) -> Option<Volume> {
    let name = &order.name;
    cluster.ledger.book().volumes.insert(name.clone(), ResourceState::Asked);
    let create = || {
        let call = async |mut client: Controller, request| client.create_volume(request).await;
        cluster.controller(Sidecar::Provisioner, order.limit, order.request(), call)
    };
    let end = |answer: Answer<CreateVolumeResponse>| match answer {
        Ok(CreateVolumeResponse { volume }) => {
            let volume = volume.unwrap_or_default();
            let id = &volume.volume_id;
            cluster.schedule.note(&format!("claim {name} has volume {id}"));
            cluster.judge.created(name, &volume, order.requirement.as_ref());
            let known = ResourceState::Made(id.clone());
            cluster.ledger.book().volumes.insert(name.clone(), known);
            Some(Some(volume))
        }
        Err((code, message)) if ends_creation(code) => {
            cluster.judge.refused_volume(name, code, &message);
            is_deleted().then(|| {
                cluster.ledger.book().volumes.remove(name);
                None
            })
        }
        Err(_) => None,
    };
    let call = Call::CreateVolume { name: name.clone() };
    cluster.repeat(call, create, end).await
}

/// Deletes a volume.
pub(super) async fn delete(cluster: &Cluster, name: &str, id: &str, secrets: &Secrets, limit: Duration) {
    cluster
        .ledger
        .book()
        .volumes
        .insert(name.to_owned(), ResourceState::Deleting(id.to_owned()));
    let delete = || {
        let request = DeleteVolumeRequest {
            volume_id: id.to_owned(),
            secrets: secrets.clone(),
        };
        let call = async |mut client: Controller, request| client.delete_volume(request).await;
        cluster.controller(Sidecar::Provisioner, limit, request, call)
    };
    let end = |answer: Answer<_>| {
        answer.ok()?;
        cluster.schedule.note(&format!("volume {id} of {name} is deleted"));
        cluster.judge.deleted(id);
        cluster.ledger.book().volumes.remove(name);
        Some(())
    };
    let call = Call::DeleteVolume { volume: id.to_owned() };
    cluster.repeat(call, delete, end).await;
}
