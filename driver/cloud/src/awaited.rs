//! Whether a caller still waits for what an operation makes.
//!
//! An operation outlives its callers. One that has waited, for a volume to be free or for its forerunner to be gone, goes on at the same
//! moment as that of another process whose callers came there since: both look by name, find nothing, and ask Cinder. So what nobody
//! waits for any longer ends instead of asking. A caller that comes back begins again, and has lost nothing but the looks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{CloudError, Failure};

tokio::task_local! {
    static OF_TASK: Awaited;
}

/// Tells at every moment whether a caller waits for some work. Clones are the same one.
#[derive(Clone)]
pub struct Awaited(Arc<dyn Fn() -> bool + Send + Sync>);

impl Awaited {
    /// `is_awaited` must not block.
    pub fn new(is_awaited: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_awaited))
    }

    /// Does `work`, which ends after a wait when nobody waits for it. What it hands over to other tasks counts as awaited.
    pub async fn during<F: Future>(&self, work: F) -> F::Output {
        OF_TASK.scope(self.clone(), work).await
    }

    /// Whether a caller waits for the work of this task. Work outside of [`Awaited::during`] is awaited always.
    pub fn is_work_of_task() -> bool {
        OF_TASK.try_with(|awaited| (awaited.0)()).unwrap_or(true)
    }
}

impl fmt::Debug for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Awaited").field(&(self.0)()).finish()
    }
}

/// To be called between a wait and the request of a creation.
///
/// # Errors
///
/// [`CloudError::Conflict`] where nobody waits for the work of this task.
pub(crate) fn check(operation: &'static str, name: &str) -> Result<(), CloudError> {
    if Awaited::is_work_of_task() {
        return Ok(());
    }
    Err(CloudError::Conflict(Failure {
        operation,
        object: name.to_owned(),
        status: None,
        fault: "not asked for: its caller went away while something else had to end first".to_owned(),
        request_id: None,
        elapsed: Duration::ZERO,
    }))
}
