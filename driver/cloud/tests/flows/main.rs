// SPDX-License-Identifier: Apache-2.0
//! The crate's flows against a simulated cloud: whole logins, lives of volumes, and what goes wrong on the way.
// Fixtures stand outside of the test functions that clippy knows, and a test that cannot be set up shall fail.
#![allow(clippy::expect_used)]

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
