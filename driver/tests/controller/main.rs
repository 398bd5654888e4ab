// SPDX-License-Identifier: Apache-2.0
//! Tests the driver on the simulated cloud through its CSI interface.
//!
//! Both run in the runtime of the test, on its paused clock. Module `process` tests features that need a socket and
//! real time.

#![allow(clippy::expect_used, clippy::panic, reason = "this is a test")]

mod capacity;
mod channel;
mod cloud_states;
mod clouds;
mod compatibility;
mod copies;
mod create;
mod delete;
mod disabled_capabilities;
mod durable;
mod expand;
mod faults;
mod groups;
mod health;
mod identity;
mod look;
mod modify;
mod old_clouds;
mod process;
mod projects;
mod publish;
mod repeat;
mod sharing;
mod snapshots;
mod support;
mod transitions;
mod validation;
