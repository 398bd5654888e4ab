// SPDX-License-Identifier: Apache-2.0
//! The operating system below this crate: all system calls and programs are methods of one trait.
//!
//! [`Linux`] implements it in the product. A test may provide another implementation, with disks and mounts in memory
//! and calls that hang.

mod interface;
mod linux;

pub use linux::{Linux, exec_if_confined};

pub use interface::{BoxFuture, DeviceWatch, Disk, Job, Kind, Machine, Open, Refusal, Stat};
