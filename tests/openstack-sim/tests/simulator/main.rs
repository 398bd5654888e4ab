// SPDX-License-Identifier: Apache-2.0
//! Black-box tests of the simulator: formats, states, faults and devices.

// Clippy exempts test functions, but not the helpers next to them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod attachments;
mod backing;
mod backups;
mod cinder;
mod client;
mod faults;
mod groups;
mod keystone;
mod nova;
mod paging;
mod quotas;
mod retype;
mod servers;
mod snapshots;
mod tls;
