// SPDX-License-Identifier: Apache-2.0
//! Operations of this crate against a simulated cloud: logins, whole lives of volumes, and failures in between.
// Fixtures are outside of the test functions that clippy recognizes. A test fails if its setup fails.
#![allow(clippy::expect_used)]
#![allow(clippy::similar_names, reason = "the stage of a test and the state of its cloud")]

mod attachments;
mod awaited;
mod backups;
mod bodies;
mod connections;
mod deleted_servers;
mod expand;
mod facts;
mod groups;
mod lag;
mod large_lists;
mod listing;
mod lives;
mod misdirected;
mod modify;
mod projects;
mod queues;
mod readonly;
mod regions;
mod session;
mod shelved;
mod snapshots;
mod sources;
mod states;
mod support;
mod volumes;
