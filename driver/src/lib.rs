// SPDX-License-Identifier: Apache-2.0
//! The CSI driver for OpenStack Cinder: Identity, Controller and Node services in one program with roles.
//!
//! ```text
//! kubelet, sidecars ──unix socket──> layers ──> identity
//!                                           ├─> controller ──> operations ──> cinder-cloud (Keystone, Cinder, Nova)
//!                                           └─> node       ──> operations ──> csi-host (devices, file systems, mounts)
//! ```
//!
//! A handler decodes the request, calls one domain function and encodes the response.
//!
//! Changes outside the process run in a task of their own ([`operations`]). A caller that disconnects never cancels
//! such a task, and a repeated call joins it. Only [`status`] converts errors to gRPC statuses. OpenStack and the host
//! hold the state; memory may be lost at any moment.

pub mod args;
pub mod capability;
pub mod clouds;
pub mod controller;
pub mod disabled_capabilities;
pub mod fields;
pub mod group_controller;
pub mod identity;
pub mod layers;
pub mod liveness;
pub mod metrics;
pub mod node;
pub mod node_error;
mod observation;
pub mod operations;
pub mod parameters;
pub mod pvc_annotations;
pub mod registration;
pub mod status;
mod timing;
pub mod topology;

mod wiring;

pub use wiring::{Environment, Process, Rpcs, RunError, run, serve};
