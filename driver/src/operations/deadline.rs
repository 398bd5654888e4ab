// SPDX-License-Identifier: Apache-2.0
//! The deadline of a call.

use std::time::Duration;

use cinder_cloud::LastFailure;
use tokio::time::Instant;
use tonic::Status;

use crate::status;
use crate::timing::TIMING;

/// The header in which a gRPC client sends its timeout.
const GRPC_TIMEOUT: &str = "grpc-timeout";
/// The margin is the client's timeout divided by this number, at most [`TIMING`]`.answer_margin_max`.
const MARGIN_SHARE: u32 = 10;

/// The moment at which a call stops waiting and responds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// Returns the deadline `limit` from now.
    pub fn within(limit: Duration) -> Self {
        Self(Instant::now() + limit)
    }

    /// Computes the deadline from the request's `grpc-timeout`, less a margin. Uses `fallback` if the header is missing
    /// or unreadable.
    pub fn from_request<T>(request: &tonic::Request<T>, fallback: Duration) -> Self {
        let requested = request
            .metadata()
            .get(GRPC_TIMEOUT)
            .and_then(|value| parse(value.to_str().ok()?));
        Self::within(requested.map_or(fallback, |limit| {
            limit.saturating_sub(TIMING.answer_margin_max.min(limit / MARGIN_SHARE))
        }))
    }

    /// Returns this deadline, or `limit` from now if that is earlier.
    #[must_use]
    pub fn at_most(self, limit: Duration) -> Self {
        self.min(Self::within(limit))
    }

    pub(super) fn instant(self) -> Instant {
        self.0
    }

    /// The remaining time; zero after the deadline.
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

/// Runs a query until the deadline. The query must not change anything, because it is dropped at the deadline.
pub(crate) async fn with_deadline<T>(
    deadline: Deadline,
    what: &str,
    query: impl Future<Output = T>,
) -> Result<T, Status> {
    let (since, last_failure) = (Instant::now(), LastFailure::default());
    tokio::time::timeout(deadline.remaining(), last_failure.during(Box::pin(query)))
        .await
        .map_err(|_| status::query_timed_out(what, since.elapsed(), &last_failure))
}

/// Parses a timeout of the gRPC protocol: at most eight digits and a unit.
///
/// Long timeouts are reduced to [`TIMING`]`.longest_call`.
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

    fn remaining(timeout: Option<&str>) -> Duration {
        let mut request = tonic::Request::new(());
        if let Some(timeout) = timeout {
            request
                .metadata_mut()
                .insert(GRPC_TIMEOUT, timeout.parse().expect("ASCII"));
        }
        Deadline::from_request(&request, Duration::from_mins(2)).remaining()
    }

    #[rstest]
    #[case(60, 60)]
    #[case(600, 120)]
    #[tokio::test(start_paused = true)]
    async fn driver_limit_never_extends_deadline(#[case] limit: u64, #[case] seconds: u64) {
        let deadline = Deadline::within(Duration::from_mins(2)).at_most(Duration::from_secs(limit));
        assert_eq!(deadline.remaining(), Duration::from_secs(seconds));
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
    async fn deadline_is_shortly_before_client_timeout(#[case] header: Option<&str>, #[case] millis: u64) {
        assert_eq!(remaining(header), Duration::from_millis(millis));
    }
}
