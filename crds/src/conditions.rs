// SPDX-License-Identifier: Apache-2.0
//! The conditions of a `CinderCSIDriver`. Their names are part of the API.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::status::CinderCSIDriverStatus;

/// Defines the condition types in the order of the status, each with its name and its healthy status.
macro_rules! condition_types {
    ($($(#[$doc:meta])+ $name:ident: $good:ident,)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ConditionType {
            $($(#[$doc])+ $name,)+
        }

        impl ConditionType {
            /// All types, in the order of the status.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Status of this condition when no action is required.
            pub fn good_status(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($good),)+
                }
            }

            /// Name of the type in the API.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }
        }
    };
}

condition_types! {
    /// The driver is available, and no administrator needs to act.
    Ready: True,
    /// The operator changes the driver to match the spec, or retries a failed operation.
    Reconciling: False,
    /// An administrator must act before the driver can match the spec.
    Stalled: False,
    /// The driver works: the controller serves, the driver is registered on the nodes, login with its credentials works.
    Available: True,
    /// The operator installs, updates, migrates or removes the driver.
    Progressing: False,
    /// An administrator needs to act, or the operator retries a failed operation.
    Degraded: False,
    /// The operator and Kubernetes can be upgraded.
    Upgradeable: True,
    /// The removal of the driver is blocked.
    DeletionBlocked: False,
    /// Login with the credentials works, and they do not expire soon.
    CredentialsValid: True,
}

impl fmt::Display for ConditionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl CinderCSIDriverStatus {
    /// Whether an operator has written the status.
    pub fn is_observed(&self) -> bool {
        self.observed_generation.is_none_or(|generation| generation >= 0)
    }

    /// Returns the condition of a type, if the status contains it.
    pub fn condition(&self, type_: ConditionType) -> Option<&Condition> {
        let name = type_.as_str();
        self.conditions.iter().find(|condition| condition.type_ == name)
    }
}
