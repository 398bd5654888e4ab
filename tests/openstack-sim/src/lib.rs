// SPDX-License-Identifier: Apache-2.0
//! A stateful simulator of OpenStack: Keystone v3, Cinder v3, Nova v2.1 and the metadata service.
//!
//! It serves tests of OpenStack clients ([`Sim::start`] in the test process, [`Sim::direct`] without a socket). It also
//! serves tests of whole clusters: the binary stores volumes in sparse files, and attachments are loop devices.
//! Formats, status codes and error messages follow the services' source. Work is asynchronous as in the services: the
//! response comes before the work is done, and a new volume is `creating`.
//!
//! ```text
//! listener ── service ──┬── keystone                      one request: fault rules, service, log
//!                       ├── cinder ──┐
//!                       ├── nova ────┼── world            the state machine, pure
//!                       └── admin    └── work ── backing  what takes time: files and loop devices
//!                                          store          the state on the disk
//! ```

mod admin;
mod api;
mod backing;
mod cinder;
mod cloud;
mod config;
mod dns;
mod faults;
mod held;
mod keystone;
mod latencies;
mod listener;
mod log;
mod metadata;
mod microversion;
mod nova;
mod paging;
mod service;
mod sim;
mod state;
mod store;
mod work;
mod world;

pub use backing::{BackingError, LosetupError};
pub use config::{Identity, Pool, Quota, ServerSpec, SimConfig, SpecError, TlsIdentity, TypeQuota, VolumeType};
pub use dns::{DnsAnswer, DnsQuestion, NameServer};
pub use faults::{Effect, Fault, FaultError, When};
pub use held::HeldRequest;
pub use latencies::Latencies;
pub use listener::ListenerError;
pub use log::LogEntry;
pub use metadata::{MetadataConfig, MetadataServer};
pub use service::NoAnswer;
pub use sim::{Access, NOWHERE, Sim, SimClient, SimError, clean};
pub use state::{
    Attachment, AttachmentStatus, Backup, BackupStatus, CloudState, Group, GroupSnapshot, GroupStatus, GroupType,
    LoopDevice, Mapping, Server, Snapshot, SnapshotStatus, UserMessage, Volume, VolumeStatus,
};
pub use store::StoreError;
