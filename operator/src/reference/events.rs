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
    row(Normal, "Progressing", "Something is being made, replaced or removed."),
    row(
        Warning,
        "DeletionBlocked",
        "The driver is to be removed, and volumes of it exist.",
    ),
    row(Warning, "Degraded", "Something needs a human; the note says what."),
    row(Normal, "NotDegraded", "Nothing needs a human any more."),
    row(Normal, "Created", "Objects of the driver were made."),
    row(
        Normal,
        "Updated",
        "An object of the driver was changed, because spec or version changed.",
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
        "Kubelets could not be told in time that the driver goes.",
    ),
    row(Normal, "Pruned", "An object that is no longer wanted was removed."),
    row(
        Warning,
        "Unreadable",
        "The CinderCSIDriver does not fit the operator's version of the CustomResourceDefinition.",
    ),
];
