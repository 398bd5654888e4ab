// SPDX-License-Identifier: Apache-2.0
//! The reasons of events.

/// The type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// An operation succeeded.
    Normal,
    /// An administrator should check the cause.
    Warning,
}

/// A reason of an event.
#[derive(Debug)]
pub struct EventReason {
    /// Type of the event.
    pub severity: Severity,
    /// Machine-readable action.
    pub action: &'static str,
    /// Machine-readable reason.
    pub reason: &'static str,
    /// Meaning of the event.
    pub meaning: &'static str,
}

/// Defines the reasons with their meaning, severity, action and name in the event.
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
            /// All reasons.
            pub const ROWS: &[EventReason] = &[$(EventReason {
                severity: Severity::$severity,
                action: stringify!($action),
                reason: word!($reason $($word)?),
                meaning: concat!($($meaning),+),
            },)+];

            /// Returns the row of the reason.
            pub fn row(self) -> &'static EventReason {
                &Self::ROWS[self as usize]
            }
        }
    };
}

events! {
    /// The driver works.
    Normal Observe Available,
    /// The driver does not work. The note has cause and remedy.
    Warning Observe Unavailable,
    /// The driver is being installed and does not work yet. The note names what is missing.
    Normal Observe NotYetAvailable = "Unavailable",
    /// The operator creates, replaces or removes objects.
    Normal Observe Progressing,
    /// The removal of the driver is requested, and volumes of it exist.
    Warning Observe DeletionBlocked,
    /// The driver is degraded. The note has the causes.
    Warning Observe Degraded,
    /// Another operator maintains the driver, or may do so. This operator changes nothing. The note has the other
    /// operator and the remedy.
    Warning Observe Suspended,
    /// The driver can be upgraded again.
    Normal Observe UpgradeableTrue,
    /// The driver should not be upgraded now. The note has cause and remedy.
    Warning Observe UpgradeableFalse,
    /// Whether the driver can be upgraded is unknown. The note has the cause.
    Warning Observe UpgradeableUnknown,
    /// spec.managementState is Paused, DryRun or Unmanaged. The note has what the operator omits.
    Warning Observe Paused,
    /// The cluster serves VolumeSnapshots, and no snapshot-controller processes them. The note has the cause. Once a
    /// day.
    Warning Observe SnapshotControllerUnavailable,
    /// The driver is no longer degraded.
    Normal Observe Recovered,
    /// The operator deleted node pods to replace them. The note names the nodes.
    Normal Roll ReplacingPods,
    /// spec.deletion.policy is Orphan: the driver continues to run without the operator.
    Normal Remove Orphaned,
    /// The operator stopped a part of another installation, which this driver replaces.
    Normal Adopt AdoptionStepDone,
    /// This driver's controller did not start. The pods of the other installation's controller are restored. The note
    /// has the cause.
    Warning Adopt MigrationFailed,
    /// The operator created objects of the driver.
    Normal Apply Created,
    /// The operator changed an object of the driver after a change of the spec or the version.
    Normal Apply Updated,
    /// A workload was missing while an update waits. The operator created it at its own version, because no earlier
    /// revision exists.
    Warning Apply VersionMixed,
    /// Another client had changed an object of the driver, and the operator restored it.
    Normal Apply DriftRepaired,
    /// The operator recreated an object to change an immutable field.
    Normal Apply Recreated,
    /// Objects of the driver, or the whole driver, were removed as requested.
    Normal Remove Removed,
    /// Kubelets did not unregister the driver in time. The note names the nodes.
    Warning Remove RegistrationLeft,
    /// The operator removed the controller, and its pods on nodes that are not Ready have not ended.
    Warning Remove PodsLeft,
    /// The operator removed an object that the spec no longer requires.
    Normal Apply Pruned,
    /// The CinderCSIDriver does not match the operator's version of the CustomResourceDefinition.
    Warning Observe Unreadable,
    /// The driver begins or ceases to use availability zones.
    Normal Observe TopologyChanged,
    /// No StorageClass of the driver is marked as the default, because another class is.
    Normal Observe DefaultStorageClassSkipped,
    /// A StorageClass is removed, and claims wait for volumes of it.
    Warning Apply ClaimsWithoutClass,
    /// The driver is registered on new nodes, and the operator removed the startup taint there.
    Normal Untaint StartupTaintRemoved,
    /// The operator could not remove the startup taint from nodes where the driver is registered.
    Warning Untaint StartupTaintLeft,
    /// The CustomResourceDefinition is of another release than the operator. Apply that of the operator's release. Once a
    /// day.
    Warning Observe CRDMismatch,
    /// A credential or certificate of the driver expires soon, or has expired. Once a day.
    Warning Observe CredentialsExpiring,
    /// The driver does not use the current content of the Secret. The note has the cause.
    Warning Observe CredentialsRejected,
    /// Keystone, Cinder or Nova is unavailable or fails, so the credentials cannot be checked.
    Warning Observe CredentialsNotChecked,
    /// Login with the credentials works again.
    Normal Observe CredentialsAccepted,
    /// Login with changed credentials works, and the operator wrote them to the driver's Secret.
    Normal Observe SecretRotated,
    /// The connection to a cloud is insecure, or credentials of any project are accepted.
    Warning Observe InsecureConfiguration,
    /// An operation on the claim's volume is overdue. The note has cause and remedy.
    Warning Diagnose VolumeStuck,
}
