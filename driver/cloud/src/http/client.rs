// SPDX-License-Identifier: Apache-2.0
//! The boundary below which a request leaves the process, and the headers of responses.
//!
//! Requests to Keystone, Cinder and Nova all use one [`HttpClient`]. The driver uses reqwest. A test replaces it with
//! [`CloudOptions::connector`].

mod exchange;
mod reqwest;
mod tls;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use csi_sources::Sources;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, request};
use jiff::Timestamp;
use serde_json::Value;

use crate::config::CloudConfig;
use crate::error::CloudError;
use crate::http::body::body_limit;
use crate::http::observer::NoopObserver;
use crate::http::options::CloudOptions;
use crate::timing::TIMING;
pub use exchange::{HttpClient, SendError};
pub use reqwest::Reqwest;
pub(crate) use reqwest::chain;

/// The product's options: requests go through reqwest, and nothing observes them.
impl Default for CloudOptions {
    fn default() -> Self {
        Self {
            user_agent: concat!("cinder-csi/", env!("CARGO_PKG_VERSION")).to_owned(),
            request_timeout: TIMING.request_timeout,
            operation_timeout: TIMING.operation_timeout,
            stuck_after: TIMING.stuck_after,
            credentials_of_request: false,
            project: None,
            observer: Arc::new(NoopObserver),
            connector: Arc::new(Reqwest),
            sources: Sources::system(),
        }
    }
}

/// The client of one configuration, and the headers of all its requests. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    client: Arc<dyn HttpClient>,
    user_agent: HeaderValue,
}

impl Http {
    pub(crate) fn connect(config: &CloudConfig, options: &CloudOptions) -> Result<Self, CloudError> {
        let user_agent = HeaderValue::try_from(&options.user_agent)
            .map_err(|error| CloudError::Setup(format!("user agent {:?}: {error}", options.user_agent)))?;
        Ok(Self {
            client: options.connector.connect(config, options)?,
            user_agent,
        })
    }

    /// Sends a request with or without a JSON body. The operation determines the largest response.
    pub(crate) async fn send(
        &self,
        operation: &'static str,
        request: request::Builder,
        body: Option<&Value>,
    ) -> Result<http::Response<Bytes>, SendError> {
        let request = request.header(USER_AGENT, self.user_agent.clone());
        let request = match body {
            Some(body) => request
                .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
                .body(Bytes::from(body.to_string())),
            None => request.body(Bytes::new()),
        };
        let request = request.map_err(|error| SendError::NoAnswer {
            sent: false,
            reason: error.to_string(),
        })?;
        self.client.send(request, body_limit(operation)).await
    }
}

/// The id under which the service logged the request.
pub(crate) fn request_id(headers: &HeaderMap) -> Option<String> {
    ["x-openstack-request-id", "x-compute-request-id"]
        .iter()
        .find_map(|name| headers.get(*name))
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned)
}

/// Parses `Retry-After` in its two forms, seconds or a date. The value is not limited.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get("retry-after")?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are a long time too.
        return Some(text.parse().map_or(Duration::MAX, Duration::from_secs));
    }
    let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    Some(Duration::try_from(at.duration_since(now)).unwrap_or_default())
}

/// Parses the time of the service's clock.
pub(crate) fn service_time(headers: &HeaderMap) -> Option<Timestamp> {
    let text = headers.get("date")?.to_str().ok()?.trim();
    Some(jiff::fmt::rfc2822::parse(text).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(
            http::HeaderName::from_static(name),
            value.parse().expect("header value"),
        )])
    }

    #[rstest]
    #[case("3", Some(3))]
    #[case("Wed, 21 Oct 2015 07:28:00 GMT", Some(0))]
    #[case("Thu, 01 Jan 2026 00:00:05 GMT", Some(5))]
    #[case("soon", None)]
    #[case("", None)]
    #[case("-5", None)]
    #[case("+5", None)]
    #[case("1.5", None)]
    #[case("1e9", None)]
    #[case("0", Some(0))]
    #[case("86400", Some(86_400))]
    #[case("18446744073709551615", Some(u64::MAX))]
    #[case("Thu, 01 Jan 1970 00:00:00 GMT", Some(0))]
    #[case("Thu, 30 Dec 9999 21:59:59 GMT", Some(251_634_981_599))]
    #[case("Fri, 31 Dec 9999 23:59:59 GMT", None)]
    #[case("Thu, 01 Jan 99999 00:00:00 GMT", None)]
    fn parses_retry_after(#[case] value: &str, #[case] seconds: Option<u64>) {
        assert_eq!(
            retry_after(
                &headers("retry-after", value),
                "2026-01-01T00:00:00Z".parse().expect("a time")
            ),
            seconds.map(Duration::from_secs)
        );
    }

    #[test]
    fn retry_after_with_many_digits_saturates() {
        let value = "9".repeat(4_000);
        assert_eq!(
            retry_after(&headers("retry-after", &value), Timestamp::UNIX_EPOCH),
            Some(Duration::MAX)
        );
    }
}
