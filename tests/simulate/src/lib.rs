// SPDX-License-Identifier: Apache-2.0
//! Random faults in simulated time.
//!
//! The real Controller and Node services run in one process on tokio's paused clock. What calls them, the cloud and the machines of
//! the nodes are models; requests to OpenStack and system calls of nodes go into these models instead of leaving the process. A
//! seed decides every latency, every fault and every choice of the models, so a run repeats itself to the byte.
//!
//! ```text
//! run ── callers ── kubelet ── node ── process ── the driver ──┬── network ── openstack-sim
//!  │        │                                                  └── machine ── backend
//!  └── chaos└── ledger ── judge                                  schedule: steps, chance, the trace
//! ```
//!
//! A step is one event: a request arrives, an answer arrives, a timer of a model fires. A system call of a driver is none.

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
