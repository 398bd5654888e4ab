// SPDX-License-Identifier: Apache-2.0
//! Requests to the API server for objects of any kind, and the interpretation of its responses.

mod access_review;
mod connect;
mod guarded_api;
#[cfg(test)]
mod json_pointers;
mod secret;

use cinder_operator_core::cluster::{KINDS, Key};
use csi_sources::UntrustedText;
use kube::{
    Client,
    api::DynamicObject,
    core::{Status, request::Error as RequestError},
};
use thiserror::Error;

pub(crate) use access_review::{is_account_allowed, is_allowed};
pub(crate) use connect::connect;
pub(crate) use guarded_api::{GuardedApi, check_name, undecodable_error};
#[cfg(test)]
pub(crate) use json_pointers::json_pointers;
#[cfg(test)]
pub(crate) use secret::decode_secret;
pub(crate) use secret::{SecretData, SecretError, get_secret};

/// The reason that the client inserts if a body is not a Status of the API server.
const NO_STATUS: &str = "Failed to parse error data";

/// Maximum number of characters of a rejection in a report.
const LONGEST_REFUSAL: usize = 4_000;

/// Why a write failed.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The kind is not among the kinds that the operator creates.
    #[error("the operator makes no objects of kind {0}")]
    UnknownKind(&'static str),
    /// The API server rejected the write.
    #[error("{message}")]
    Refused {
        /// The message of the API server, after its reason if there is one.
        message: String,
        /// HTTP status.
        code: u16,
    },
    /// The API server could not be reached.
    #[error("the API server did not answer as it should: {0}")]
    Call(#[source] Box<kube::Error>),
    /// The response is complete and cannot be decoded.
    #[error("the answer of the API server is not usable: {0}")]
    Undecodable(#[source] serde_json::Error),
    /// An object that was deleted for its recreation still exists.
    #[error("it was deleted to be recreated, and a finalizer keeps it; it is created as soon as it is gone")]
    StillThere,
    /// The API server would reject the replacement of an object.
    #[error("it is left as it is, because the object that is to take its place would not be accepted: {0}")]
    NotReplaced(#[source] Box<ApplyError>),
    #[error("cannot encode the object: {0}")]
    Encode(#[from] serde_json::Error),
}

impl From<kube::Error> for ApplyError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Refused {
                message: refusal(&status),
                code: status.code,
            },
            kube::Error::SerdeError(error) => Self::Undecodable(error),
            other => Self::Call(Box::new(other)),
        }
    }
}

/// Returns an untyped API for the object.
pub(crate) fn api_for(client: &Client, key: &Key) -> Result<GuardedApi<DynamicObject>, ApplyError> {
    let kind = KINDS
        .iter()
        .find(|known| known.kind == key.kind)
        .ok_or(ApplyError::UnknownKind(key.kind))?;
    let resource = kind.api_resource();
    Ok(match &key.namespace {
        Some(namespace) => GuardedApi::namespaced_with(client.clone(), namespace, &resource),
        None => GuardedApi::all_with(client.clone(), &resource),
    })
}

/// Formats the error of a request as one printable sentence.
pub(crate) fn answer(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => refusal(status),
        kube::Error::SerdeError(error) => UntrustedText::new(&error.to_string()).to_string(),
        kube::Error::BuildRequest(RequestError::Validation(reason)) => reason.clone(),
        other => UntrustedText::new(&other.to_string()).to_string(),
    }
}

/// Formats the reason and message of a rejection, which may repeat text of the object and of webhooks. A body that is
/// not a Status is omitted, because it may contain a part of a Secret.
fn refusal(status: &Status) -> String {
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
