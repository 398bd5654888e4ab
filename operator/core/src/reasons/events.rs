// SPDX-License-Identifier: Apache-2.0
//! The reasons of events.

/// Good news or bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Something happened as intended.
    Normal,
    /// Whoever runs the cluster should look.
    Warning,
}

/// One reason that an event may have.
#[derive(Debug)]
pub struct EventReason {
    /// How grave it is.
    pub severity: Severity,
    /// What is being done, a stable word.
    pub action: &'static str,
    /// The word in the event.
    pub reason: &'static str,
    /// What happened.
    pub meaning: &'static str,
}

/// Of each reason: what happened, how grave it is, what is being done, the word in the event.
macro_rules! events {
    ($($(#[doc = $meaning:literal])+ $severity:ident $action:ident $reason:ident $(= $word:literal)?,)+) => {
        /// The reasons of events.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Event {
            $($(#[doc = $meaning])+ $reason,)+
        }

        /// The variants.
        #[cfg(test)]
        pub(super) const VARIANTS: &[&str] = &[$(stringify!($reason)),+];

        impl Event {
            /// All of them.
            pub const ROWS: &[EventReason] = &[$(EventReason {
                severity: Severity::$severity,
                action: stringify!($action),
                reason: word!($reason $($word)?),
                meaning: concat!($($meaning),+),
            },)+];

            /// What is said of it.
            pub fn row(self) -> &'static EventReason {
                &Self::ROWS[self as usize]
            }
        }
    };
}

events! {
    /// The driver works.
    Normal Observe Available,
    /// The driver does not work; the note says why and what to do.
    Warning Observe Unavailable,
    /// The driver is being installed and does not work yet; the note says what is missing.
    Normal Observe NotYetAvailable = "Unavailable",
    /// Something is being made, replaced or removed.
    Normal Observe Progressing,
    /// The driver is to be removed, and volumes of it exist.
    Warning Observe DeletionBlocked,
    /// Something needs a human; the note says what.
    Warning Observe Degraded,
    /// The driver can be upgraded again.
    Normal Observe UpgradeableTrue,
    /// The driver should not be upgraded now; the note says why and what to do.
    Warning Observe UpgradeableFalse,
    /// Whether the driver can be upgraded is unknown; the note says why.
    Warning Observe UpgradeableUnknown,
    /// spec.managementState is Paused, DryRun or Unmanaged; the note says what the operator omits.
    Warning Observe Paused,
    /// The cluster has VolumeSnapshots, and no snapshot-controller works on them; the note has the cause. Once a day.
    Warning Observe SnapshotControllerUnavailable,
    /// Nothing needs a human any more.
    Normal Observe Recovered,
    /// Node pods were deleted, so that new ones take their place; the note names the nodes.
    Normal Roll ReplacingPods,
    /// spec.deletion.policy is Orphan: the driver goes on running without the operator.
    Normal Remove Orphaned,
    /// A part of another installation of the driver was stopped, so that this driver takes its place.
    Normal Adopt AdoptionStepDone,
    /// This driver's controller did not come up in place of the other installation's, which has its pods back; the note
    /// says why.
    Warning Adopt MigrationFailed,
    /// Objects of the driver were made.
    Normal Apply Created,
    /// An object of the driver was changed, because spec or version changed.
    Normal Apply Updated,
    /// A workload was missing while an update waits, and was made at the operator's version, because no earlier
    /// revision is left.
    Warning Apply VersionMixed,
    /// Another client had changed an object of the driver, and the operator restored it.
    Normal Apply DriftRepaired,
    /// An object was recreated, because a field of it cannot be changed.
    Normal Apply Recreated,
    /// Objects of the driver, or all of it, were removed as asked for.
    Normal Remove Removed,
    /// Kubelets did not unregister the driver in time; the note names the nodes.
    Warning Remove RegistrationLeft,
    /// The controller was removed, and pods of it on nodes that are not Ready have not ended.
    Warning Remove PodsLeft,
    /// An object that is no longer wanted was removed.
    Normal Apply Pruned,
    /// The CinderCSIDriver does not fit the operator's version of the CustomResourceDefinition.
    Warning Observe Unreadable,
    /// Availability zones are used from now on, or not any more.
    Normal Observe TopologyChanged,
    /// No StorageClass of the driver is marked as the default, because another class is.
    Normal Observe DefaultStorageClassSkipped,
    /// A StorageClass is removed, and claims wait for volumes of it.
    Warning Apply ClaimsWithoutClass,
    /// The driver is registered on new nodes, and the operator removed the startup taint there.
    Normal Untaint StartupTaintRemoved,
    /// The operator could not remove the startup taint from nodes where the driver is registered.
    Warning Untaint StartupTaintLeft,
    /// The CustomResourceDefinition is of another release than the operator; apply that of the operator's; once a day.
    Warning Observe CRDMismatch,
    /// A credential or certificate of the driver expires soon, or has expired; once a day.
    Warning Observe CredentialsExpiring,
    /// What the Secret holds now is not used; the note says why.
    Warning Observe CredentialsRejected,
    /// Keystone, Cinder or Nova does not answer as it should, so that the credentials cannot be checked.
    Warning Observe CredentialsNotChecked,
    /// Login with the credentials works again.
    Normal Observe CredentialsAccepted,
    /// Login with changed credentials works, and the driver was given them.
    Normal Observe SecretRotated,
    /// Any certificate is accepted of a cloud.
    Warning Observe InsecureConfiguration,
    /// An operation on the claim's volume takes longer than it may; the note says why and what to do.
    Warning Diagnose VolumeStuck,
}
