// SPDX-License-Identifier: Apache-2.0
//! Cinder, typed: the few calls that this product makes, in the shapes of API v3, by noun.

mod attachments;
mod backups;
mod changes;
mod client;
mod groups;
mod limits;
mod messages;
mod resource;
mod snapshots;
mod status;
mod types;
mod volumes;

pub(crate) use attachments::Attachment;
pub use backups::{Backup, BackupStatus, NewBackup};
pub(crate) use client::{BlockStorage, null_as_default};
pub(crate) use groups::{Group, GroupSnapshotRecord, GroupType, GroupedVolume, NewGroup};
pub use limits::Quota;
pub(crate) use limits::{Backend, Pool, PoolCapabilities, Quotas};
pub use snapshots::{NewSnapshot, Snapshot, SnapshotStatus};
pub use status::VolumeStatus;
pub use types::VolumeType;
pub(crate) use types::is_true;
pub(crate) use volumes::Filling;
pub use volumes::{CreatedVolume, NewVolume, Source, Volume, VolumeAttachment, VolumeMode};
