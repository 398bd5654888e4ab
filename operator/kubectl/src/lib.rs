// SPDX-License-Identifier: Apache-2.0
//! `kubectl cinder-csi`, a plugin of kubectl. It reads with the kubeconfig and the rights of the user, and changes
//! nothing in the cluster.
//!
//! ```text
//! 4   commands                       runs a command and prints its report
//! 3   adopt  bundle  completion  diagnose  readiness  status
//! 2   args  client  heartbeat        command line, requests that several commands send
//! 1   error  table  target           types and text that all commands use
//! ```
//!
//! A module uses the modules on lower levels. The client of the API server and the check before a migration are in
//! `cinder-csi-operator`.

mod adopt;
pub mod args;
mod bundle;
mod client;
pub mod commands;
pub mod completion;
mod diagnose;
pub mod error;
mod heartbeat;
mod readiness;
mod status;
mod table;
mod target;
