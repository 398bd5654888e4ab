// SPDX-License-Identifier: Apache-2.0
//! Formats rejections of the API server.

use csi_sources::UntrustedText;
use kube::core::{Status, request::Error as RequestError};

/// The reason that the client inserts if a body is not a Status of the API server.
const NO_STATUS: &str = "Failed to parse error data";

/// Maximum number of characters of a rejection in a report.
const LONGEST_REFUSAL: usize = 4_000;

/// Formats the error of a request as one printable sentence.
pub fn answer(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => refusal(status),
        kube::Error::SerdeError(error) => UntrustedText::new(&error.to_string()).to_string(),
        kube::Error::BuildRequest(RequestError::Validation(reason)) => reason.clone(),
        other => UntrustedText::new(&other.to_string()).to_string(),
    }
}

/// Formats the reason and message of a rejection, which may repeat text of the object and of webhooks. A body that is
/// not a Status is omitted, because it may contain a part of a Secret.
pub(super) fn refusal(status: &Status) -> String {
    if status.reason == NO_STATUS {
        return format!("HTTP {}, and the answer is not one of the API server", status.code);
    }
    let text = if status.reason.is_empty() {
        status.message.clone()
    } else {
        format!("{}: {}", status.reason, status.message)
    };
    UntrustedText::with_limit(&text, LONGEST_REFUSAL).to_string()
}

/// The remedy for a kind that cannot be read. It mentions a missing right only if the API server reports one.
pub(crate) fn remedy(error: &kube::Error) -> &'static str {
    if is_forbidden(error) {
        "; apply the operator's roles again"
    } else {
        ""
    }
}

/// Whether the API server rejected a request because of a missing right.
pub(crate) fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}
