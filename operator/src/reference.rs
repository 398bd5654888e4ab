//! The words that programs and people rely on: reasons of conditions and of events, with what they mean. The documentation
//! is made from here, and a word that is not here is a fault that the tests find.

mod conditions;
mod events;
mod pages;
#[cfg(test)]
pub(crate) mod reached;

pub use conditions::{CONDITIONS, ConditionReason};
pub use events::{EVENTS, EventReason};
pub use pages::{PageError, pages};

use cinder_csi_crds::ConditionType;

use crate::events::Severity;

/// Whether a condition may have this status with this reason.
pub(crate) fn knows_condition(type_: ConditionType, status: &str, reason: &str) -> bool {
    CONDITIONS
        .iter()
        .any(|known| known.type_ == type_ && known.status == status && known.reason == reason)
}

/// Whether an event may have this reason.
pub(crate) fn knows_event(severity: Severity, reason: &str) -> bool {
    EVENTS
        .iter()
        .any(|known| known.severity == severity && known.reason == reason)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_word_is_listed_once_and_explained() {
        let mut seen = BTreeSet::new();
        for row in CONDITIONS {
            assert!(
                seen.insert((row.type_.as_str(), row.status, row.reason)),
                "twice: {row:?}"
            );
            assert!(!row.meaning.is_empty(), "{row:?}");
            assert!(["True", "False", "Unknown"].contains(&row.status), "{row:?}");
        }
        let mut seen = BTreeSet::new();
        for row in EVENTS {
            assert!(
                seen.insert((format!("{:?}", row.severity), row.reason)),
                "twice: {row:?}"
            );
            assert!(!row.meaning.is_empty(), "{row:?}");
        }
    }

    #[test]
    fn every_type_of_condition_has_reasons() {
        for type_ in ConditionType::ALL {
            assert!(CONDITIONS.iter().any(|row| row.type_ == *type_), "{type_}");
        }
    }
}
