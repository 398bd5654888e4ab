//! The operator that installs the Cinder CSI driver and watches over it.
//!
//! ```text
//!            wiring          client, leader election, watches, admin server
//!              │
//!          controller        one reconcile: ┐
//!              │                            │
//!   observe → credentials → resolve → operands → plan → apply → status
//!                             pure      pure     pure            pure
//!                                  teardown (pure): the order of a removal
//! ```
//!
//! Invariants:
//!
//! * An object that is not this instance's is never written or deleted.
//! * Nothing is torn down while a volume of the driver exists.
//! * Credentials reach the driver only after they have logged in.
//! * At rest nothing is written but the Lease.
//! * Any process may be killed between any two calls: everything is derived from what exists.

pub mod adoption;
pub mod apply;
pub mod args;
pub mod changes;
pub mod class_parameters;
pub mod clouds;
pub mod controller;
pub mod credentials;
pub mod diagnosis;
pub mod error;
pub mod events;
pub mod guard;
pub mod images;
pub mod leader;
pub mod metrics;
pub mod monitoring;
pub mod objects;
pub mod observe;
pub mod operands;
pub mod plan;
pub mod plugin;
mod reasons;
pub mod reference;
pub mod reload;
pub mod render;
pub mod resolve;
pub mod restrictions;
pub mod rollout;
pub mod scrape;
pub mod skew;
pub mod startup_taint;
pub mod status;
mod table;
pub mod teardown;
mod templates;
mod units;
pub mod wiring;
mod words;
