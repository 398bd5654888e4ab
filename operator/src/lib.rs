// SPDX-License-Identifier: Apache-2.0
//! The operator that installs and monitors the Cinder CSI driver. Its decisions are in `cinder-operator-core`; this
//! crate watches, writes and reports.
//!
//! ```text
//! 6   wiring                                               client, leader election, watches, admin server
//! 5   commands                                             crd and render
//! 4   controller                                           one reconcile: observe → decide → apply → report
//! 3   apply  error  migration  recreate_checks             writes to the cluster
//! 2   observe  events  object_leases  startup_taint        reads of the cluster, events, and Leases of objects
//! 1   args  kubernetes  leader  metrics  openstack  scrape
//! ```
//!
//! A module uses the modules on lower levels. Within a level, it uses only the modules that `tests/tools/edges.toml`
//! lists. A cycle is an error. The kubectl plugin (`operator/kubectl`) uses the client of the API server, the check
//! before a migration and the definition of the command line.
//!
//! Invariants:
//!
//! * The operator never writes or deletes an object that does not belong to its instance.
//! * The driver is not removed while one of its volumes exists.
//! * Credentials reach the driver only after a successful login.
//! * A process acts on an object only while it holds the object's Lease.
//! * In a steady state the operator writes nothing but Leases.
//! * Any process may be killed between any two calls: all state is derived from the objects of the cluster.

pub mod apply;
pub mod args;
pub mod commands;
pub mod controller;
pub mod error;
pub mod events;
pub mod kubernetes;
pub mod leader;
pub mod metrics;
pub mod migration;
pub mod object_leases;
pub mod observe;
pub mod openstack;
pub mod recreate_checks;
pub mod scrape;
pub mod startup_taint;
pub mod wiring;
