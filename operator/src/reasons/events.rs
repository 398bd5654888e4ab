//! The reasons of events.

use crate::events::Severity::{self, Normal, Warning};

/// One reason that an event may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventReason {
    /// Normal or Warning.
    pub severity: Severity,
    /// The word in the event.
    pub reason: &'static str,
    /// The object that it is about.
    pub object: &'static str,
    /// What happened.
    pub meaning: &'static str,
}

const fn row(severity: Severity, reason: &'static str, meaning: &'static str) -> EventReason {
    EventReason {
        severity,
        reason,
        object: "CinderCSIDriver",
        meaning,
    }
}

/// Every reason that an event may have.
pub static EVENTS: &[EventReason] = &[
    row(Normal, "Available", "The driver works."),
    row(
        Warning,
        "NotAvailable",
        "The driver does not work; the note says why and what to do.",
    ),
    row(
        Normal,
        "NotAvailable",
        "The driver is being installed and does not work yet; the note says what is missing.",
    ),
    row(Normal, "Progressing", "Something is being made, replaced or removed."),
    row(
        Warning,
        "DeletionBlocked",
        "The driver is to be removed, and volumes of it exist.",
    ),
    row(Warning, "Degraded", "Something needs a human; the note says what."),
    row(
        Normal,
        "ConditionMet",
        "One of the other conditions is as it should be again; the note says which.",
    ),
    row(
        Warning,
        "ConditionNotMet",
        "One of the other conditions is not as it should be; the note says which, why and what to do.",
    ),
    row(Normal, "NotDegraded", "Nothing needs a human any more."),
    row(
        Normal,
        "ReplacingPods",
        "Node pods were deleted, so that new ones take their place; the note names the nodes.",
    ),
    row(
        Normal,
        "Released",
        "spec.deletion.policy is Orphan: the driver goes on running without the operator.",
    ),
    row(
        Normal,
        "SnapshotControllerReleased",
        "The snapshot-controller that an earlier version of the operator installed goes on running without the operator.",
    ),
    row(
        Normal,
        "AdoptionStepDone",
        "A part of another installation of the driver was stopped, so that this driver takes its place.",
    ),
    row(
        Warning,
        "TakeoverFailed",
        "This driver's controller did not come up in place of the other installation's, which has its pods back; the note says why.",
    ),
    row(Normal, "Created", "Objects of the driver were made."),
    row(
        Normal,
        "Updated",
        "An object of the driver was changed, because spec or version changed.",
    ),
    row(
        Warning,
        "VersionMixed",
        "A workload was missing while an update waits, and was made at the operator's version, because no earlier revision is left.",
    ),
    row(
        Normal,
        "DriftRepaired",
        "Somebody had changed an object of the driver, and it was put right.",
    ),
    row(
        Normal,
        "Recreated",
        "An object was made anew, because a field of it cannot be changed.",
    ),
    row(
        Normal,
        "Removed",
        "Objects of the driver, or all of it, were removed as asked for.",
    ),
    row(
        Warning,
        "RegistrationLeft",
        "Kubelets could not be told in time that the driver goes; the note names the nodes.",
    ),
    row(
        Warning,
        "PodsLeft",
        "The controller was removed, and pods of it on nodes that are not Ready have not ended.",
    ),
    row(Normal, "Pruned", "An object that is no longer wanted was removed."),
    row(
        Warning,
        "Unreadable",
        "The CinderCSIDriver does not fit the operator's version of the CustomResourceDefinition.",
    ),
    row(
        Normal,
        "TopologyChanged",
        "Availability zones are used from now on, or not any more.",
    ),
    row(
        Normal,
        "DefaultStorageClassSkipped",
        "No StorageClass of the driver is marked as the default, because another class is.",
    ),
    row(
        Warning,
        "ClaimsWithoutClass",
        "A StorageClass is removed, and claims wait for volumes of it.",
    ),
    row(
        Normal,
        "OverridesActive",
        "spec.overrides changes what the operator makes.",
    ),
    row(Normal, "OverridesGone", "Nothing is overridden any more."),
    row(
        Warning,
        "OverrideFailed",
        "A patch of spec.overrides does not fit and was left out.",
    ),
    row(
        Normal,
        "StartupTaintRemoved",
        "The driver is registered on new nodes, and the startup taint was taken away there.",
    ),
    row(
        Warning,
        "StartupTaintLeft",
        "The startup taint could not be taken away from nodes where the driver is registered.",
    ),
    row(
        Warning,
        "CRDMismatch",
        "The CustomResourceDefinition is of another release than the operator; apply that of the operator's; once a day.",
    ),
    row(
        Warning,
        "CredentialsExpiring",
        "Something that the driver logs in with ends soon, or has ended; once a day.",
    ),
    row(
        Warning,
        "CredentialsRejected",
        "What the Secret holds now is not used; the note says why.",
    ),
    row(Normal, "CredentialsAccepted", "The credentials log in again."),
    row(
        Normal,
        "SecretRotated",
        "Changed credentials log in and were given to the driver.",
    ),
    row(
        Normal,
        "CredentialsLoaded",
        "Every pod of the controller uses the changed credentials.",
    ),
    row(
        Warning,
        "VolumeTypesLeftOut",
        "There are more volume types than StorageClasses are made of; the note names those without one.",
    ),
    row(
        Warning,
        "BackendUnreachable",
        "A service of a cloud does not answer as it should.",
    ),
    row(Normal, "BackendReachable", "The services of the clouds answer again."),
    row(
        Warning,
        "TopologyMismatch",
        "Zones of nodes and volumes do not fit together.",
    ),
    row(
        Normal,
        "TopologyConsistent",
        "Zones of nodes and volumes fit together again.",
    ),
    row(Warning, "QuotaNearLimit", "A quota is near its limit."),
    row(Warning, "QuotaExhausted", "A quota is used up, or nearly so."),
    row(Normal, "QuotaSufficient", "No quota is near its limit any more."),
    row(
        Warning,
        "InsecureConfiguration",
        "Any certificate is accepted of a cloud.",
    ),
    row(
        Normal,
        "SecureConfiguration",
        "The certificates of the clouds are verified again.",
    ),
    row(
        Warning,
        "VolumesStuck",
        "Operations on volumes take longer than they may.",
    ),
    row(
        Normal,
        "VolumesHealthy",
        "No operation on a volume takes longer than it may any more.",
    ),
    EventReason {
        severity: Warning,
        reason: "VolumeStuck",
        object: "PersistentVolumeClaim",
        meaning: "An operation on the claim's volume takes longer than it may; the note says why and what to do.",
    },
];
