// SPDX-License-Identifier: Apache-2.0
//! One line about an event.

use std::fmt;

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

/// Replaces control characters in text from other sources, because a terminal would interpret them.
pub(super) fn printable(text: &str) -> String {
    text.replace(char::is_control, " ")
}

impl fmt::Display for EventLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.last_seen.map(|at| format!("{at:.0} ")).unwrap_or_default();
        let words = [&self.type_, &self.reason, &self.object, &self.message].map(|word| printable(word));
        let [type_, reason, object, message] = words;
        writeln!(f, "  {at}{type_} {reason}, {object}: {message}")
    }
}
