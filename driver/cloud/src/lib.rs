//! OpenStack for the driver: Keystone, Cinder and Nova, and nothing of gRPC or Kubernetes.
//!
//! ```text
//! volumes, attachments        operations that finish: create, delete, attach, detach
//!         watch               one task per cloud looks at all volumes in transition
//! block_storage, compute      typed calls
//!       transport             session, repeats, throttling, microversions, metrics
//!         auth                Keystone tokens and the catalogue
//!      http_client            the seam: one request, one answer
//! ```
//!
//! Invariants: a request that makes something is never repeated blindly; a volume is deleted by id only, and by this crate's own
//! decision only when this very creation made it; identifiers that are no UUIDs never reach OpenStack; every wait is bounded.

mod attachments;
mod auth;
mod awaited;
mod backups;
mod block_storage;
mod cached;
mod catalog;
mod cloud;
mod compute;
pub mod config;
mod connection;
mod dependents;
mod error;
mod expiring;
mod fault;
mod groups;
mod health;
mod http_client;
mod ids;
mod last_failure;
mod listing;
pub mod marks;
mod metadata;
mod migration;
mod modify;
mod observer;
mod options;
mod pace;
mod per_server;
mod readonly;
mod retry;
mod room;
mod service;
mod snapshots;
mod throttle;
mod transport;
mod volumes;
mod watch;

pub use awaited::Awaited;
pub use block_storage::{
    Backup, BackupStatus, Created, NewBackup, NewSnapshot, NewVolume, Quota, Snapshot, SnapshotStatus, Source, Volume,
    VolumeAttachment, VolumeStatus, VolumeType,
};
pub use cloud::{AttachOptions, Attached, Cloud, CloudService, CredentialFacts, Login};
pub use compute::Server;
pub use config::{Auth, CloudConfig, ConfigError, Configuration, Interface, TopologyOptions};
pub use error::{CloudError, Failure, ObjectKind, Obstacle};
pub use fault::text as fault_text;
pub use groups::{GroupSnapshot, NewGroupSnapshot};
pub use health::{Severity, Trouble};
pub use http_client::{Connect, HttpClient, Reqwest, SendError};
pub use ids::{AttachmentId, BackupId, GiB, GroupSnapshotId, ProjectId, ServerId, SnapshotId, VolumeId};
pub use last_failure::LastFailure;
pub use listing::ListedVolume;
pub use metadata::{InstanceMetadata, LinkLocal, MetadataError, instance_metadata, instance_metadata_over_ipv6};
pub use migration::MigrationPolicy;
pub use modify::Changes;
pub use observer::{Observer, Unobserved};
pub use options::CloudOptions;
pub use room::Room;
pub use snapshots::PointInTime;
pub use watch::Progress;
