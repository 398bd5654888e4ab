// SPDX-License-Identifier: Apache-2.0
//! ListSnapshots and GetSnapshot: snapshots and backups alike.

use std::collections::BTreeMap;
use std::sync::Arc;

use cinder_cloud::{Cloud, PointInTime, VolumeId};
use csi_proto::csi::v1::list_snapshots_response::Entry;
use csi_proto::csi::v1::{
    self as csi, GetSnapshotRequest, GetSnapshotResponse, ListSnapshotsRequest, ListSnapshotsResponse,
};
use tonic::Status;

use super::listed::ListedSnapshot;
use super::{topology, zones_matter};
use crate::controller::read::{lists, page};
use crate::controller::token::List;
use crate::controller::walk::Walks;
use crate::controller::{ControllerService, encode};
use crate::operations::{Deadline, with_deadline};
use crate::parameters::metadata_keys;
use crate::status::Act;
use crate::{fields, status};

/// The most entries of one answer; what is left has a token.
const PAGE: usize = 1_000;

/// One snapshot or backup, ready or not; one that failed is an error that says why.
pub(in crate::controller) async fn get(
    service: &ControllerService,
    request: GetSnapshotRequest,
    deadline: Deadline,
) -> Result<GetSnapshotResponse, Status> {
    let id = fields::required("snapshot_id", &request.snapshot_id)?;
    let look = async {
        let found = one(service, id, &request.secrets).await?;
        found.ok_or_else(|| status::not_found("snapshot", id))
    };
    let found = with_deadline(deadline, "GetSnapshot", look).await??;
    Ok(GetSnapshotResponse { snapshot: Some(found) })
}

/// What exists and is cut, in the order of ids, so that a page can begin behind one that is gone by now.
pub(in crate::controller) async fn list(
    service: &ControllerService,
    request: ListSnapshotsRequest,
    deadline: Deadline,
) -> Result<ListSnapshotsResponse, Status> {
    let page = page(
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
        let look = one(service, &request.snapshot_id, &request.secrets);
        let found = with_deadline(deadline, "ListSnapshots", look).await??;
        let wanted = |found: &csi::Snapshot| {
            source
                .as_ref()
                .is_none_or(|volume| found.source_volume_id == volume.as_str())
        };
        return Ok(ListSnapshotsResponse {
            entries: found.filter(wanted).map(entry).into_iter().collect(),
            next_token: String::new(),
        });
    }
    if source.as_ref().is_some_and(|volume| !volume.is_uuid()) {
        return Ok(ListSnapshotsResponse::default());
    }
    // What one set of credentials or one volume gives is short, and not for others.
    let own = Walks::default();
    let walks = if request.secrets.is_empty() && source.is_none() {
        &service.snapshot_walks
    } else {
        &own
    };
    let show = |cloud: &Cloud, listed: &ListedSnapshot| {
        entry(csi::Snapshot {
            accessible_topology: topology(service, cloud, listed.zone.as_deref()),
            ..listed.snapshot.clone()
        })
    };
    let look = async {
        let clouds = clouds(service, &request.secrets).await?;
        let fetch = || lists(clouds, |cloud| listed(service, cloud, source.clone()));
        walks.page(page, &service.settings.sources, fetch, show).await
    };
    let (entries, next_token) = with_deadline(deadline, "ListSnapshots", look).await??;
    Ok(ListSnapshotsResponse { entries, next_token })
}

/// All clouds, or the one that the secrets name.
async fn clouds(
    service: &ControllerService,
    secrets: &BTreeMap<String, String>,
) -> Result<Vec<(String, Cloud)>, Status> {
    if secrets.is_empty() {
        return service.clouds.all().await;
    }
    // A place names a cloud of the list that it was read with.
    let name = service.clouds.configured().into_iter().next().map(|(name, _)| name);
    let chosen = service.clouds.chosen(secrets)?.check().await?;
    Ok(vec![(name.unwrap_or_default(), chosen)])
}

/// The snapshot or backup of an id.
async fn one(
    service: &ControllerService,
    id: &str,
    secrets: &BTreeMap<String, String>,
) -> Result<Option<csi::Snapshot>, Status> {
    if !VolumeId::new(id).is_uuid() {
        return Ok(None);
    }
    let failed = |error| status::cloud(Act::Look, &error);
    let Some(cloud) = service.clouds.of_snapshot(id, secrets).await? else {
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
    let mut zone = own_zone(&point);
    if zone.is_none() && zones_matter(service, &cloud) && matches!(point, PointInTime::Snapshot(_)) {
        let volume = cloud.volume(point.volume()).await.map_err(failed)?;
        zone = volume.and_then(|volume| volume.availability_zone);
    }
    let topology = topology(service, &cloud, zone.as_deref());
    Ok(Some(encode::point_in_time(&point, topology)))
}

/// The snapshots and backups of a cloud, or of one volume in it, by their ids.
async fn listed(
    service: &ControllerService,
    cloud: Cloud,
    source: Option<VolumeId>,
) -> Result<Arc<Vec<ListedSnapshot>>, Status> {
    let mut points = points(&cloud, source.as_ref()).await?;
    points.sort_unstable_by(|one, other| one.id().cmp(other.id()));
    let zones = zones(service, &cloud, &points).await?;
    let listed = points.iter().map(|point| ListedSnapshot {
        snapshot: encode::point_in_time(point, Vec::new()),
        zone: own_zone(point).or_else(|| zones.get(point.volume()).cloned()),
    });
    Ok(Arc::new(listed.collect()))
}

/// What of a cloud belongs into a list: snapshots that are cut, and backups, whose data is cut when there is a record of them.
async fn points(cloud: &Cloud, source: Option<&VolumeId>) -> Result<Vec<PointInTime>, Status> {
    let failed = |error| status::cloud(Act::Look, &error);
    let snapshots = cloud.list_snapshots(source).await.map_err(failed)?;
    let backups = cloud.list_backups(source).await.map_err(failed)?;
    Ok(snapshots
        .into_iter()
        .filter(|snapshot| snapshot.status.is_complete())
        .map(PointInTime::Snapshot)
        .chain(
            backups
                .into_iter()
                .map(PointInTime::Backup)
                .filter(|backup| backup.is_complete() || backup.is_coming()),
        )
        .collect())
}

/// The zones of the volumes of those snapshots that do not tell them: other drivers made them.
async fn zones(
    service: &ControllerService,
    cloud: &Cloud,
    points: &[PointInTime],
) -> Result<BTreeMap<VolumeId, String>, Status> {
    let silent = |point: &PointInTime| matches!(point, PointInTime::Snapshot(_)) && own_zone(point).is_none();
    if !zones_matter(service, cloud) || !points.iter().any(silent) {
        return Ok(BTreeMap::new());
    }
    let volumes = cloud.listed_volumes().await;
    let volumes = volumes.map_err(|error| status::cloud(Act::Look, &error))?;
    Ok(volumes
        .iter()
        .filter_map(|volume| Some((volume.id.clone(), volume.zone.as_deref()?.to_owned())))
        .collect())
}

/// The zone that a snapshot tells itself. Backups can be restored anywhere.
fn own_zone(point: &PointInTime) -> Option<String> {
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
