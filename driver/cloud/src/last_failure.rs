// SPDX-License-Identifier: Apache-2.0
//! The last failure of a pending operation, for callers with a timeout shorter than the operation.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tracing::Instrument;

tokio::task_local! {
    /// The record of the operation of the current task. Requests record their failures here.
    static CURRENT: LastFailure;
}

/// The last failure of an operation's requests that no later success resolved. Clones share one record.
///
/// Retries, lookups after an uncertain response, and failed polls return no error while the operation may still
/// succeed. A caller that stops waiting earlier can report this failure.
#[derive(Debug, Clone, Default)]
pub struct LastFailure(Arc<Mutex<FailureState>>);

#[derive(Debug, Default)]
struct FailureState {
    failure: Option<FailureSeen>,
    absence: Option<Absence>,
}

#[derive(Debug)]
struct FailureSeen {
    operation: &'static str,
    text: String,
}

/// A 404 of a service.
#[derive(Debug)]
struct Absence {
    object: String,
    request_id: String,
}

impl LastFailure {
    /// Runs `work` and records the failures of its requests. Does not see the requests of tasks that `work` spawns.
    pub async fn during<F: Future>(&self, work: F) -> F::Output {
        CURRENT.scope(self.clone(), work).await
    }

    /// Spawns a task that records its failures for the operation of this task, and logs in the same span.
    pub(crate) fn spawn<F>(work: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let work = work.in_current_span();
        match CURRENT.try_with(Self::clone) {
            Ok(current) => tokio::spawn(async move { current.during(work).await }),
            Err(_) => tokio::spawn(work),
        }
    }

    /// The id of the last request of this task's operation with a 404 for this object; `None` if there was none.
    pub fn request_that_missed(id: &str) -> Option<String> {
        let mut found = None;
        Self::change(|state| {
            let absence = state.absence.as_ref().filter(|absence| absence.object.contains(id));
            found = absence.map(|absence| absence.request_id.clone());
        });
        found
    }

    fn change(change: impl FnOnce(&mut FailureState)) {
        // Without a record, the failure is dropped.
        let _ = CURRENT.try_with(|state| change(&mut state.0.lock()));
    }
}

/// The failure with operation, object, status and request id, or an empty text.
impl fmt::Display for LastFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.lock().failure {
            Some(met) => write!(f, "; last failure: {}", met.text),
            None => Ok(()),
        }
    }
}

/// Records that a request for this operation, or a poll on its behalf, has failed.
pub(crate) fn met(operation: &'static str, error: &impl fmt::Display) {
    LastFailure::change(|state| {
        state.failure = Some(FailureSeen {
            operation,
            text: error.to_string(),
        });
    });
}

/// Records that a request for this operation succeeded, which resolves its earlier failure.
pub(crate) fn answered(operation: &'static str) {
    LastFailure::change(|state| {
        state.failure.take_if(|met| met.operation == operation);
    });
}

/// Records a 404 of the service for the object.
pub(crate) fn missed(object: &str, request_id: Option<&str>) {
    if let Some(request_id) = request_id {
        LastFailure::change(|state| {
            state.absence = Some(Absence {
                object: object.to_owned(),
                request_id: request_id.to_owned(),
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::CloudError;

    fn failure(operation: &'static str) -> CloudError {
        CloudError::Server(crate::error::Failure {
            operation,
            object: "volume v".to_owned(),
            status: Some(500),
            fault: "boom".to_owned(),
            request_id: Some("req-1".to_owned()),
            elapsed: std::time::Duration::ZERO,
        })
    }

    #[tokio::test]
    async fn failure_lasts_until_same_operation_succeeds() {
        let state = LastFailure::default();
        assert_eq!(state.to_string(), "");
        state
            .during(async {
                met("volume_create", &failure("volume_create"));
                answered("volume_list");
            })
            .await;
        let text = state.to_string();
        assert!(
            text.contains("volume_create of volume v: HTTP 500: boom") && text.contains("req-1"),
            "{text}"
        );
        state.during(async { answered("volume_create") }).await;
        assert_eq!(state.to_string(), "");
    }

    #[tokio::test]
    async fn absence_concerns_only_the_requested_object() {
        LastFailure::default()
            .during(async {
                missed("volume one", Some("req-1"));
                assert_eq!(LastFailure::request_that_missed("one").as_deref(), Some("req-1"));
                assert_eq!(LastFailure::request_that_missed("two"), None);
            })
            .await;
        assert_eq!(LastFailure::request_that_missed("one"), None, "it was asked for others");
    }

    #[tokio::test]
    async fn failure_without_record_is_dropped() {
        met("volume_create", &failure("volume_create"));
        let state = LastFailure::default();
        state.during(async {}).await;
        assert_eq!(state.to_string(), "");
    }
}
