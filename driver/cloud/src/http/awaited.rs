// SPDX-License-Identifier: Apache-2.0
//! Whether a caller still waits for what an operation makes.
//!
//! An operation outlives its callers, and they may go on with another process, whose looks show nothing of it. One that has waited, for its
//! turn or for a volume to be free, would make what no caller knows: a second snapshot of the name, or an attachment that was taken back
//! elsewhere. So a request that makes something is sent only as long as a caller waits. Who comes back begins again, and has lost
//! nothing but looks.

use std::fmt;
use std::sync::Arc;

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

    /// Does `work`, which makes nothing while no caller waits for it. What it hands over to other tasks counts as awaited.
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
