// SPDX-License-Identifier: Apache-2.0
//! The last failure that an operation met and went on from: what those who wait for it are told when their time is up first.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tracing::Instrument;

tokio::task_local! {
    /// Where the requests of the operation that this task works on leave their failures.
    static OF_TASK: LastFailure;
}

/// The last failure of some work's requests to OpenStack that was not made good by a later answer. Clones are the same one.
///
/// Repeated requests, looks after an uncertain answer and polls that fail end in no error as long as there is hope. A caller that
/// gives up before the work does has a right to know what the work is struggling with.
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

/// A service said that it does not know something.
#[derive(Debug)]
struct Absence {
    object: String,
    request_id: String,
}

impl LastFailure {
    /// Does `work`, and keeps what its requests meet. What it hands over to other tasks is not seen.
    pub async fn during<F: Future>(&self, work: F) -> F::Output {
        OF_TASK.scope(self.clone(), work).await
    }

    /// Starts a task that records its failures for the operation of this task, and logs in the same span.
    pub(crate) fn spawn<F>(work: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let work = work.in_current_span();
        match OF_TASK.try_with(Self::clone) {
            Ok(of_task) => tokio::spawn(async move { of_task.during(work).await }),
            Err(_) => tokio::spawn(work),
        }
    }

    /// The request by which the work of this task was told last that there is no such thing; `None` where that was not asked.
    pub fn request_that_missed(id: &str) -> Option<String> {
        let mut found = None;
        Self::change(|list_cache| {
            let absence = list_cache
                .absence
                .as_ref()
                .filter(|absence| absence.object.contains(id));
            found = absence.map(|absence| absence.request_id.clone());
        });
        found
    }

    fn change(change: impl FnOnce(&mut FailureState)) {
        // Work that nobody keeps book of has nowhere to leave it.
        let _ = OF_TASK.try_with(|list_cache| change(&mut list_cache.0.lock()));
    }
}

/// The failure with operation, object, status and request id; nothing where there was none.
impl fmt::Display for LastFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.lock().failure {
            Some(met) => write!(f, "; last failure: {}", met.text),
            None => Ok(()),
        }
    }
}

/// A request for this operation, or a look on behalf of this work, has failed.
pub(crate) fn met(operation: &'static str, error: &impl fmt::Display) {
    LastFailure::change(|list_cache| {
        list_cache.failure = Some(FailureSeen {
            operation,
            text: error.to_string(),
        });
    });
}

/// A request for this operation was answered: what an earlier one met is over.
pub(crate) fn answered(operation: &'static str) {
    LastFailure::change(|list_cache| {
        list_cache.failure.take_if(|met| met.operation == operation);
    });
}

/// A request was answered by the service's word that it does not know the object.
pub(crate) fn missed(object: &str, request_id: Option<&str>) {
    if let Some(request_id) = request_id {
        LastFailure::change(|list_cache| {
            list_cache.absence = Some(Absence {
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
    async fn a_failure_is_kept_until_the_same_operation_is_answered() {
        let list_cache = LastFailure::default();
        assert_eq!(list_cache.to_string(), "");
        list_cache
            .during(async {
                met("volume_create", &failure("volume_create"));
                answered("volume_list");
            })
            .await;
        let text = list_cache.to_string();
        assert!(
            text.contains("volume_create of volume v: HTTP 500: boom") && text.contains("req-1"),
            "{text}"
        );
        list_cache.during(async { answered("volume_create") }).await;
        assert_eq!(list_cache.to_string(), "");
    }

    #[tokio::test]
    async fn an_absence_is_told_of_the_object_that_was_asked_for_and_of_no_other() {
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
    async fn what_nobody_keeps_book_of_is_nowhere() {
        met("volume_create", &failure("volume_create"));
        let list_cache = LastFailure::default();
        list_cache.during(async {}).await;
        assert_eq!(list_cache.to_string(), "");
    }
}
