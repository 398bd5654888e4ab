// SPDX-License-Identifier: Apache-2.0
//! Determines whether a caller still waits for the result of an operation.
//!
//! An operation outlives its callers, which may continue with another process that does not see it. An operation may
//! have waited for its turn or for a volume to become free. It would then create a resource that no caller knows: a
//! second snapshot of the same name, or an attachment that another process has since reverted. So the driver sends a
//! request that creates a resource only as long as a caller waits. A caller that returns starts again and has lost
//! only polls.

use std::fmt;
use std::sync::Arc;

tokio::task_local! {
    static OF_TASK: CallerLiveness;
}

/// Reports at any time whether a caller waits for some work. Clones share one state.
#[derive(Clone)]
pub struct CallerLiveness(Arc<dyn Fn() -> bool + Send + Sync>);

impl CallerLiveness {
    /// `is_awaited` must not block.
    pub fn new(is_awaited: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_awaited))
    }

    /// Runs `work`, which creates no resource while no caller waits for it. Work that it hands over to other tasks
    /// counts as awaited.
    pub async fn during<F: Future>(&self, work: F) -> F::Output {
        OF_TASK.scope(self.clone(), work).await
    }

    /// Whether a caller waits for the work of this task. Work outside of [`CallerLiveness::during`] is always awaited.
    pub fn is_work_of_task() -> bool {
        OF_TASK.try_with(|awaited| (awaited.0)()).unwrap_or(true)
    }
}

impl fmt::Debug for CallerLiveness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CallerLiveness").field(&(self.0)()).finish()
    }
}
