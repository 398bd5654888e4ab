// SPDX-License-Identifier: Apache-2.0
//! The seam below which a request leaves the process, and what answers carry in their headers.
//!
//! Keystone, Cinder and Nova are all asked through one [`HttpClient`]. The product's is reqwest's; a test puts another one in its
//! place, by [`CloudOptions::connector`].

mod reqwest;
mod tls;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, request};
use jiff::Timestamp;
use serde_json::Value;
use thiserror::Error;

use crate::config::CloudConfig;
use crate::error::{CloudError, Failure, TlsProblem};
use crate::http::body::body_limit;
use crate::http::options::CloudOptions;
pub use reqwest::Reqwest;
pub(crate) use reqwest::chain;

/// Why a request has no usable response.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SendError {
    /// No response came.
    #[error("{reason}")]
    NoAnswer {
        /// Whether the request may have reached the service. False only where it certainly did not.
        sent: bool,
        /// All causes. Without the address of the request, which may contain a password.
        reason: String,
    },
    /// TLS with the service failed.
    #[error("{reason}")]
    Tls {
        problem: TlsProblem,
        /// Whether the request may have reached the service.
        sent: bool,
        /// As in [`Self::NoAnswer`].
        reason: String,
    },
    /// The response is larger than any of its operation. The rest of it was not read.
    #[error("the response is larger than {limit} bytes")]
    TooLarge { limit: usize },
}

impl SendError {
    /// Returns the error of an exchange, which `failure` describes.
    pub(crate) fn into_cloud_error(self, failure: impl FnOnce(String) -> Failure) -> CloudError {
        let failure = failure(self.to_string());
        match self {
            Self::NoAnswer { sent, .. } => CloudError::Unreachable { failure, sent },
            Self::Tls { problem, sent, .. } => CloudError::Tls { failure, problem, sent },
            Self::TooLarge { .. } => CloudError::ResponseTooLarge(failure),
        }
    }
}

/// Sends one request and returns its response with the body. It repeats nothing and follows no redirect, which would carry the token to
/// wherever it points. It keeps [`CloudOptions::request_timeout`], of which the end is a [`SendError`].
pub trait HttpClient: Send + Sync + Debug {
    /// Sends a request to an absolute address. The body of a success has at most `limit` bytes after decompression; that of a
    /// failure may end there.
    fn send(
        &self,
        request: http::Request<Bytes>,
        limit: usize,
    ) -> BoxFuture<'_, Result<http::Response<Bytes>, SendError>>;
}

/// Makes the client of a cloud, once for each configuration that comes into use.
pub trait Connect: Send + Sync + Debug {
    /// A client for the cloud of this configuration. Sends no request: an error is about the configuration.
    fn connect(&self, config: &CloudConfig, options: &CloudOptions) -> Result<Arc<dyn HttpClient>, CloudError>;
}

/// The client of one configuration, and what all its requests carry. Cheap to clone.
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

    /// Sends a request with a JSON body, or without one. The operation decides how large the response may be.
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

/// Reads `Retry-After` in its two forms, seconds or a date. The value is as the service sent it, however long.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get("retry-after")?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are a long time too.
        return Some(text.parse().map_or(Duration::MAX, Duration::from_secs));
    }
    let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    Some(Duration::try_from(at.duration_since(now)).unwrap_or_default())
}

/// Reads the service's clock.
pub(crate) fn date(headers: &HeaderMap) -> Option<Timestamp> {
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
    fn a_wish_to_be_asked_later_is_understood(#[case] value: &str, #[case] seconds: Option<u64>) {
        assert_eq!(
            retry_after(
                &headers("retry-after", value),
                "2026-01-01T00:00:00Z".parse().expect("a time")
            ),
            seconds.map(Duration::from_secs)
        );
    }

    #[test]
    fn retry_after_of_many_digits_is_long() {
        let value = "9".repeat(4_000);
        assert_eq!(
            retry_after(&headers("retry-after", &value), Timestamp::UNIX_EPOCH),
            Some(Duration::MAX)
        );
    }
}
