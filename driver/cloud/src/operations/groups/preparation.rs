// SPDX-License-Identifier: Apache-2.0
//! Prepares the group of a new group snapshot: checks the volumes and the type, and finds or creates the group.

use std::collections::BTreeSet;

use futures::StreamExt;
use futures::stream;
use tokio::time::Instant;

use super::own::{self, dissolve_if_own, leave_own_group, own_group};
use super::poll::wait_group_created;
use super::types::NewGroupSnapshot;
use crate::api::block_storage::{BlockStorage, Group, GroupType, GroupedVolume, NewGroup, VolumeStatus};
use crate::context::Context;
use crate::error::{CloudError, ObjectKind};
use crate::ids::VolumeId;
use crate::operations::deletion::final_if_removed;

/// Concurrent reads of volumes.
const PARALLEL: usize = 8;

/// Gets the volumes, which must exist, be usable, and be in one zone.
async fn volumes_to_group(cx: &Context, new: &NewGroupSnapshot) -> Result<Vec<GroupedVolume>, CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    let reads = stream::iter(new.volumes.iter().cloned())
        .map(|id| async move {
            let found = cinder.grouped_volume(&id).await?;
            found.ok_or_else(|| CloudError::no_volume(&id))
        })
        .buffered(PARALLEL);
    let reads: Vec<Result<GroupedVolume, CloudError>> = reads.collect().await;
    let volumes = reads.into_iter().collect::<Result<Vec<_>, _>>()?;
    for GroupedVolume { volume, .. } in &volumes {
        match &volume.status {
            VolumeStatus::Available | VolumeStatus::InUse => {}
            status if status.is_error() => {
                return Err(CloudError::Broken {
                    kind: ObjectKind::Volume,
                    id: volume.id.to_string(),
                    status: status.to_string(),
                    message: String::new(),
                });
            }
            status => {
                return Err(CloudError::Busy {
                    kind: ObjectKind::Volume,
                    id: volume.id.to_string(),
                    status: status.to_string(),
                    wanted: "available or in-use",
                });
            }
        }
    }
    let zones: BTreeSet<_> = volumes
        .iter()
        .map(|one| one.volume.availability_zone.as_deref())
        .collect();
    if zones.len() > 1 {
        let zones: Vec<&str> = zones.into_iter().map(Option::unwrap_or_default).collect();
        return Err(new.impossible_error(format!("its volumes are in several zones ({})", zones.join(", "))));
    }
    Ok(volumes)
}

/// Gets the type of the group, which must have consistent snapshots. Cinder shows this property to administrators only.
/// For other users, the class that names the type is trusted.
async fn group_type(cx: &Context, new: &NewGroupSnapshot) -> Result<GroupType, CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    let Some(wanted) = &new.group_type else {
        let consistent = cinder.group_types(|one| one.is_consistent() == Some(true)).await?;
        return consistent.into_iter().next().ok_or_else(|| {
            new.impossible_error(
                "no group type is known to be consistent; name one with consistent_group_snapshot_enabled in the class",
            )
        });
    };
    let found = cinder
        .group_types(|one| one.name == *wanted || one.id == *wanted)
        .await?;
    let found = found
        .into_iter()
        .next()
        .ok_or_else(|| new.impossible_error(format!("the project knows no group type {wanted}")))?;
    if found.is_consistent() == Some(false) {
        return Err(new.impossible_error(format!(
            "snapshots of groups of type {} are not of one moment; have an administrator set its group spec \
                 consistent_group_snapshot_enabled to \"<is> True\", or name another type",
            found.name
        )));
    }
    Ok(found)
}

/// Returns the group for the snapshot: the group that consists of exactly these volumes, or one of this driver.
pub(super) async fn group_for(cx: &Context, new: &NewGroupSnapshot, deadline: Instant) -> Result<Group, CloudError> {
    let volumes = volumes_to_group(cx, new).await?;
    let group_type = group_type(cx, new).await?;
    let own = own_group(cx, &new.name, &new.cluster, &group_type, deadline).await?;
    let elsewhere =
        |one: &&GroupedVolume| !one.group_id.is_empty() && own.as_ref().is_none_or(|own| own.id != one.group_id);
    for placed in volumes.iter().filter(elsewhere) {
        let cinder = BlockStorage::new(&cx.transport);
        let Some(group) = cinder.group(&placed.group_id).await? else {
            // It was the group of an abandoned attempt, which was just removed.
            continue;
        };
        let members: BTreeSet<&VolumeId> = group.volumes.iter().collect();
        if own.is_none() && !own::is_own(&group) && members == new.volumes.iter().collect() {
            if group.type_id == group_type.id {
                return Ok(group);
            }
            return Err(new.impossible_error(format!(
                "its volumes are in group {}, which is not of type {}",
                group.id, group_type.name
            )));
        }
        if own::is_own(&group) && leave_own_group(cx, &placed.volume.id).await? {
            // The group of a killed process. The next attempt finds the volume outside of it.
            return Err(CloudError::Busy {
                kind: ObjectKind::Volume,
                id: placed.volume.id.to_string(),
                status: format!("taken out of the group {} of an abandoned snapshot", group.id),
                wanted: "in no group",
            });
        }
        return Err(new.impossible_error(format!(
                "volume {} is in group {}, and a volume is in one group at most; snapshot exactly the volumes of that group, or \
                 take it out",
                placed.volume.id, placed.group_id
            ),
        ));
    }
    if let Some(own) = own {
        return Ok(own);
    }
    let types: BTreeSet<&str> = volumes
        .iter()
        .filter_map(|one| one.volume.volume_type.as_deref())
        .collect();
    let id = BlockStorage::new(&cx.transport)
        .create_group(&NewGroup {
            name: &new.name,
            description: &own::description_of_group(&new.cluster),
            group_type: &group_type.id,
            volume_types: types.iter().map(|&name| name.to_owned()).collect(),
            availability_zone: volumes.first().and_then(|one| one.volume.availability_zone.as_deref()),
        })
        .await?;
    let group = wait_group_created(cx, &id, deadline).await?;
    let group = group.ok_or_else(|| new.failed_error("deleted", "its group vanished"))?;
    if group.status == "available" {
        return Ok(group);
    }
    let status = group.status.clone();
    let error = new.impossible_error(format!(
        "its group went to {status}: no backend in the volumes' zone takes a group of type {} with volumes of {}",
        group_type.name,
        Vec::from_iter(types).join(" and ")
    ));
    let removal = dissolve_if_own(cx, &id, deadline).await;
    Err(final_if_removed(error, ObjectKind::Group, &id, removal))
}
