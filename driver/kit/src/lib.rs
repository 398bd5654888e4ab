// SPDX-License-Identifier: Apache-2.0
//! What both programs need to run and what is no storage matter: logs, metrics, the admin HTTP server, shutdown by signal,
//! and sockets.
//!
//! Nothing here is global but the log subscriber, which a process has one of. Metrics live in a registry that is passed on,
//! shutdown in a token that is passed on.

pub mod admin;
pub mod endpoint;
pub mod memory;
pub mod metrics;
pub mod signals;
pub mod socket;
pub mod telemetry;
mod timing;
pub mod tls;
