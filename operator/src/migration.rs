// SPDX-License-Identifier: Apache-2.0
//! The migration from another installation of the driver, usually the Go driver.
//!
//! [`cinder_operator_core::migration`] decides about it. This module finds the other installation (`installation`,
//! `old_pods`), reads the objects for the check before the migration (`adoption_check`), answers the queries of a decision
//! (`queries`) and carries out its acts (`acts`). The writes themselves are in `apply`.

mod acts;
mod adoption_check;
mod class_parameters;
mod context;
mod elsewhere;
mod gaps;
mod installation;
mod memory;
mod old_pods;
pub(crate) mod pauses;
mod queries;
mod references;
mod workloads;

pub(crate) use acts::carry_out_acts;
#[cfg(test)]
pub(crate) use adoption_check::InlinePod;
pub use adoption_check::{Successor, adoption_check};
pub(crate) use context::MigrationContext;
pub(crate) use memory::MigrationMemory;
pub(crate) use pauses::migration_pause;
pub(crate) use queries::{find_differences, query_elsewhere, query_installation, query_own_part};
#[cfg(test)]
pub(crate) use references::LabelledNode;
pub use references::review_secrets;
#[cfg(test)]
pub(crate) use workloads::{AnyPod, Workload};
