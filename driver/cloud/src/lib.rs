//! OpenStack for the driver: Keystone, Cinder and Nova, and nothing of gRPC or Kubernetes.
//!
//! ```text
//! volumes, attachments        operations that finish: create, delete, attach, detach
//!         watch               one task per cloud looks at all volumes in transition
//! block_storage, compute      typed calls
//!       transport             session, repeats, throttling, microversions, metrics
//!         auth                Keystone tokens and the catalogue
//! ```
//!
//! Invariants: a request that makes something is never repeated blindly; a volume is deleted by id only, and by this crate's own
//! decision only when this very creation made it; identifiers that are no UUIDs never reach OpenStack; every wait is bounded.

mod attachments;
mod auth;
mod block_storage;
mod catalog;
mod cloud;
mod compute;
pub mod config;
mod connection;
mod error;
mod fault;
mod http_client;
mod ids;
mod metadata;
mod observer;
mod options;
mod pace;
mod per_server;
mod retry;
mod transport;
mod volumes;
mod watch;

pub use block_storage::{Created, NewVolume, Volume, VolumeAttachment, VolumePage, VolumeStatus};
pub use cloud::{AttachOptions, Attached, Cloud, Login};
pub use compute::Server;
pub use config::{Auth, CloudConfig, ConfigError, Configuration, Interface, TopologyOptions};
pub use error::{CloudError, Failure, ObjectKind};
pub use ids::{AttachmentId, GiB, ProjectId, ServerId, VolumeId};
pub use metadata::{InstanceMetadata, MetadataError, instance_metadata};
pub use observer::{Observer, Unobserved};
pub use options::CloudOptions;
pub use watch::Progress;
