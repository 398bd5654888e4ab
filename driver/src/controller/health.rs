// SPDX-License-Identifier: Apache-2.0
//! ControllerGetVolumeHealth and ControllerListVolumeHealth: problems of volumes as reported by Cinder and Nova.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use cinder_cloud::{Cloud, CloudError, MemorySize, Server, ServerId, Severity, Volume, VolumeId, VolumeProblem};
use csi_proto::csi::v1::volume_health::VolumeHealthEntry;
use csi_proto::csi::v1::{
    ControllerGetVolumeHealthRequest, ControllerGetVolumeHealthResponse, ControllerListVolumeHealthRequest,
    ControllerListVolumeHealthResponse, VolumeHealth, VolumeHealthErrorType,
};
use futures::{StreamExt, stream};
use tonic::Status;

use super::read::find_volume;
use super::token::List;
use super::{ControllerService, list_cache};
use crate::operations::{Deadline, with_deadline};
use crate::status::CloudAction;
use crate::{fields, status};

/// The maximum number of unhealthy volumes in one response.
const PAGE: usize = 500;
/// The maximum number of parallel requests for servers.
const PARALLEL: usize = 8;

/// The servers of volumes; `None` for a server that Nova does not know.
type Servers = BTreeMap<ServerId, Option<Server>>;

/// Returns the health of one volume. The list is empty if it is healthy.
pub(super) async fn get(
    service: &ControllerService,
    request: ControllerGetVolumeHealthRequest,
    deadline: Deadline,
) -> Result<ControllerGetVolumeHealthResponse, Status> {
    let id = VolumeId::new(fields::required("volume_id", &request.volume_id)?);
    let (cloud, volume) = find_volume(service, &id, &request.secrets, deadline).await?;
    let servers = get_servers(&cloud, volume.servers());
    let servers = with_deadline(deadline, "ControllerGetVolumeHealth", servers).await?;
    let servers = servers.map_err(|error| status::from_cloud(CloudAction::Look, &error))?;
    Ok(ControllerGetVolumeHealthResponse {
        volume_health: Some(health(&volume, &servers, cloud.now().into())),
    })
}

/// Lists the unhealthy volumes of all clouds.
pub(super) async fn list(
    service: &ControllerService,
    request: ControllerListVolumeHealthRequest,
    deadline: Deadline,
) -> Result<ControllerListVolumeHealthResponse, Status> {
    let page = super::read::parse_page(
        service,
        List::Health,
        request.max_entries,
        &request.starting_token,
        PAGE,
    )?;
    let show = |_: &Cloud, volume: &VolumeHealth| volume.clone();
    let query = async {
        let clouds = service.clouds.all().await?;
        let fetch = || {
            super::read::fetch_lists(clouds, |cloud| async move {
                let unhealthy = unhealthy(&cloud).await;
                unhealthy.map_err(|error| status::from_cloud(CloudAction::Look, &error))
            })
        };
        service
            .health_lists
            .page(page, &service.settings.sources, fetch, show)
            .await
    };
    let (entries, next_token) = with_deadline(deadline, "ControllerListVolumeHealth", query).await??;
    Ok(ControllerListVolumeHealthResponse { entries, next_token })
}

impl list_cache::Entry for VolumeHealth {
    fn id(&self) -> &str {
        &self.volume_id
    }

    fn heap_size(&self) -> usize {
        heap_size(self)
    }
}

/// Lists the unhealthy volumes of a cloud, ordered by id. Healthy volumes are not retained, because they are many.
async fn unhealthy(cloud: &Cloud) -> Result<Arc<Vec<VolumeHealth>>, CloudError> {
    let listed = cloud.listed_servers().await?;
    let known: Servers = (listed.iter())
        .map(|(id, server)| (id.clone(), Some(server.clone())))
        .collect();
    drop(listed);
    let now = cloud.now().into();
    let each = |volume: Volume| {
        if volume.servers().iter().all(|server| known.contains_key(server)) {
            let health = Some(health(&volume, &known, now)).filter(is_unhealthy);
            health.map(CheckedVolume::Unhealthy)
        } else {
            Some(CheckedVolume::Uncertain(Box::new(volume)))
        }
    };
    let (mut unhealthy, mut uncertain) = (Vec::new(), Vec::new());
    for checked in cloud.map_volumes(each).await? {
        match checked {
            CheckedVolume::Unhealthy(health) => unhealthy.push(health),
            CheckedVolume::Uncertain(volume) => uncertain.push(volume),
        }
    }
    // A server may be newer than the list, so a server is reported as missing only after a query for it.
    let missing: BTreeSet<ServerId> = uncertain.iter().flat_map(|volume| volume.servers()).collect();
    let missing = missing.into_iter().filter(|server| !known.contains_key(server));
    let mut servers = get_servers(cloud, missing.collect()).await?;
    servers.extend(known);
    let uncertain = uncertain.iter().map(|volume| health(volume, &servers, now));
    unhealthy.extend(uncertain.filter(is_unhealthy));
    unhealthy.sort_unstable_by(|one, other| one.volume_id.cmp(&other.volume_id));
    Ok(Arc::new(unhealthy))
}

/// A volume of the list that is not known to be healthy.
#[derive(Debug)]
enum CheckedVolume {
    Unhealthy(VolumeHealth),
    /// Attached to a server that the list of servers does not contain.
    Uncertain(Box<Volume>),
}

impl MemorySize for CheckedVolume {
    fn heap_size(&self) -> usize {
        match self {
            Self::Unhealthy(health) => heap_size(health),
            Self::Uncertain(volume) => size_of::<Volume>() + volume.heap_size(),
        }
    }
}

fn heap_size(health: &VolumeHealth) -> usize {
    let texts = |entry: &VolumeHealthEntry| entry.reason.heap_size() + entry.message.heap_size();
    let entries = (health.health_statuses.iter()).map(|entry| size_of_val(entry) + texts(entry));
    health.volume_id.heap_size() + entries.sum::<usize>()
}

fn is_unhealthy(volume: &VolumeHealth) -> bool {
    !volume.health_statuses.is_empty()
}

/// Gets servers, a few in parallel.
async fn get_servers(cloud: &Cloud, ids: Vec<ServerId>) -> Result<Servers, CloudError> {
    let servers = stream::iter(ids)
        .map(|id| async move {
            let server = cloud.server(&id).await?;
            Ok((id, server))
        })
        .buffer_unordered(PARALLEL);
    let servers: Vec<Result<_, CloudError>> = servers.collect().await;
    servers.into_iter().collect()
}

fn health(volume: &Volume, servers: &Servers, now: SystemTime) -> VolumeHealth {
    let problems = volume.problems(servers, now);
    VolumeHealth {
        volume_id: volume.id.to_string(),
        health_statuses: problems.into_iter().map(entry).collect(),
    }
}

fn entry(problem: VolumeProblem) -> VolumeHealthEntry {
    let kind = match problem.severity {
        Severity::Degraded => VolumeHealthErrorType::Degraded,
        Severity::Inaccessible => VolumeHealthErrorType::Inaccessible,
        Severity::DataLoss => VolumeHealthErrorType::DataLoss,
    };
    VolumeHealthEntry {
        status: kind as i32,
        reason: problem.reason.to_owned(),
        message: problem.message,
    }
}
