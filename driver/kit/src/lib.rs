// SPDX-License-Identifier: Apache-2.0
//! Infrastructure of both programs that is not related to storage: logs, metrics, admin HTTP servers with TLS,
//! endpoints, signals, sockets and memory protection.
//!
//! Only the log subscriber is global, because a process has only one. Callers pass the metrics registry and the
//! shutdown token explicitly.

pub mod admin;
pub mod endpoint;
pub mod memory;
pub mod metrics;
pub mod signals;
pub mod socket;
pub mod telemetry;
mod timing;
pub mod tls;
