//! Waiting for something that is seen only by looking.

use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::time::Instant;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Calls `look` until it answers `Ok` and returns that. An error means «not yet» and says what is seen instead; the last
/// one is part of the error that this returns when `timeout` has passed. One call of `look` may not last longer than
/// what is left of `timeout`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_success_is_returned_and_what_failed_before_is_forgotten() {
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
    async fn the_error_at_the_deadline_names_the_thing_the_time_and_what_was_seen_last() {
        let error = wait_for::<()>("a unicorn", Duration::from_secs(2), async || Err(anyhow!("a horse")))
            .await
            .unwrap_err();
        assert_eq!(format!("{error:#}"), "a unicorn: not within 2s, last seen: a horse");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_hangs_does_not_outlast_the_deadline() {
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
