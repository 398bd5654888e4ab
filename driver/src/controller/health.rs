// SPDX-License-Identifier: Apache-2.0
//! ControllerGetVolumeHealth and ControllerListVolumeHealth: what is wrong with volumes, as Cinder and Nova tell.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use cinder_cloud::{Cloud, CloudError, Server, ServerId, Severity, Trouble, Volume, VolumeId};
use csi_proto::csi::v1::volume_health::VolumeHealthEntry;
use csi_proto::csi::v1::{
    ControllerGetVolumeHealthRequest, ControllerGetVolumeHealthResponse, ControllerListVolumeHealthRequest,
    ControllerListVolumeHealthResponse, VolumeHealth, VolumeHealthErrorType,
};
use futures::{StreamExt, stream};
use tonic::Status;

use super::read::find;
use super::token::List;
use super::{ControllerService, walk};
use crate::operations::{Deadline, with_deadline};
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
    let servers = with_deadline(deadline, "ControllerGetVolumeHealth", servers).await?;
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
    let page = super::read::page(
        service,
        List::Health,
        request.max_entries,
        &request.starting_token,
        PAGE,
    )?;
    let show = |_: &Cloud, found: &VolumeHealth| found.clone();
    let look = async {
        let clouds = service.clouds.all().await?;
        let fetch = || {
            super::read::lists(clouds, |cloud| async move {
                let troubled = troubled(&cloud).await;
                troubled.map_err(|error| status::cloud(Act::Look, &error))
            })
        };
        service
            .health_walks
            .page(page, &service.settings.sources, fetch, show)
            .await
    };
    let (entries, next_token) = with_deadline(deadline, "ControllerListVolumeHealth", look).await??;
    Ok(ControllerListVolumeHealthResponse { entries, next_token })
}

impl walk::Entry for VolumeHealth {
    fn id(&self) -> &str {
        &self.volume_id
    }
}

/// The troubled volumes of a cloud in the order of their ids. Volumes are many and troubles few: what is well is not kept.
async fn troubled(cloud: &Cloud) -> Result<Arc<Vec<VolumeHealth>>, CloudError> {
    let listed = cloud.listed_servers().await?;
    let known: Servers = (listed.iter())
        .map(|(id, server)| (id.clone(), Some(server.clone())))
        .collect();
    drop(listed);
    let now = cloud.now().into();
    let mut uncertain = Vec::new();
    let each = |volume: Volume| {
        if volume.servers().iter().all(|server| known.contains_key(server)) {
            Some(health(&volume, &known, now)).filter(is_troubled)
        } else {
            uncertain.push(volume);
            None
        }
    };
    let mut troubled = cloud.map_volumes(each).await?;
    // The list may be older than a server: that one is gone is said only after a look.
    let missing: BTreeSet<ServerId> = uncertain.iter().flat_map(Volume::servers).collect();
    let missing = missing.into_iter().filter(|server| !known.contains_key(server));
    let mut servers = ask(cloud, missing.collect()).await?;
    servers.extend(known);
    let uncertain = uncertain.iter().map(|volume| health(volume, &servers, now));
    troubled.extend(uncertain.filter(is_troubled));
    troubled.sort_unstable_by(|one, other| one.volume_id.cmp(&other.volume_id));
    Ok(Arc::new(troubled))
}

fn is_troubled(found: &VolumeHealth) -> bool {
    !found.health_statuses.is_empty()
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
