// SPDX-License-Identifier: Apache-2.0
//! The resources that can be polled.

use std::collections::HashSet;
use std::fmt::{Debug, Display};
use std::future::ready;
use std::hash::Hash;

use jiff::Timestamp;

use crate::api::block_storage::{Backup, BackupStatus, BlockStorage, Snapshot, SnapshotStatus, Volume, VolumeStatus};
use crate::api::compute::Compute;
use crate::error::CloudError;
use crate::http::transport::Transport;
use crate::ids::{BackupId, ServerId, SnapshotId, VolumeId};
use crate::poll::schedule::Kind;
use crate::timestamp::parse_timestamp;

/// A resource with a status that changes by itself.
pub(crate) trait Pollable: Clone + Debug + Send + Sync + 'static {
    type Id: Clone + Debug + Display + Ord + Hash + Send + Sync;
    type Status: Clone + Debug + Display + Send + Sync;

    /// Whether the cloud can list changed resources.
    const LISTS: bool = false;

    fn id(&self) -> &Self::Id;

    fn status(&self) -> &Self::Status;

    /// Time of the last change of the record, by Cinder's clock, if known.
    fn changed_at(&self) -> Option<Timestamp> {
        None
    }

    /// The name of the operation in metrics and progress reports.
    fn operation(kind: Kind) -> &'static str {
        kind.name()
    }

    /// The status while an operation of this kind is pending.
    fn under_way(kind: Kind) -> Self::Status;

    /// Gets one resource; `None` if the cloud does not know it (404).
    fn get(transport: &Transport, id: &Self::Id) -> impl Future<Output = Result<Option<Self>, CloudError>> + Send;

    /// Lists the resources among `ids` that changed since `since`, by Cinder's clock; `None` if the cloud has no such
    /// list.
    fn changed_since(
        _: &Transport,
        _: Timestamp,
        _: &HashSet<Self::Id>,
    ) -> impl Future<Output = Result<Option<Vec<Self>>, CloudError>> + Send {
        ready(Ok(None))
    }
}

impl Pollable for Volume {
    type Id = VolumeId;
    type Status = VolumeStatus;

    const LISTS: bool = true;

    fn id(&self) -> &VolumeId {
        &self.id
    }

    fn status(&self) -> &VolumeStatus {
        &self.status
    }

    fn changed_at(&self) -> Option<Timestamp> {
        self.updated_at.as_deref().and_then(parse_timestamp)
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

    async fn get(transport: &Transport, id: &VolumeId) -> Result<Option<Self>, CloudError> {
        BlockStorage::new(transport).volume(id).await
    }

    async fn changed_since(
        transport: &Transport,
        since: Timestamp,
        ids: &HashSet<VolumeId>,
    ) -> Result<Option<Vec<Self>>, CloudError> {
        BlockStorage::new(transport).changed_since(since, ids).await
    }
}

/// Nova's records of the volumes at a server, as one resource. It disappears with the server.
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

impl Pollable for ServerRecords {
    type Id = ServerId;
    type Status = String;

    fn id(&self) -> &ServerId {
        &self.server
    }

    fn status(&self) -> &String {
        &self.text
    }

    fn under_way(_: Kind) -> String {
        "recorded by Nova".to_owned()
    }

    async fn get(transport: &Transport, server: &ServerId) -> Result<Option<Self>, CloudError> {
        let volumes = Compute::new(transport).attachments(server).await?;
        Ok(volumes.map(|volumes| Self {
            server: server.clone(),
            text: format!("recorded by Nova among {} volumes", volumes.len()),
            volumes: volumes.into_iter().collect(),
        }))
    }
}

impl Pollable for Snapshot {
    type Id = SnapshotId;
    type Status = SnapshotStatus;

    fn id(&self) -> &SnapshotId {
        &self.id
    }

    fn status(&self) -> &SnapshotStatus {
        &self.status
    }

    fn operation(kind: Kind) -> &'static str {
        match kind {
            Kind::Create => "snapshot",
            Kind::Delete => "snapshot_delete",
            _ => "snapshot_settle",
        }
    }

    fn under_way(kind: Kind) -> SnapshotStatus {
        match kind {
            Kind::Create => SnapshotStatus::Creating,
            Kind::Delete => SnapshotStatus::Deleting,
            _ => SnapshotStatus::BackingUp,
        }
    }

    async fn get(transport: &Transport, id: &SnapshotId) -> Result<Option<Self>, CloudError> {
        BlockStorage::new(transport).snapshot(id).await
    }
}

impl Pollable for Backup {
    type Id = BackupId;
    type Status = BackupStatus;

    fn id(&self) -> &BackupId {
        &self.id
    }

    fn status(&self) -> &BackupStatus {
        &self.status
    }

    fn operation(kind: Kind) -> &'static str {
        match kind {
            Kind::Create => "backup",
            Kind::Delete => "backup_delete",
            _ => "backup_settle",
        }
    }

    fn under_way(kind: Kind) -> BackupStatus {
        match kind {
            Kind::Create => BackupStatus::Creating,
            Kind::Delete => BackupStatus::Deleting,
            _ => BackupStatus::Restoring,
        }
    }

    async fn get(transport: &Transport, id: &BackupId) -> Result<Option<Self>, CloudError> {
        BlockStorage::new(transport).backup(id).await
    }
}
