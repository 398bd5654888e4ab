// SPDX-License-Identifier: Apache-2.0
//! One line about an event.

use std::fmt;

use csi_sources::UntrustedText;
use k8s_openapi::{api::core::v1::Event, jiff::Timestamp};
use serde::Serialize;

/// An event of an object, or an error in its status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EventLine {
    /// Kind and name.
    pub(super) object: String,
    pub(super) last_seen: Option<Timestamp>,
    #[serde(rename = "type")]
    pub(super) type_: String,
    pub(super) reason: String,
    pub(super) message: String,
}

impl EventLine {
    /// The time that determines the order of lines. Tenants can write any time into an event: a future time counts as
    /// now.
    pub(super) fn order(&self, now: Timestamp) -> Option<Timestamp> {
        self.last_seen.map(|last_seen| last_seen.min(now))
    }
}

impl From<Event> for EventLine {
    fn from(event: Event) -> Self {
        let series = event.series.and_then(|series| series.last_observed_time);
        let last_seen = series.or(event.event_time).map(|time| time.0);
        let object = event.involved_object;
        Self {
            object: format!(
                "{} {}",
                object.kind.unwrap_or_default(),
                object.name.unwrap_or_default()
            ),
            last_seen: event.last_timestamp.map(|time| time.0).max(last_seen),
            type_: event.type_.unwrap_or_default(),
            reason: event.reason.unwrap_or_default(),
            message: event.message.unwrap_or_default(),
        }
    }
}

impl fmt::Display for EventLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.last_seen.map(|at| format!("{at:.0} ")).unwrap_or_default();
        let [type_, reason, object] = [&self.type_, &self.reason, &self.object].map(|word| UntrustedText::new(word));
        // The message is quoted, because tenants can write events.
        let message = UntrustedText::new(&self.message).quoted();
        writeln!(f, "  {at}{type_} {reason}, {object}: {message}")
    }
}
