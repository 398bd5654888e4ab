// SPDX-License-Identifier: Apache-2.0
//! The machine below this crate: every system call and every program goes through one trait.
//!
//! [`Linux`] is the product's. A test may bring another, which keeps disks and mounts in memory, and lets what hangs hang.

mod interface;
mod linux;

pub use linux::{Linux, exec_if_confined};

pub use interface::{BoxFuture, DeviceWatch, Disk, Job, Kind, Machine, Open, Refusal, Stat};
