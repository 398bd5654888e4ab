// SPDX-License-Identifier: Apache-2.0
//! One exchange with a service: the trait of clients, and its errors.

use std::fmt::Debug;

use bytes::Bytes;
use futures::future::BoxFuture;
use thiserror::Error;

use crate::error::{CloudError, Failure, TlsProblem};

/// The reason why a request has no usable response.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SendError {
    /// The service sent no response.
    #[error("{reason}")]
    NoAnswer {
        /// Whether the request may have reached the service. False only where it certainly did not.
        sent: bool,
        /// All causes, without the URL of the request, which may contain a password.
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
    /// The response is larger than any response of its operation. The remainder was not read.
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

/// Sends one request and returns its response with the body. It does not retry. It follows no redirect, because a
/// redirect would send the token to any host that it names. It observes [`CloudOptions::request_timeout`] and returns
/// a [`SendError`] when the time is over.
///
/// [`CloudOptions::request_timeout`]: crate::CloudOptions::request_timeout
pub trait HttpClient: Send + Sync + Debug {
    /// Sends a request to an absolute URL. The body of a success has at most `limit` bytes after decompression; the
    /// body of a failure may be cut there.
    fn send(
        &self,
        request: http::Request<Bytes>,
        limit: usize,
    ) -> BoxFuture<'_, Result<http::Response<Bytes>, SendError>>;
}
