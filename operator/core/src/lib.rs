// SPDX-License-Identifier: Apache-2.0
//! Decisions of the operator. The crate contains no client and does not wait: it takes facts as values and returns
//! decisions as values.
//!
//! ```text
//! 9   status                                         facts × decision × outcome → conditions, events
//! 8   decide                                         spec × facts → actions of this reconcile
//! 7   rollout  removal  migration  class_parameters  permitted actions
//! 6   plan  record                                   desired × existing → writes and obstacles
//! 5   manifests  diagnosis                           the objects of a driver; causes of stuck volumes
//! 4   resolve                                        spec × facts → a spec with all defaults
//! 3   releases                                       images and sidecars, by the version of Kubernetes
//! 2   cluster                                        kinds, names and labels; observed state
//! 1   clouds  monitoring  notice  problem  reasons  restrictions  templates  text  units
//! ```
//!
//! A module uses the modules of lower levels, and those of its own level that `tests/tools/edges.toml` lists. Cycles are
//! not allowed.
//!
//! Invariants:
//!
//! * The operator never writes or deletes an object of another owner.
//! * The operator does not remove the driver while a volume of it exists.
//! * When nothing has changed, the operator writes nothing.
//! * Decisions depend only on existing objects and on the values that are passed in, never on hidden state.

pub mod class_parameters;
pub mod clouds;
pub mod cluster;
pub mod decide;
pub mod diagnosis;
pub mod manifests;
pub mod migration;
pub mod monitoring;
pub mod notice;
pub mod plan;
pub mod problem;
pub mod reasons;
pub mod record;
pub mod releases;
pub mod removal;
pub mod resolve;
pub mod restrictions;
pub mod rollout;
pub mod status;
pub mod templates;
pub mod text;
pub mod units;
