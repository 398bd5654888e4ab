// SPDX-License-Identifier: Apache-2.0
//! Publishes events on a `CinderCSIDriver`.
//!
//! An event reports a change or an action of the operator. The same event about the same object is not repeated within
//! [`QUIET`]. Therefore a conflict over a field or a failing loop cannot fill the cluster with events.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use cinder_operator_core::{notice::Notice, reasons::Severity};
use csi_sources::Sources;
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event as KubernetesEvent},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::metrics::Metrics;

/// Minimum interval between identical events.
pub const QUIET: Duration = Duration::from_mins(10);

/// Minimum interval between identical reminders.
const REMINDER: Duration = Duration::from_hours(24);

/// Maximum length of a note in bytes. The API server rejects longer notes.
const LONGEST_NOTE: usize = 1024;

/// Maximum duration of the write of one event. An event must not delay a reconcile.
const WRITE_LIMIT: Duration = Duration::from_secs(5);

/// Sends events, and suppresses repetitions.
#[derive(Clone)]
pub struct Events {
    client: Client,
    controller: String,
    instance: String,
    metrics: Arc<Metrics>,
    sources: Sources,
    sent: Arc<Mutex<HashMap<(String, Notice), Instant>>>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events")
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}

impl Events {
    /// `controller` and `instance` identify the reporter of the events.
    pub fn new(client: Client, controller: &str, instance: &str, metrics: Arc<Metrics>, sources: Sources) -> Self {
        Self {
            client,
            controller: controller.to_owned(),
            instance: instance.to_owned(),
            metrics,
            sources,
            sent: Arc::default(),
        }
    }

    /// Publishes a reminder about a permanent state, at most once a day.
    pub async fn publish_daily(&self, regarding: &ObjectReference, notice: Notice) {
        self.send(regarding, notice, REMINDER).await;
    }

    /// Publishes `notice` about `regarding`, unless the same notice was published within [`QUIET`]. A failure is only
    /// logged, because the condition contains the same information.
    pub async fn publish(&self, regarding: &ObjectReference, notice: Notice) {
        self.send(regarding, notice, QUIET).await;
    }

    async fn send(&self, regarding: &ObjectReference, notice: Notice, quiet: Duration) {
        let subject = regarding
            .uid
            .clone()
            .or_else(|| regarding.name.clone())
            .unwrap_or_default();
        if !self.is_new(&subject, &notice, quiet) {
            return;
        }
        let reason = notice.event.row().reason;
        let object = regarding.name.as_deref().unwrap_or_default();
        match notice.event.row().severity {
            Severity::Normal => info!(reason, object, "{object}: {}", notice.note),
            Severity::Warning => warn!(reason, object, "{object}: {}", notice.note),
        }
        let namespace = regarding.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let event = self.event(regarding, &namespace, &notice);
        let api: Api<KubernetesEvent> = Api::namespaced(self.client.clone(), &namespace);
        let params = PostParams::default();
        let written = tokio::time::timeout(WRITE_LIMIT, api.create(&params, &event)).await;
        self.metrics.api_write("Event", "create", matches!(written, Ok(Ok(_))));
        match written {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => warn!(%error, reason, "could not write an event"),
            Err(_) => warn!(reason, "could not write an event in time"),
        }
    }

    /// Returns true once per `quiet` for the same notice about the same object.
    fn is_new(&self, subject: &str, notice: &Notice, quiet: Duration) -> bool {
        let now = Instant::now();
        let mut sent = self.sent.lock();
        sent.retain(|_, until| now < *until);
        let key = (subject.to_owned(), notice.clone());
        if sent.contains_key(&key) {
            return false;
        }
        sent.insert(key, now + quiet);
        true
    }

    fn event(&self, regarding: &ObjectReference, namespace: &str, notice: &Notice) -> KubernetesEvent {
        let now = self.sources.now();
        let row = notice.event.row();
        let subject = regarding.name.as_deref().unwrap_or(&self.controller);
        KubernetesEvent {
            action: Some(row.action.to_owned()),
            reason: Some(row.reason.to_owned()),
            event_time: Some(MicroTime(now)),
            regarding: Some(regarding.clone()),
            note: Some(truncate_note(&notice.note)),
            metadata: ObjectMeta {
                namespace: Some(namespace.to_owned()),
                name: Some(format!("{subject}.{:x}", now.as_nanosecond())),
                ..ObjectMeta::default()
            },
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(format!("{:?}", row.severity)),
            ..KubernetesEvent::default()
        }
    }
}

/// Truncates a note to [`LONGEST_NOTE`] bytes, between two characters.
fn truncate_note(note: &str) -> String {
    const ELLIPSIS: &str = "…";
    if note.len() <= LONGEST_NOTE {
        return note.to_owned();
    }
    let end = note.floor_char_boundary(LONGEST_NOTE - ELLIPSIS.len());
    format!("{}{ELLIPSIS}", &note[..end])
}

#[cfg(test)]
mod tests {
    use cinder_operator_core::reasons::Event;
    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    fn events() -> Events {
        let (service, _) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let metrics = Arc::new(Metrics::new().expect("metrics"));
        Events::new(
            Client::new(service, "ns"),
            "operator",
            "pod",
            metrics,
            Sources::system(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn identical_notice_is_suppressed_within_quiet_time() {
        let events = events();
        let notice = Notice::new(Event::Created, "created a thing");
        assert!(events.is_new("uid", &notice, QUIET));
        assert!(!events.is_new("uid", &notice, QUIET));
        assert!(events.is_new("another", &notice, QUIET));
        assert!(events.is_new("uid", &Notice::new(Event::Created, "created another thing"), QUIET));
        let reminder = Notice::new(Event::CredentialsExpiring, "soon");
        assert!(events.is_new("uid", &reminder, REMINDER));
        tokio::time::advance(QUIET).await;
        assert!(!events.is_new("uid", &reminder, REMINDER));
        assert!(events.is_new("uid", &notice, QUIET));
    }

    #[test]
    fn long_note_is_truncated_between_characters() {
        let note = "ä".repeat(600);
        let short = truncate_note(&note);
        assert!(short.len() <= LONGEST_NOTE && short.ends_with('…'), "{}", short.len());
        assert_eq!(truncate_note("short"), "short");
    }
}
