// SPDX-License-Identifier: Apache-2.0
//! Until when a call may be answered.

use std::time::Duration;

use cinder_cloud::LastFailure;
use tokio::time::Instant;
use tonic::Status;

use crate::status;
use crate::timing::TIMING;

/// The header in which a gRPC client says how long it will wait.
const GRPC_TIMEOUT: &str = "grpc-timeout";
/// The margin is a tenth of the client's time …
const MARGIN_SHARE: u32 = 10;

/// The moment at which a call stops waiting and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// `limit` from now.
    pub fn within(limit: Duration) -> Self {
        Self(Instant::now() + limit)
    }

    /// From the request's `grpc-timeout` less a margin; `fallback` from now where it has none or an unreadable one.
    pub fn of<T>(request: &tonic::Request<T>, fallback: Duration) -> Self {
        let asked = request
            .metadata()
            .get(GRPC_TIMEOUT)
            .and_then(|value| parse(value.to_str().ok()?));
        Self::within(asked.map_or(fallback, |limit| {
            limit.saturating_sub(TIMING.answer_margin_max.min(limit / MARGIN_SHARE))
        }))
    }

    /// The same, or `limit` from now where that is earlier.
    #[must_use]
    pub fn at_most(self, limit: Duration) -> Self {
        self.min(Self::within(limit))
    }

    pub(super) fn instant(self) -> Instant {
        self.0
    }

    /// The time that is left; zero when it is up.
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

/// Waits for a look at the cloud until the deadline. Nothing is lost when it is given up.
pub(crate) async fn with_deadline<T>(
    deadline: Deadline,
    what: &str,
    look: impl Future<Output = T>,
) -> Result<T, Status> {
    let (since, last_failure) = (Instant::now(), LastFailure::default());
    tokio::time::timeout(deadline.left(), last_failure.during(Box::pin(look)))
        .await
        .map_err(|_| status::look_timed_out(what, since.elapsed(), &last_failure))
}

/// At most eight digits and a unit, as the gRPC protocol has it. Very long times are cut to a day, which no call lives.
fn parse(text: &str) -> Option<Duration> {
    let unit = text.chars().last().filter(char::is_ascii)?;
    let digits = &text[..text.len() - 1];
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    let limit = match unit {
        'H' => Duration::from_secs(count * 3600),
        'M' => Duration::from_secs(count * 60),
        'S' => Duration::from_secs(count),
        'm' => Duration::from_millis(count),
        'u' => Duration::from_micros(count),
        'n' => Duration::from_nanos(count),
        _ => return None,
    };
    Some(limit.min(TIMING.longest_call))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn left(timeout: Option<&str>) -> Duration {
        let mut request = tonic::Request::new(());
        if let Some(timeout) = timeout {
            request
                .metadata_mut()
                .insert(GRPC_TIMEOUT, timeout.parse().expect("ASCII"));
        }
        Deadline::of(&request, Duration::from_mins(2)).left()
    }

    #[rstest]
    #[case(60, 60)]
    #[case(600, 120)]
    #[tokio::test(start_paused = true)]
    async fn what_the_driver_waits_for_at_most_shortens_a_call_and_never_lengthens_it(
        #[case] limit: u64,
        #[case] seconds: u64,
    ) {
        let deadline = Deadline::within(Duration::from_mins(2)).at_most(Duration::from_secs(limit));
        assert_eq!(deadline.left(), Duration::from_secs(seconds));
    }

    #[rstest]
    #[case(Some("15S"), 14_500)]
    #[case(Some("15000000u"), 14_500)]
    #[case(Some("1S"), 900)]
    #[case(Some("100m"), 90)]
    #[case(Some("3M"), 179_500)]
    #[case(Some("0S"), 0)]
    #[case(Some("99999999H"), 86_399_500)]
    #[case(None, 120_000)]
    #[case(Some("soon"), 120_000)]
    #[case(Some("123456789S"), 120_000)]
    #[case(Some("5x"), 120_000)]
    #[tokio::test(start_paused = true)]
    async fn a_call_waits_until_shortly_before_its_client_gives_up(#[case] header: Option<&str>, #[case] millis: u64) {
        assert_eq!(left(header), Duration::from_millis(millis));
    }
}
