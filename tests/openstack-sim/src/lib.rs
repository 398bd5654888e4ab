//! A stateful simulator of OpenStack's Keystone v3, Cinder v3, Nova v2.1 and metadata service.

pub mod config;
pub mod faults;
pub mod log;
pub mod sim;
pub mod snapshot;

pub use config::{Identity, Latencies, Quota, ServerSpec, SimConfig, TlsIdentity, VolumeType};
pub use faults::{Effect, Fault, FaultError, When};
pub use log::LogEntry;
pub use sim::{Access, Sim, SimError};
pub use snapshot::{Attachment, AttachmentStatus, CloudState, LoopDevice, Volume, VolumeStatus};
