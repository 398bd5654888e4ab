// SPDX-License-Identifier: Apache-2.0
//! Events on a `CinderCSIDriver`, for changes and never for repetition.
//!
//! An event says what changed or what the operator did. The same sentence about the same object is not sent twice within
//! [`QUIET`], so that a fight over a field or a failing loop cannot fill the cluster with events.

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

/// How long the same event is not sent again.
pub const QUIET: Duration = Duration::from_mins(10);

/// How long a reminder is not repeated.
const REMINDER: Duration = Duration::from_hours(24);

/// The API server refuses longer notes.
const LONGEST_NOTE: usize = 1024;

/// How long one event may take to be written; it is never worth holding a reconcile up.
const WRITE_LIMIT: Duration = Duration::from_secs(5);

/// Sends events and remembers what was sent.
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
    /// `controller` and `instance` tell who reports.
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

    /// The same for something that is true for long: once a day.
    pub async fn publish_daily(&self, regarding: &ObjectReference, notice: Notice) {
        self.send(regarding, notice, REMINDER).await;
    }

    /// Sends `notice` about `regarding`, unless the same was sent a short while ago. A failure is logged: an event is a
    /// courtesy, and the condition says the same.
    pub async fn publish(&self, regarding: &ObjectReference, notice: Notice) {
        self.send(regarding, notice, QUIET).await;
    }

    async fn send(&self, regarding: &ObjectReference, notice: Notice, quiet: Duration) {
        let subject = regarding
            .uid
            .clone()
            .or_else(|| regarding.name.clone())
            .unwrap_or_default();
        if !self.is_news(&subject, &notice, quiet) {
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

    /// True once per `quiet` for the same notice about the same object.
    fn is_news(&self, subject: &str, notice: &Notice, quiet: Duration) -> bool {
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
            note: Some(shortened(&notice.note)),
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

/// At most [`LONGEST_NOTE`] bytes, cut between characters.
fn shortened(note: &str) -> String {
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
    async fn the_same_notice_is_news_again_only_after_the_quiet_time() {
        let events = events();
        let notice = Notice::new(Event::Created, "created a thing");
        assert!(events.is_news("uid", &notice, QUIET));
        assert!(!events.is_news("uid", &notice, QUIET));
        assert!(events.is_news("another", &notice, QUIET));
        assert!(events.is_news("uid", &Notice::new(Event::Created, "created another thing"), QUIET));
        let reminder = Notice::new(Event::CredentialsExpiring, "soon");
        assert!(events.is_news("uid", &reminder, REMINDER));
        tokio::time::advance(QUIET).await;
        assert!(!events.is_news("uid", &reminder, REMINDER));
        assert!(events.is_news("uid", &notice, QUIET));
    }

    #[test]
    fn a_long_note_is_cut_between_characters() {
        let note = "ä".repeat(600);
        let short = shortened(&note);
        assert!(short.len() <= LONGEST_NOTE && short.ends_with('…'), "{}", short.len());
        assert_eq!(shortened("short"), "short");
    }
}
