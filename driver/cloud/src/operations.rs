// SPDX-License-Identifier: Apache-2.0
//! What is done to a cloud, each thing to its end: free functions over a [`Context`](crate::context::Context).

pub(crate) mod access_mode;
pub(crate) mod attachments;
pub(crate) mod backups;
pub(crate) mod capacity;
pub(crate) mod clusters;
pub(crate) mod deletion;
pub(crate) mod dependents;
pub(crate) mod groups;
pub(crate) mod health;
pub(crate) mod listing;
pub(crate) mod modify;
pub(crate) mod snapshots;
pub(crate) mod volumes;
