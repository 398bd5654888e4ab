//! ControllerGetVolumeHealth and ControllerListVolumeHealth: what is wrong with volumes, as Cinder and Nova tell.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use cinder_cloud::{Cloud, CloudError, Server, ServerId, Severity, Trouble, Volume, VolumeId};
use csi_proto::csi::v1::volume_health::VolumeHealthEntry;
use csi_proto::csi::v1::{
    ControllerGetVolumeHealthRequest, ControllerGetVolumeHealthResponse, ControllerListVolumeHealthRequest,
    ControllerListVolumeHealthResponse, VolumeHealth, VolumeHealthErrorType,
};
use futures::{StreamExt, stream};
use tonic::Status;

use super::ControllerService;
use super::look::{find, within};
use super::token::{List, Place};
use crate::operations::Deadline;
use crate::status::Act;
use crate::{fields, status};

/// The most volumes with trouble in one answer.
const PAGE: usize = 500;
/// Looks at servers at the same time.
const PARALLEL: usize = 8;

/// The servers that have volumes, as Nova knows them; `None` for one that it does not know.
type Servers = BTreeMap<ServerId, Option<Server>>;

/// One volume; without trouble the list is empty.
pub(super) async fn get(
    service: &ControllerService,
    request: ControllerGetVolumeHealthRequest,
    deadline: Deadline,
) -> Result<ControllerGetVolumeHealthResponse, Status> {
    let id = VolumeId::new(fields::required("volume_id", &request.volume_id)?);
    let (cloud, volume) = find(service, &id, &request.secrets, deadline).await?;
    let servers = ask(&cloud, volume.servers());
    let servers = within(deadline, "ControllerGetVolumeHealth", servers).await?;
    let servers = servers.map_err(|error| status::cloud(Act::Look, &error))?;
    Ok(ControllerGetVolumeHealthResponse {
        volume_health: Some(health(&volume, &servers, cloud.now().into())),
    })
}

/// The volumes with trouble, of all clouds.
pub(super) async fn list(
    service: &ControllerService,
    request: ControllerListVolumeHealthRequest,
    deadline: Deadline,
) -> Result<ControllerListVolumeHealthResponse, Status> {
    let (limit, mut place) = super::look::page(
        service,
        List::Health,
        request.max_entries,
        &request.starting_token,
        PAGE,
    )?;
    let look = async {
        let mut entries = Vec::new();
        for (name, cloud) in service.clouds.all() {
            if place.as_ref().is_some_and(|place| place.cloud > name) {
                continue;
            }
            let after = place.take_if(|place| place.cloud == name);
            let troubled = troubled(&cloud)
                .await
                .map_err(|error| status::cloud(Act::Look, &error))?;
            for found in troubled {
                if after
                    .as_ref()
                    .is_some_and(|place| found.volume_id.as_str() <= place.after.as_str())
                {
                    continue;
                }
                if entries.len() == limit {
                    return Ok(page(entries, true));
                }
                entries.push((name.clone(), found));
            }
        }
        Ok(page(entries, false))
    };
    within(deadline, "ControllerListVolumeHealth", look).await?
}

fn page(entries: Vec<(String, VolumeHealth)>, more: bool) -> ControllerListVolumeHealthResponse {
    let last = entries.last().filter(|_| more);
    let next_token = last.map(|(cloud, last)| {
        let place = Place {
            cloud: cloud.clone(),
            after: VolumeId::new(last.volume_id.clone()),
        };
        place.token(List::Health)
    });
    ControllerListVolumeHealthResponse {
        entries: entries.into_iter().map(|(_, found)| found).collect(),
        next_token: next_token.unwrap_or_default(),
    }
}

/// The troubled volumes of a cloud in the order of their ids, from the lists that all share.
async fn troubled(cloud: &Cloud) -> Result<Vec<VolumeHealth>, CloudError> {
    let volumes = cloud.listed_volumes().await?;
    let attached: BTreeSet<ServerId> = volumes.values().flat_map(Volume::servers).collect();
    let mut servers = Servers::new();
    if !attached.is_empty() {
        let listed = cloud.listed_servers().await?;
        let (known, missing): (Vec<_>, Vec<_>) = attached.into_iter().partition(|id| listed.contains_key(id));
        // The list may be older than a server: that one is gone is said only after a look.
        servers = ask(cloud, missing).await?;
        let known = known.into_iter().filter_map(|id| {
            let server = listed.get(&id)?.clone();
            Some((id, Some(server)))
        });
        servers.extend(known);
    }
    let now = cloud.now().into();
    let all = volumes.values().map(|volume| health(volume, &servers, now));
    Ok(all.filter(|found| !found.health_statuses.is_empty()).collect())
}

/// Looks at servers, a few at the same time.
async fn ask(cloud: &Cloud, ids: Vec<ServerId>) -> Result<Servers, CloudError> {
    let looks = stream::iter(ids)
        .map(|id| async move {
            let server = cloud.server(&id).await?;
            Ok((id, server))
        })
        .buffer_unordered(PARALLEL);
    let looks: Vec<Result<_, CloudError>> = looks.collect().await;
    looks.into_iter().collect()
}

fn health(volume: &Volume, servers: &Servers, now: SystemTime) -> VolumeHealth {
    let troubles = volume.troubles(servers, now);
    VolumeHealth {
        volume_id: volume.id.to_string(),
        health_statuses: troubles.into_iter().map(entry).collect(),
    }
}

fn entry(trouble: Trouble) -> VolumeHealthEntry {
    let kind = match trouble.severity {
        Severity::Degraded => VolumeHealthErrorType::Degraded,
        Severity::Inaccessible => VolumeHealthErrorType::Inaccessible,
        Severity::DataLoss => VolumeHealthErrorType::DataLoss,
    };
    VolumeHealthEntry {
        status: kind as i32,
        reason: trouble.reason.to_owned(),
        message: trouble.message,
    }
}
