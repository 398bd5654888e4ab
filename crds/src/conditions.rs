// SPDX-License-Identifier: Apache-2.0
//! The conditions of a `CinderCSIDriver`. Their names are part of the API.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::CinderCSIDriverStatus;

/// The type, all its values in the order of the status, and of each its name and its healthy status.
macro_rules! condition_types {
    ($($(#[$doc:meta])+ $name:ident: $good:ident,)+) => {
        /// The type of a condition.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ConditionType {
            $($(#[$doc])+ $name,)+
        }

        impl ConditionType {
            /// Every type, in the order of the status.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The status that requires no action.
            pub fn good_status(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($good),)+
                }
            }

            /// As in the status.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }
        }
    };
}

condition_types! {
    /// The driver is available, nothing needs a human, and this generation of the spec was observed.
    Ready: True,
    /// The operator brings the driver to the state that the spec describes, or retries what failed.
    Reconciling: False,
    /// Nothing continues before an administrator acts.
    Stalled: False,
    /// The driver works: the controller serves, the driver is registered on the nodes, login with its credentials works.
    Available: True,
    /// What is wanted is being made.
    Progressing: False,
    /// Something needs a human.
    Degraded: False,
    /// This is a good moment for another version of the operator or of Kubernetes.
    Upgradeable: True,
    /// A removal waits for something.
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
    /// The condition of a type.
    pub fn condition(&self, type_: ConditionType) -> Option<&Condition> {
        let name = type_.as_str();
        self.conditions.iter().find(|condition| condition.type_ == name)
    }
}
