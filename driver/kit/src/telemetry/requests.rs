// SPDX-License-Identifier: Apache-2.0
//! Records the ids of the OpenStack requests in a span, so that one log line can list them. Administrators find the
//! requests in the logs of the services by their ids.

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Metadata, Span, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// The event field that contains the id of a request.
pub const REQUEST_FIELD: &str = "openstack_request";
/// Limit of ids for one call. No call needs more; further ids are not recorded.
const MAX_REQUEST_IDS: usize = 64;

/// Records, for each outermost span, the values of [`REQUEST_FIELD`] of the events in it and in the spans below.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RequestIds;

/// Whether [`RequestIds`] needs a span or an event. It needs spans of every level, because it stores the ids in them.
pub(super) fn needs_metadata(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() || metadata.fields().field(REQUEST_FIELD).is_some()
}

#[derive(Debug, Default)]
struct RecordedIds(Vec<String>);

#[derive(Default)]
struct Value(Option<String>);

impl Visit for Value {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == REQUEST_FIELD {
            self.0 = Some(value.to_owned());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == REQUEST_FIELD {
            self.0 = Some(format!("{value:?}"));
        }
    }
}

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for RequestIds {
    fn on_new_span(&self, _attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if span.parent().is_none() {
            span.extensions_mut().insert(RecordedIds::default());
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut value = Value::default();
        event.record(&mut value);
        let (Some(id), Some(scope)) = (value.0, context.event_scope(event)) else {
            return;
        };
        if let Some(outermost) = scope.from_root().next()
            && let Some(RecordedIds(ids)) = outermost.extensions_mut().get_mut::<RecordedIds>()
            && ids.len() < MAX_REQUEST_IDS
        {
            ids.push(id);
        }
    }
}

/// Returns the ids of the requests in the outermost span `span`, in their order. Empty if [`RequestIds`] is not
/// installed.
pub fn openstack_requests(span: &Span) -> Vec<String> {
    let ids = span.with_subscriber(|(id, subscriber)| {
        let span = subscriber.downcast_ref::<Registry>()?.span(id)?;
        let extensions = span.extensions();
        extensions.get::<RecordedIds>().map(|RecordedIds(ids)| ids.clone())
    });
    ids.flatten().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::filter::filter_fn;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    fn with_layer(test: impl FnOnce()) {
        let layer = RequestIds.with_filter(filter_fn(needs_metadata));
        let quiet = tracing_subscriber::fmt::layer()
            .with_writer(std::io::sink)
            .with_filter(tracing_subscriber::filter::LevelFilter::WARN);
        tracing::subscriber::with_default(Registry::default().with(layer).with(quiet), test);
    }

    #[test]
    fn outermost_span_records_ids_at_any_level() {
        with_layer(|| {
            let (call, other) = (tracing::info_span!("call"), tracing::info_span!("other"));
            call.in_scope(|| {
                tracing::debug!(openstack_request = "req-1", "answered");
                tracing::debug_span!("within").in_scope(|| tracing::debug!(openstack_request = Some("req-2")));
                tracing::debug!(openstack_request = None::<&str>, "without an id");
                tracing::debug!(request = "of somebody else", "no id of ours");
            });
            tracing::debug!(openstack_request = "req-3", "outside");
            assert_eq!(openstack_requests(&call), ["req-1", "req-2"]);
            assert!(openstack_requests(&other).is_empty());
        });
    }

    #[test]
    fn number_of_recorded_ids_is_limited() {
        with_layer(|| {
            let call = tracing::info_span!("call");
            call.in_scope(|| (0..2 * MAX_REQUEST_IDS).for_each(|_| tracing::debug!(openstack_request = "req")));
            assert_eq!(openstack_requests(&call).len(), MAX_REQUEST_IDS);
        });
    }

    #[test]
    fn records_no_ids_without_layer() {
        assert!(openstack_requests(&tracing::info_span!("call")).is_empty());
    }
}
