//! The simulator from outside: formats, states, faults and devices.

// Clippy knows test functions, but not the helpers beside them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod attachments;
mod backing;
mod cinder;
mod client;
mod faults;
mod keystone;
mod nova;
mod paging;
mod snapshots;
mod tls;
