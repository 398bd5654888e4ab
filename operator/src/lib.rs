// SPDX-License-Identifier: Apache-2.0
//! The operator that installs the Cinder CSI driver and watches over it. What it decides is in `cinder-operator-core`; this crate
//! watches, writes and reports.
//!
//! ```text
//! 6   wiring                                               client, leader election, watches, admin server
//! 5   commands                                             crd and render, the plugin of kubectl
//! 4   controller                                           one reconcile: observe → decide → apply → report
//! 3   apply  error  recreate_checks                        writes to the cluster
//! 2   observe  events  object_leases  startup_taint        reads of the cluster, events, and Leases of objects
//! 1   args  credentials  kubernetes  leader  metrics  scrape
//! ```
//!
//! A room uses those below it, and of its own floor those that `tests/tools/edges.toml` lists: there is no circle.
//!
//! Invariants:
//!
//! * An object that is not this instance's is never written or deleted.
//! * Nothing is torn down while a volume of the driver exists.
//! * Credentials reach the driver only after they have logged in.
//! * A process acts on an object only while it holds the object's Lease.
//! * At rest nothing is written but Leases.
//! * Any process may be killed between any two calls: everything is derived from what exists.

pub mod apply;
pub mod args;
pub mod commands;
pub mod controller;
pub mod credentials;
pub mod error;
pub mod events;
mod kubernetes;
pub mod leader;
pub mod metrics;
pub mod object_leases;
pub mod observe;
pub mod recreate_checks;
pub mod scrape;
pub mod startup_taint;
pub mod wiring;
