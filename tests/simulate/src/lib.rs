// SPDX-License-Identifier: Apache-2.0
//! Simulates random faults in virtual time.
//!
//! The real Controller and Node services run in one process on tokio's paused clock. Their clients, the cloud and the
//! nodes' machines are models. Requests to OpenStack and system calls of nodes stay in the process. A seed determines
//! every latency, fault and choice of the models, so a run is reproducible to the byte.
//!
//! ```text
//! run ── callers ── kubelet ── node ── process ── the driver ──┬── network ── openstack-sim
//!  │        │                                                  └── machine ── backend
//!  └── chaos└── ledger ── judge                                  schedule: steps, chance, the trace
//! ```
//!
//! A step is one event: a request or a response arrives, or a timer of a model fires. A system call of a driver is not
//! a step.

pub mod backend;
pub mod call;
pub mod callers;
pub mod chaos;
pub mod clouds;
pub mod cluster;
pub mod faults;
pub mod judge;
pub mod kubelet;
pub mod ledger;
pub mod machine;
pub mod network;
pub mod node;
pub mod outages;
pub mod process;
pub mod run;
pub mod schedule;
pub mod watched;
