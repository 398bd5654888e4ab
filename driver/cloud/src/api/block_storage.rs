// SPDX-License-Identifier: Apache-2.0
//! Cinder, typed: the few calls that this product makes, in the shapes of API v3, by noun.

mod attachments;
mod backups;
mod changes;
mod groups;
mod limits;
mod messages;
mod resource;
mod snapshots;
mod status;
mod types;
mod volumes;

use reqwest::Method;
use serde::{Deserialize, Deserializer};

use crate::http::service::Service;
use crate::http::transport::{Request, Transport};

pub(crate) use attachments::Attachment;
pub use backups::{Backup, BackupStatus, NewBackup};
pub(crate) use groups::{Group, GroupSnapshotRecord, GroupType, GroupedVolume, NewGroup};
pub use limits::Quota;
pub(crate) use limits::{Backend, Pool, PoolCapabilities, Quotas};
pub use snapshots::{NewSnapshot, Snapshot, SnapshotStatus};
pub use status::VolumeStatus;
pub use types::VolumeType;
pub(crate) use types::is_true;
pub(crate) use volumes::Filling;
pub use volumes::{CreatedVolume, NewVolume, Source, Volume, VolumeAttachment, VolumeMode};

/// The calls to Cinder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockStorage<'a> {
    transport: &'a Transport,
}

impl<'a> BlockStorage<'a> {
    pub(crate) fn new(transport: &'a Transport) -> Self {
        Self { transport }
    }

    fn request<'p>(
        operation: &'static str,
        method: Method,
        path: &'p [&'p str],
        object: impl Into<String>,
    ) -> Request<'p> {
        Request::new(Service::BlockStorage, operation, method, path, object.into())
    }
}

pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}
