// SPDX-License-Identifier: Apache-2.0
//! Polls conditions. An error means "not yet" in [`wait_for`], and ends the wait in [`wait_for_some`].

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use tokio::time::Instant;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Poll interval for conditions on this machine, which are cheap to check.
const SHORT_PAUSE: Duration = Duration::from_millis(10);

/// Polls `look` until it returns `Ok`. An error means "not yet"; the error at `timeout` contains the last one. Each
/// call of `look` is limited to the rest of `timeout`.
pub async fn wait_for<T>(what: &str, timeout: Duration, mut look: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + timeout;
    let mut pause = FIRST_PAUSE;
    let mut seen = anyhow!("nothing was seen");
    loop {
        match tokio::time::timeout_at(deadline, look()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => seen = error,
            Err(_) => return Err(seen.context(format!("{what}: not within {timeout:?}, last seen"))),
        }
        if Instant::now() + pause >= deadline {
            return Err(seen.context(format!("{what}: not within {timeout:?}, last seen")));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}

/// Polls `look` until it returns `Some`. `None` means "not yet"; an error ends the wait immediately. Each call of
/// `look` is limited to the rest of `timeout`.
pub async fn wait_for_some<T>(
    what: &str,
    timeout: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + timeout;
    loop {
        let Ok(seen) = tokio::time::timeout_at(deadline, look()).await else {
            bail!("{what}: not within {timeout:?}");
        };
        if let Some(value) = seen.with_context(|| format!("while waiting for {what}"))? {
            return Ok(value);
        }
        if Instant::now() + SHORT_PAUSE >= deadline {
            bail!("{what}: not within {timeout:?}");
        }
        tokio::time::sleep(SHORT_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn wait_continues_on_none_and_ends_on_error() {
        let mut answers = vec![Err(anyhow!("it broke")), Ok(Some(2)), Ok(None)];
        let mut ask = async || answers.pop().unwrap();
        let seen = wait_for_some("two", Duration::from_secs(1), &mut ask).await.unwrap();
        assert_eq!(seen, 2);
        let error = wait_for_some("two", Duration::from_secs(1), &mut ask)
            .await
            .unwrap_err();
        assert_eq!(format!("{error:#}"), "while waiting for two: it broke");
    }

    #[tokio::test(start_paused = true)]
    async fn timeout_error_names_the_condition() {
        let error = wait_for_some::<()>("a unicorn", Duration::from_secs(2), async || Ok(None))
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "a unicorn: not within 2s");
    }

    #[tokio::test(start_paused = true)]
    async fn wait_returns_first_success() {
        let mut calls = 0;
        let answer = wait_for("three", Duration::from_secs(10), async || {
            calls += 1;
            anyhow::ensure!(calls == 3, "only {calls}");
            Ok(calls)
        })
        .await
        .unwrap();
        assert_eq!(answer, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn timeout_error_contains_last_error() {
        let error = wait_for::<()>("a unicorn", Duration::from_secs(2), async || Err(anyhow!("a horse")))
            .await
            .unwrap_err();
        assert_eq!(format!("{error:#}"), "a unicorn: not within 2s, last seen: a horse");
    }

    #[tokio::test(start_paused = true)]
    async fn deadline_cancels_hanging_check() {
        let started = Instant::now();
        let error = wait_for::<()>("an answer", Duration::from_secs(2), async || {
            std::future::pending().await
        })
        .await
        .unwrap_err();
        assert_eq!(started.elapsed(), Duration::from_secs(2));
        assert!(format!("{error:#}").contains("nothing was seen"), "{error:#}");
    }
}
