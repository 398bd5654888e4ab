//! What can be watched.

use std::collections::HashSet;
use std::fmt::{Debug, Display};
use std::hash::Hash;

use jiff::Timestamp;

use crate::block_storage::{BlockStorage, Volume, VolumeStatus};
use crate::compute::Compute;
use crate::error::CloudError;
use crate::ids::{ServerId, VolumeId};
use crate::pace::Kind;
use crate::transport::Transport;

/// A list that tells about several things at once.
#[derive(Debug)]
pub(crate) enum List<'a, T: Watched> {
    /// All that has changed since then, by Cinder's clock.
    ChangedSince(Timestamp),
    /// All in a status; the newest of them, at most so many, where a number is given.
    InStatus(&'a T::Status, Option<u32>),
}

/// A thing with a status that changes by itself.
pub(crate) trait Watched: Clone + Debug + Send + Sync + 'static {
    /// What it is known by.
    type Id: Clone + Debug + Display + Ord + Hash + Send + Sync;
    /// Its status.
    type Status: Clone + Debug + Display + Eq + Hash + Send + Sync;

    /// Whether there are lists that tell about several of them.
    const LISTS: bool;

    fn id(&self) -> &Self::Id;

    fn status(&self) -> &Self::Status;

    /// The name of the operation in metrics and progress reports.
    fn operation(kind: Kind) -> &'static str {
        kind.name()
    }

    /// The status in which an operation of this kind is under way.
    fn under_way(kind: Kind) -> Self::Status;

    /// Where to look for what has left a status during an operation of this kind, the status itself aside: on the way and at its
    /// end, with the longest page where a list may hold many others. A deletion's end is no status.
    fn further(kind: Kind) -> Vec<(Self::Status, Option<u32>)>;

    /// One of them; `None` when the cloud does not know it.
    fn get(transport: &Transport, id: &Self::Id) -> impl Future<Output = Result<Option<Self>, CloudError>> + Send;

    /// Several of them; `None` when the cloud has no such list.
    fn list(
        transport: &Transport,
        list: &List<'_, Self>,
    ) -> impl Future<Output = Result<Option<Vec<Self>>, CloudError>> + Send;
}

/// A point in time as Cinder writes it: UTC, without saying so.
pub(crate) fn timestamp(text: &str) -> Option<Timestamp> {
    let written: jiff::civil::DateTime = text.trim_end_matches('Z').parse().ok()?;
    Some(written.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
}

/// The longest page of a list of those that have come to an end.
const PAGE: u32 = 100;

impl Watched for Volume {
    type Id = VolumeId;
    type Status = VolumeStatus;

    const LISTS: bool = true;

    fn id(&self) -> &VolumeId {
        &self.id
    }

    fn status(&self) -> &VolumeStatus {
        &self.status
    }

    fn under_way(kind: Kind) -> VolumeStatus {
        match kind {
            Kind::Create => VolumeStatus::Creating,
            Kind::Delete => VolumeStatus::Deleting,
            Kind::Attach => VolumeStatus::Attaching,
            Kind::Detach | Kind::Settle => VolumeStatus::Detaching,
            Kind::Extend => VolumeStatus::Extending,
            Kind::Retype => VolumeStatus::Retyping,
        }
    }

    fn further(kind: Kind) -> Vec<(VolumeStatus, Option<u32>)> {
        match kind {
            Kind::Create | Kind::Detach => vec![(VolumeStatus::Available, Some(PAGE))],
            Kind::Attach => vec![
                (VolumeStatus::Reserved, None),
                (VolumeStatus::Attaching, None),
                (VolumeStatus::InUse, Some(PAGE)),
            ],
            Kind::Extend | Kind::Retype => {
                vec![(VolumeStatus::InUse, Some(PAGE)), (VolumeStatus::Available, Some(PAGE))]
            }
            Kind::Delete | Kind::Settle => Vec::new(),
        }
    }

    async fn get(transport: &Transport, id: &VolumeId) -> Result<Option<Self>, CloudError> {
        BlockStorage::new(transport).volume(id).await
    }

    async fn list(transport: &Transport, list: &List<'_, Self>) -> Result<Option<Vec<Self>>, CloudError> {
        let cinder = BlockStorage::new(transport);
        match list {
            List::ChangedSince(since) => cinder.changed_since(*since).await,
            List::InStatus(status, limit) => {
                let filter = [("status", status.to_string())];
                match limit {
                    Some(_) => cinder.page(&filter, *limit).await.map(|page| Some(page.volumes)),
                    None => cinder.all(&filter).await.map(Some),
                }
            }
        }
    }
}

/// Nova's records of the volumes at a server, as one thing to watch; it is gone when the server is.
#[derive(Debug, Clone)]
pub(crate) struct ServerRecords {
    server: ServerId,
    volumes: HashSet<VolumeId>,
    text: String,
}

impl ServerRecords {
    /// Whether Nova has a record of the volume.
    pub(crate) fn has(&self, volume: &VolumeId) -> bool {
        self.volumes.contains(volume)
    }
}

impl Watched for ServerRecords {
    type Id = ServerId;
    type Status = String;

    const LISTS: bool = false;

    fn id(&self) -> &ServerId {
        &self.server
    }

    fn status(&self) -> &String {
        &self.text
    }

    fn under_way(_: Kind) -> String {
        "recorded by Nova".to_owned()
    }

    fn further(_: Kind) -> Vec<(String, Option<u32>)> {
        Vec::new()
    }

    async fn get(transport: &Transport, server: &ServerId) -> Result<Option<Self>, CloudError> {
        let volumes = Compute::new(transport).attachments(server).await?;
        Ok(volumes.map(|volumes| Self {
            server: server.clone(),
            text: format!("recorded by Nova among {} volumes", volumes.len()),
            volumes: volumes.into_iter().collect(),
        }))
    }

    async fn list(_: &Transport, _: &List<'_, Self>) -> Result<Option<Vec<Self>>, CloudError> {
        Ok(None)
    }
}
