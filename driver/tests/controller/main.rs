//! The driver over its real socket, on the simulated cloud: what clients of CSI see.

#![allow(clippy::expect_used, clippy::panic, reason = "this is a test")]

mod clouds;
mod create;
mod delete;
mod identity;
mod look;
mod process;
mod publish;
mod support;
