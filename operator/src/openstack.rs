// SPDX-License-Identifier: Apache-2.0
//! The operator's use of OpenStack: it checks credentials before the driver uses them.
//!
//! The operator reads the Secret that the spec names, logs in, and sends one request each to Cinder and Nova. Only
//! credentials that pass this check reach the driver's own Secret; until then the driver retains its present
//! credentials.
//!
//! The check is repeated when the content changes, after a failure with a growing pause, and once per interval. It is
//! also repeated when the state of volumes shows that the driver cannot log in.
//!
//! Valid credentials may belong to a different project or region, where the driver's volumes do not exist. With them
//! the driver would treat every volume as deleted and detached: see [`ProjectChangeCheck`].

mod attempt;
mod candidate;
mod cloud_names;
mod cloud_view;
mod credential_reader;
mod credential_source;
mod keystone;
mod login_check;
mod project_change;
mod refusals;
#[cfg(test)]
mod tests;
mod trial;
mod volume_lookup;

pub use attempt::CredentialDecision;
pub(crate) use cloud_names::{credentials_of, rename_only_cloud, unnamed_cloud};
pub(crate) use cloud_view::{describe_cloud, known_zones, silent_clouds};
pub use credential_source::{Candidate, CredentialSource};
pub use keystone::{Keystone, LoginFacts, LoginQueries, RealKeystone, TrialError};
pub use login_check::LoginCheck;
pub use project_change::{InstalledCloud, MOVE_PROJECT, ProjectChangeCheck, Usage, UsageQuery};
