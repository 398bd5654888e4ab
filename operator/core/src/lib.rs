// SPDX-License-Identifier: Apache-2.0
//! What the operator decides. Here is no client and nothing waits: facts come in as values, decisions go out as values.
//!
//! ```text
//! 9   status                                        facts × decision × outcome → conditions, events
//! 8   decide                                        spec × facts → what is done now
//! 7   rollout  removal  migration  class_parameters what may be done now
//! 6   plan  record                                  wanted × there → writes and obstacles
//! 5   manifests  diagnosis                          the objects of a driver; why volumes wait
//! 4   resolve                                       spec × facts → every default decided
//! 3   releases                                      images and sidecars, by the version of Kubernetes
//! 2   cluster                                       kinds, names and labels; what is observed
//! 1   clouds  monitoring  notice  problem  reasons  restrictions  templates  text  units
//! ```
//!
//! A room uses those below it, and of its own floor those that `tests/tools/edges.toml` lists: there is no circle.
//!
//! Invariants:
//!
//! * An object that is not this instance's is never written or deleted.
//! * Nothing is torn down while a volume of the driver exists.
//! * At rest there is nothing to write.
//! * No decision depends on memory but for what it is given: everything is derived from what exists.

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
