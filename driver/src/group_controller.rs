// SPDX-License-Identifier: Apache-2.0
//! The CSI GroupController service: takes snapshots of several volumes at the same moment.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Ready, ready};

use cinder_cloud::{
    Cloud, CloudError, GroupSnapshot, GroupSnapshotId, NewGroupSnapshot, ObjectKind, SnapshotId, VolumeId,
};
use csi_proto::csi::v1::group_controller_server::GroupController;
use csi_proto::csi::v1::group_controller_service_capability::{Rpc, Type, rpc};
use csi_proto::csi::v1::{
    CreateVolumeGroupSnapshotRequest, CreateVolumeGroupSnapshotResponse, DeleteVolumeGroupSnapshotRequest,
    DeleteVolumeGroupSnapshotResponse, GetVolumeGroupSnapshotRequest, GetVolumeGroupSnapshotResponse,
    GroupControllerGetCapabilitiesRequest, GroupControllerGetCapabilitiesResponse, GroupControllerServiceCapability,
    VolumeGroupSnapshot,
};
use tonic::Status;

use crate::clouds::{CloudObject, Clouds};
use crate::controller::ControllerService;
use crate::layers::rpcs;
use crate::operations::{Deadline, Operations, Target, with_deadline};
use crate::parameters::GroupParameters;
use crate::status::CloudAction;
use crate::{fields, status};

/// The GroupController service. It shares the clouds, the running operations and the settings of the Controller
/// service.
#[derive(Debug, Clone)]
pub struct GroupControllerService {
    controller: ControllerService,
}

impl GroupControllerService {
    pub fn new(controller: ControllerService) -> Self {
        Self { controller }
    }

    fn operations(&self) -> &Operations {
        self.controller.operations()
    }

    #[expect(clippy::unused_self, reason = "the RPCs have one form")]
    fn capabilities(
        &self,
        _request: GroupControllerGetCapabilitiesRequest,
        _deadline: Deadline,
    ) -> Ready<Result<GroupControllerGetCapabilitiesResponse, Status>> {
        let capability = GroupControllerServiceCapability {
            r#type: Some(Type::Rpc(Rpc {
                r#type: rpc::Type::CreateDeleteGetVolumeGroupSnapshot as i32,
            })),
        };
        ready(Ok(GroupControllerGetCapabilitiesResponse {
            capabilities: vec![capability],
        }))
    }

    /// Takes a group snapshot. `OK` means that the snapshots are complete and the volumes are no longer in a group.
    async fn create(
        &self,
        request: CreateVolumeGroupSnapshotRequest,
        deadline: Deadline,
    ) -> Result<CreateVolumeGroupSnapshotResponse, Status> {
        fields::required_name("name", &request.name)?;
        if request.source_volume_ids.is_empty() {
            return Err(status::invalid("source_volume_ids", "at least one is required"));
        }
        let parameters = GroupParameters::decode(request.parameters);
        for key in parameters.unknown() {
            tracing::warn!(
                parameter = key,
                "this parameter of the VolumeGroupSnapshotClass is not known and has no effect"
            );
        }
        let new = NewGroupSnapshot {
            name: request.name,
            volumes: request.source_volume_ids.into_iter().map(VolumeId::new).collect(),
            group_type: parameters.group_type,
            cluster: self.controller.cluster().to_owned(),
        };
        let failed = |error: CloudError| status::from_cloud(CloudAction::Snapshot, &error);
        new.check_volumes().map_err(failed)?;
        let target = Target::GroupSnapshot(new.name.clone());
        self.operations()
            .run("CreateVolumeGroupSnapshot", target, new.clone(), deadline, |progress| {
                let (service, secrets) = (self.clone(), request.secrets);
                async move {
                    progress.set("looking for the volumes' cloud");
                    let clouds = candidates(service.controller.clouds(), &new.volumes, &secrets).await?;
                    progress.set(
                        "looking for the group snapshot by its name, else taking it and waiting until it is complete",
                    );
                    let mut missing = None;
                    for cloud in clouds {
                        match cloud.create_group_snapshot(new.clone()).await {
                            Ok(created) => {
                                return Ok(CreateVolumeGroupSnapshotResponse {
                                    group_snapshot: Some(service.encode(&cloud, &created)),
                                });
                            }
                            Err(
                                error @ CloudError::NotFound {
                                    kind: ObjectKind::Volume,
                                    ..
                                },
                            ) => missing = Some(error),
                            Err(error) => return Err(failed(error)),
                        }
                    }
                    Err(match missing {
                        Some(error) => failed(error),
                        None => status::invalid("source_volume_ids", "the driver has no cloud"),
                    })
                }
            })
            .await
    }

    /// Deletes a group snapshot. Succeeds if it does not exist or the id is invalid.
    async fn delete(
        &self,
        request: DeleteVolumeGroupSnapshotRequest,
        deadline: Deadline,
    ) -> Result<DeleteVolumeGroupSnapshotResponse, Status> {
        let id = GroupSnapshotId::new(fields::required("group_snapshot_id", &request.group_snapshot_id)?);
        if !id.is_uuid() {
            return Ok(DeleteVolumeGroupSnapshotResponse {});
        }
        let members: BTreeSet<SnapshotId> = request.snapshot_ids.into_iter().map(SnapshotId::new).collect();
        let target = Target::GroupSnapshot(id.to_string());
        self.operations()
            .run(
                "DeleteVolumeGroupSnapshot",
                target,
                members.clone(),
                deadline,
                |progress| {
                    let (controller, secrets) = (self.controller.clone(), request.secrets);
                    async move {
                        progress.set("deleting the group snapshot and its members and waiting until they are gone");
                        let clouds = controller.clouds();
                        let object = CloudObject::GroupSnapshot(&id);
                        if let Some(cloud) = clouds.confirmed_cloud(object, &secrets).await? {
                            delete_in(&controller, &cloud, &id, &members).await?;
                        } else {
                            // The group of a deleted group snapshot may remain in any cloud.
                            let clouds = clouds.all().await?;
                            let deletions = clouds
                                .iter()
                                .map(|(_, cloud)| delete_in(&controller, cloud, &id, &members));
                            let deletions = futures::future::join_all(deletions).await;
                            deletions.into_iter().collect::<Result<(), Status>>()?;
                        }
                        Ok(DeleteVolumeGroupSnapshotResponse {})
                    }
                },
            )
            .await
    }

    async fn get(
        &self,
        request: GetVolumeGroupSnapshotRequest,
        deadline: Deadline,
    ) -> Result<GetVolumeGroupSnapshotResponse, Status> {
        let id = GroupSnapshotId::new(fields::required("group_snapshot_id", &request.group_snapshot_id)?);
        let unknown = || status::not_found("group snapshot", id.as_str());
        if !id.is_uuid() {
            return Err(unknown());
        }
        let query = async {
            let cloud = self
                .controller
                .clouds()
                .cloud_of_group_snapshot(&id, &request.secrets)
                .await?;
            let cloud = cloud.ok_or_else(unknown)?;
            let existing = cloud.group_snapshot(&id).await;
            let existing = existing.map_err(|error| status::from_cloud(CloudAction::Look, &error))?;
            let existing = existing.ok_or_else(unknown)?;
            let desired: BTreeSet<&str> = request.snapshot_ids.iter().map(String::as_str).collect();
            let members: BTreeSet<&str> = existing.snapshots.iter().map(|member| member.id.as_str()).collect();
            if !desired.is_empty() && desired != members {
                return Err(status::invalid(
                    "snapshot_ids",
                    format_args!(
                        "group snapshot {id} has other members: {}",
                        Vec::from_iter(members).join(", ")
                    ),
                ));
            }
            Ok(self.encode(&cloud, &existing))
        };
        let existing = with_deadline(deadline, "GetVolumeGroupSnapshot", query).await??;
        Ok(GetVolumeGroupSnapshotResponse {
            group_snapshot: Some(existing),
        })
    }

    fn encode(&self, cloud: &Cloud, existing: &GroupSnapshot) -> VolumeGroupSnapshot {
        let snapshots: Vec<_> = existing
            .snapshots
            .iter()
            .map(|member| self.controller.encode_snapshot(cloud, member))
            .collect();
        VolumeGroupSnapshot {
            group_snapshot_id: existing.id.to_string(),
            creation_time: crate::controller::timestamp(&existing.created_at),
            ready_to_use: !snapshots.is_empty() && snapshots.iter().all(|member| member.ready_to_use),
            snapshots,
        }
    }
}

/// Deletes a group snapshot in one cloud.
async fn delete_in(
    controller: &ControllerService,
    cloud: &Cloud,
    id: &GroupSnapshotId,
    members: &BTreeSet<SnapshotId>,
) -> Result<(), Status> {
    refuse_foreign(controller, cloud, id).await?;
    let deleted = cloud.delete_group_snapshot(id, members).await;
    deleted.map_err(|error| status::from_cloud(CloudAction::Delete, &error))
}

/// Refuses a group snapshot of another cluster, or with a member of one, if volumes of other clusters are protected.
async fn refuse_foreign(controller: &ControllerService, cloud: &Cloud, id: &GroupSnapshotId) -> Result<(), Status> {
    if !controller.protects_other_clusters() {
        return Ok(());
    }
    let existing = cloud.confirm(id.as_str(), || cloud.group_snapshot(id)).await;
    let Some(existing) = existing.map_err(|error| status::from_cloud(CloudAction::Delete, &error))? else {
        return Ok(());
    };
    controller.refuse_cluster("group snapshot", id.as_str(), existing.cluster.as_deref())?;
    for member in existing.snapshots {
        controller.refuse_foreign("snapshot", member.id.as_str(), &member.metadata)?;
    }
    Ok(())
}

/// Returns the cloud of the existing volumes, or all clouds if none of the volumes exists.
///
/// In the second case, each cloud reports a missing volume and deletes the group of an earlier attempt.
/// `FAILED_PRECONDITION` if the volumes are in several clouds.
async fn candidates(
    clouds: &Clouds,
    volumes: &BTreeSet<VolumeId>,
    secrets: &BTreeMap<String, String>,
) -> Result<Vec<Cloud>, Status> {
    let mut existing: Option<(&VolumeId, Cloud)> = None;
    for volume in volumes {
        let cloud = clouds
            .cloud_of_volume(volume, secrets)
            .await
            .map_err(status::before_creation)?;
        let Some(cloud) = cloud else { continue };
        match &existing {
            Some((first, one)) if !one.is_same(&cloud) => {
                return Err(status::in_several_clouds(first.as_str(), volume.as_str()));
            }
            Some(_) => {}
            None => existing = Some((volume, cloud)),
        }
    }
    if let Some((_, cloud)) = existing {
        return Ok(vec![cloud]);
    }
    let all = clouds.all().await.map_err(status::before_creation)?;
    Ok(all.into_iter().map(|(_, cloud)| cloud).collect())
}

rpcs! {
    impl GroupController for GroupControllerService;
    group_controller_get_capabilities(GroupControllerGetCapabilitiesRequest) -> GroupControllerGetCapabilitiesResponse
        = Self::capabilities;
    create_volume_group_snapshot(CreateVolumeGroupSnapshotRequest .name) -> CreateVolumeGroupSnapshotResponse
        = Self::create;
    delete_volume_group_snapshot(DeleteVolumeGroupSnapshotRequest .group_snapshot_id) -> DeleteVolumeGroupSnapshotResponse
        = Self::delete;
    get_volume_group_snapshot(GetVolumeGroupSnapshotRequest .group_snapshot_id) -> GetVolumeGroupSnapshotResponse
        = Self::get;
}
