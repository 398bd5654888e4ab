// SPDX-License-Identifier: Apache-2.0
//! Retry policies of sidecars and the kubelet.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tonic::{Code, Response, Status};

/// Maximum number of attempts.
const ATTEMPTS: usize = 100;
/// Maximum pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// A retry policy.
#[derive(Debug, Clone)]
pub struct Retries {
    first_pause: Duration,
    /// Factor between consecutive pauses.
    factor: u32,
    pub(super) call_timeout: Duration,
    failures: Arc<AtomicUsize>,
}

impl Retries {
    /// Retries with a short, constant pause, for tests in which the duration does not matter.
    pub fn soon() -> Self {
        Self::new(Duration::from_millis(100), 1, Duration::from_mins(1))
    }

    /// Retries like the sidecars with the flags of the Go driver's manifests: after a second, with exponential
    /// back-off.
    pub fn as_sidecars() -> Self {
        Self::new(Duration::from_secs(1), 2, Duration::from_mins(3))
    }

    fn new(first_pause: Duration, factor: u32, call_timeout: Duration) -> Self {
        Self {
            first_pause,
            factor,
            call_timeout,
            failures: Arc::default(),
        }
    }

    /// Returns the number of failed calls of all lifecycles that share this policy.
    pub fn failures(&self) -> usize {
        self.failures.load(Ordering::Relaxed)
    }

    /// Retries a call after a temporary error. A retry also completes the work of a killed process.
    pub(super) async fn repeat<T, Fut>(&self, name: &str, call: impl Fn() -> Fut) -> Result<T>
    where
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let mut failures = Vec::new();
        let mut pause = self.first_pause;
        for _ in 0..ATTEMPTS {
            let outcome = tokio::time::timeout(self.call_timeout, call()).await;
            match outcome.with_context(|| format!("{name} does not answer for {:?}", self.call_timeout))? {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) if is_permanent(status.code()) => {
                    return Err(status).with_context(|| format!("{name} failed for good after {failures:?}"));
                }
                Err(status) => failures.push(format!("{:?}: {}", status.code(), status.message())),
            }
            self.failures.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(pause).await;
            pause = (pause * self.factor).min(LONGEST_PAUSE);
        }
        failures.dedup();
        anyhow::bail!("{name} failed {ATTEMPTS} times: {failures:?}")
    }
}

fn is_permanent(code: Code) -> bool {
    matches!(
        code,
        Code::InvalidArgument | Code::AlreadyExists | Code::NotFound | Code::Unimplemented | Code::OutOfRange
    )
}
