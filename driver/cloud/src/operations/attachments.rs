// SPDX-License-Identifier: Apache-2.0
//! Attaches and detaches volumes. An operation ends when Nova and Cinder agree.
//!
//! Nova has a record of the volume at the server, from the request to attach until after the detachment. Cinder has a
//! status of the volume and a list of complete attachments.
//!
//! Nova's compute manager completes an attachment in Cinder last, so a volume with a complete attachment in Cinder is
//! attached. At a detachment the manager first deletes Cinder's attachment and then its own record, so a volume without
//! a record is free in both services.
//!
//! `step.rs` decides the next step, `state_machine.rs` executes it. The normal case takes one request. The driver reads
//! the state of both services only after a refusal.

mod access_mode;
pub(crate) mod attach;
pub(crate) mod detach;
mod owners;
mod remedy;
mod state_machine;
mod step;
mod types;

pub(crate) use owners::delete_stale_attachments;
pub use types::{AttachOptions, AttachOutcome};
