// SPDX-License-Identifier: Apache-2.0
//! A client of OpenStack for the driver: Keystone, Cinder and Nova. It contains no gRPC and no Kubernetes.
//!
//! ```text
//! cloud             `Cloud`, the public API of one cloud
//! operations        complete operations (create, delete, attach, detach, …), one module per resource
//! poll              one task per cloud and resource type polls every resource in transition
//! context           state that the operations of one cloud share: the session, caches, queues
//! api               typed calls: `api::block_storage` is Cinder, `api::compute` is Nova
//! http              session, tokens, catalogue, retries, throttling, microversions, metrics
//! config            `cloud.conf` and `clouds.yaml`
//! resolver          host names, without musl's `getaddrinfo`
//! error             `CloudError`, and its kinds for the callers
//! last_failure      the last failure of a pending operation, for callers that stop waiting
//! metadata          the metadata service and its documents: id and zone of an instance
//! metadata_keys     keys that the driver writes into the metadata of Cinder's resources
//! memory_size       the memory of the items of lists
//! ids, migration    identifiers, sizes and the migration policy as types
//! certificates      expiry of certificates
//! timestamp         timestamps of Cinder and Keystone
//! timing            every interval, timeout and retry
//! ```
//!
//! The module documentation of `operations` has a table of the HTTP status codes of Cinder and Nova and their meaning
//! for each operation.
//!
//! Invariants:
//!
//! * The crate never repeats a request that creates something unless the service certainly did not process it.
//! * The crate deletes volumes by id only. Without a request for that id, it deletes a volume only if it belongs to a
//!   failed creation of the same name and metadata.
//! * An identifier that is not a UUID never reaches OpenStack.
//! * Every wait has a limit.

mod api;
pub mod certificates;
mod cloud;
pub mod config;
mod context;
mod error;
mod http;
mod ids;
mod last_failure;
mod memory_size;
mod metadata;
pub mod metadata_keys;
mod migration;
mod operations;
mod poll;
mod resolver;
mod timestamp;
mod timing;

pub use crate::http::auth::CredentialFacts;
pub use crate::http::body::{BodyError, read_body};
pub use crate::http::caller_liveness::CallerLiveness;
pub use crate::http::client::{HttpClient, Reqwest, SendError};
pub use crate::http::fault::text as fault_text;
pub use crate::http::observer::{NoopObserver, Observer};
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
pub use error::{CloudError, CloudErrorKind, EndpointProblem, Failure, ObjectKind, Obstacle, TlsProblem};
pub use ids::{AttachmentId, BackupId, GiB, GroupSnapshotId, ProjectId, ServerId, SnapshotId, VolumeId};
pub use memory_size::MemorySize;
pub use metadata::{InstanceMetadata, LinkLocal, MetadataError, instance_metadata, instance_metadata_over_ipv6};
pub use migration::MigrationPolicy;
pub use operations::attachments::{AttachOptions, AttachOutcome};
pub use operations::capacity::FreeCapacity;
pub use operations::groups::{GroupSnapshot, NewGroupSnapshot};
pub use operations::points_in_time::PointInTime;
pub use operations::volumes::health::{Severity, VolumeProblem};
pub use operations::volumes::modify::Changes;
pub use poll::Progress;
pub use resolver::{ResolveError, SystemResolver};
pub use timestamp::parse_timestamp;
