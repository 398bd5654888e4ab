// SPDX-License-Identifier: Apache-2.0
//! Typed calls to Cinder, one file per resource, in the shapes of the Block Storage API v3.

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
