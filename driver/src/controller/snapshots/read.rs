// SPDX-License-Identifier: Apache-2.0
//! ListSnapshots and GetSnapshot, for both snapshots and backups.

use std::collections::BTreeMap;
use std::sync::Arc;

use cinder_cloud::{Backup, Cloud, PointInTime, Snapshot, VolumeId};
use csi_proto::csi::v1::list_snapshots_response::Entry;
use csi_proto::csi::v1::{
    self as csi, GetSnapshotRequest, GetSnapshotResponse, ListSnapshotsRequest, ListSnapshotsResponse,
};
use tonic::Status;

use super::listed::ListedSnapshot;
use super::zones::{cloud_reports_topology, topology};
use crate::controller::list_cache::ListCache;
use crate::controller::read::{fetch_lists, parse_page};
use crate::controller::token::List;
use crate::controller::{ControllerService, encode};
use crate::operations::{Deadline, with_deadline};
use crate::parameters::metadata_keys;
use crate::status::CloudAction;
use crate::{fields, status};

/// The maximum number of entries in one response. A token leads to the remaining ones.
const PAGE: usize = 1_000;

/// Returns one snapshot or backup, whether or not it is ready. A failed one is an error with the reason.
pub(in crate::controller) async fn get(
    service: &ControllerService,
    request: GetSnapshotRequest,
    deadline: Deadline,
) -> Result<GetSnapshotResponse, Status> {
    let id = fields::required("snapshot_id", &request.snapshot_id)?;
    let query = async {
        let snapshot = find_snapshot(service, id, &request.secrets).await?;
        snapshot.ok_or_else(|| status::not_found("snapshot", id))
    };
    let snapshot = with_deadline(deadline, "GetSnapshot", query).await??;
    Ok(GetSnapshotResponse {
        snapshot: Some(snapshot),
    })
}

/// Lists complete snapshots, and backups with a record. The order by id lets a page resume after a deleted entry.
pub(in crate::controller) async fn list(
    service: &ControllerService,
    request: ListSnapshotsRequest,
    deadline: Deadline,
) -> Result<ListSnapshotsResponse, Status> {
    let page = parse_page(
        service,
        List::Snapshots,
        request.max_entries,
        &request.starting_token,
        PAGE,
    )?;
    let source = Some(VolumeId::new(request.source_volume_id)).filter(|volume| !volume.as_str().is_empty());
    let entry = |snapshot| Entry {
        snapshot: Some(snapshot),
    };
    if !request.snapshot_id.is_empty() {
        let query = find_snapshot(service, &request.snapshot_id, &request.secrets);
        let snapshot = with_deadline(deadline, "ListSnapshots", query).await??;
        let matches_source = |snapshot: &csi::Snapshot| {
            source
                .as_ref()
                .is_none_or(|volume| snapshot.source_volume_id == volume.as_str())
        };
        return Ok(ListSnapshotsResponse {
            entries: snapshot.filter(matches_source).map(entry).into_iter().collect(),
            next_token: String::new(),
        });
    }
    if source.as_ref().is_some_and(|volume| !volume.is_uuid()) {
        return Ok(ListSnapshotsResponse::default());
    }
    // A list for one set of credentials or one volume is short and must not be shared.
    let own = ListCache::default();
    let cache = if request.secrets.is_empty() && source.is_none() {
        &service.snapshot_lists
    } else {
        &own
    };
    let show = |cloud: &Cloud, listed: &ListedSnapshot| {
        entry(csi::Snapshot {
            accessible_topology: topology(service, cloud, listed.zone.as_deref()),
            ..listed.snapshot.clone()
        })
    };
    let query = async {
        let clouds = select_clouds(service, &request.secrets).await?;
        let fetch = || fetch_lists(clouds, |cloud| list_cloud(service, cloud, source.clone()));
        cache.page(page, &service.settings.sources, fetch, show).await
    };
    let (entries, next_token) = with_deadline(deadline, "ListSnapshots", query).await??;
    Ok(ListSnapshotsResponse { entries, next_token })
}

/// Returns all clouds, or the cloud that the secrets select.
async fn select_clouds(
    service: &ControllerService,
    secrets: &BTreeMap<String, String>,
) -> Result<Vec<(String, Cloud)>, Status> {
    if secrets.is_empty() {
        return service.clouds.all().await;
    }
    // A page position refers to a cloud by its configured name.
    let name = service.clouds.configured().into_iter().next().map(|(name, _)| name);
    let chosen = service.clouds.choose(secrets)?.check().await?;
    Ok(vec![(name.unwrap_or_default(), chosen)])
}

/// Finds the snapshot or backup with an id.
async fn find_snapshot(
    service: &ControllerService,
    id: &str,
    secrets: &BTreeMap<String, String>,
) -> Result<Option<csi::Snapshot>, Status> {
    if !VolumeId::new(id).is_uuid() {
        return Ok(None);
    }
    let failed = |error| status::from_cloud(CloudAction::Look, &error);
    let Some(cloud) = service.clouds.cloud_of_snapshot(id, secrets).await? else {
        return Ok(None);
    };
    let Some(point) = cloud.point_in_time(id).await.map_err(failed)? else {
        return Ok(None);
    };
    if is_temporary(&point) {
        return Ok(None);
    }
    if let Some(state) = point.failed() {
        let words = cloud.failure_of(&point).await;
        return Err(status::point_in_time_failed(id, state, &words));
    }
    let mut zone = recorded_zone(&point);
    if zone.is_none() && cloud_reports_topology(service, &cloud) && matches!(point, PointInTime::Snapshot(_)) {
        let volume = cloud.volume(point.volume()).await.map_err(failed)?;
        zone = volume.and_then(|volume| volume.availability_zone);
    }
    let topology = topology(service, &cloud, zone.as_deref());
    Ok(Some(encode::point_in_time(&point, topology)))
}

/// Lists the snapshots and backups of a cloud, or of one of its volumes, by id.
async fn list_cloud(
    service: &ControllerService,
    cloud: Cloud,
    source: Option<VolumeId>,
) -> Result<Arc<Vec<ListedSnapshot>>, Status> {
    let mut listed = list_points(&cloud, source.as_ref()).await?;
    listed.sort_unstable_by(|one, other| one.snapshot.snapshot_id.cmp(&other.snapshot.snapshot_id));
    add_volume_zones(service, &cloud, &mut listed).await?;
    Ok(Arc::new(listed))
}

/// Gets the snapshots that are complete, and the backups of which Cinder has a record, because their data is fixed from
/// then on.
async fn list_points(cloud: &Cloud, source: Option<&VolumeId>) -> Result<Vec<ListedSnapshot>, Status> {
    let failed = |error| status::from_cloud(CloudAction::Look, &error);
    let entry = |point: &PointInTime| ListedSnapshot {
        snapshot: encode::point_in_time(point, Vec::new()),
        zone: recorded_zone(point).map(Arc::from),
        has_zone: matches!(point, PointInTime::Snapshot(_)),
    };
    let complete = |snapshot: Snapshot| {
        let is_complete = snapshot.status.is_complete();
        is_complete.then(|| entry(&PointInTime::Snapshot(snapshot)))
    };
    let recorded = |backup: Backup| {
        let backup = PointInTime::Backup(backup);
        (backup.is_complete() || backup.is_coming()).then(|| entry(&backup))
    };
    let mut listed = cloud.map_snapshots(source, complete).await.map_err(failed)?;
    listed.extend(cloud.map_backups(source, recorded).await.map_err(failed)?);
    Ok(listed)
}

/// Adds the zones of the volumes to snapshots that were created by other drivers and do not record a zone.
async fn add_volume_zones(
    service: &ControllerService,
    cloud: &Cloud,
    listed: &mut [ListedSnapshot],
) -> Result<(), Status> {
    let mut silent = listed
        .iter_mut()
        .filter(|listed| listed.has_zone && listed.zone.is_none());
    let Some(first) = silent.next().filter(|_| cloud_reports_topology(service, cloud)) else {
        return Ok(());
    };
    let volumes = cloud.listed_volumes().await;
    let volumes = volumes.map_err(|error| status::from_cloud(CloudAction::Look, &error))?;
    for listed in std::iter::once(first).chain(silent) {
        let source = listed.snapshot.source_volume_id.as_str();
        let found = volumes.binary_search_by(|volume| volume.id.as_str().cmp(source));
        listed.zone = found.ok().and_then(|index| volumes[index].zone.clone());
    }
    Ok(())
}

/// Returns the zone that a snapshot records. Backups can be restored in any zone.
fn recorded_zone(point: &PointInTime) -> Option<String> {
    match point {
        PointInTime::Snapshot(snapshot) => snapshot.metadata.get(metadata_keys::ZONE).cloned(),
        PointInTime::Backup(_) => None,
    }
}

fn is_temporary(point: &PointInTime) -> bool {
    match point {
        PointInTime::Snapshot(snapshot) => snapshot.metadata.contains_key(metadata_keys::TEMPORARY_FOR),
        PointInTime::Backup(_) => false,
    }
}
