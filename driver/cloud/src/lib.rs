// SPDX-License-Identifier: Apache-2.0
//! OpenStack for the driver: Keystone, Cinder and Nova, and nothing of gRPC or Kubernetes.
//!
//! ```text
//! volumes, attachments        operations that finish: create, delete, attach, detach
//!         watch               one task per cloud looks at all volumes in transition
//! block_storage, compute      typed calls
//!       transport             session, repeats, throttling, microversions, metrics
//!         auth                Keystone tokens and the catalogue
//!      http_client            the seam: one request, one answer
//!        resolver             host names, without musl's `getaddrinfo`
//! ```
//!
//! Invariants: a request that makes something is never repeated blindly; a volume is deleted by id only, and by this crate's own
//! decision only when this very creation made it; identifiers that are no UUIDs never reach OpenStack; every wait is bounded.

mod api;
pub mod certificates;
mod cloud;
pub mod config;
mod context;
mod error;
mod http;
mod ids;
mod last_failure;
mod metadata;
pub mod metadata_keys;
mod migration;
mod operations;
mod poll;
mod resolver;
mod timing;

pub use crate::http::auth::CredentialFacts;
pub use crate::http::awaited::Awaited;
pub use crate::http::body::{BodyError, read_body};
pub use crate::http::client::{HttpClient, Reqwest, SendError};
pub use crate::http::fault::text as fault_text;
pub use crate::http::observer::{Observer, Unobserved};
pub use crate::http::options::{CloudOptions, Connect};
pub use crate::last_failure::LastFailure;
pub use api::block_storage::{
    Backup, BackupStatus, CreatedVolume, NewBackup, NewSnapshot, NewVolume, Quota, Snapshot, SnapshotStatus, Source,
    Volume, VolumeAttachment, VolumeMode, VolumeStatus, VolumeType,
};
pub use api::compute::Server;
pub use cloud::{Cloud, CloudService, Login};
pub use config::{Auth, CloudConfig, ConfigError, Configuration, Insecurity, Interface, TopologyOptions};
pub use context::list_cache::ListedVolume;
pub use error::{CloudError, EndpointProblem, Failure, ObjectKind, Obstacle, TlsProblem};
pub use ids::{AttachmentId, BackupId, GiB, GroupSnapshotId, ProjectId, ServerId, SnapshotId, VolumeId};
pub use metadata::{InstanceMetadata, LinkLocal, MetadataError, instance_metadata, instance_metadata_over_ipv6};
pub use migration::MigrationPolicy;
pub use operations::attachments::{AttachOptions, AttachOutcome};
pub use operations::capacity::FreeCapacity;
pub use operations::groups::{GroupSnapshot, NewGroupSnapshot};
pub use operations::health::{Severity, Trouble};
pub use operations::modify::Changes;
pub use operations::snapshots::PointInTime;
pub use poll::Progress;
pub use resolver::{ResolveError, SystemResolver};
