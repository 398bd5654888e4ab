// SPDX-License-Identifier: Apache-2.0
//! How the API server is talked to about objects of any kind, and what its answers mean.

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

/// The reason in place of one of the API server, where the client found a body of another form.
const NO_STATUS: &str = "Failed to parse error data";

/// The most characters of a refusal that are reported.
const LONGEST_REFUSAL: usize = 4_000;

/// A write that did not succeed.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The kind is not among those that the operator makes.
    #[error("the operator makes no objects of kind {0}")]
    UnknownKind(&'static str),
    /// The API server refused it.
    #[error("{message}")]
    Refused {
        /// Its sentence, with the reason in front where it gives one.
        message: String,
        /// HTTP status.
        code: u16,
    },
    /// The API server could not be reached.
    #[error("the API server did not answer as it should: {0}")]
    Call(#[source] Box<kube::Error>),
    /// The answer was read, and does not decode.
    #[error("the answer of the API server is not usable: {0}")]
    Undecodable(#[source] serde_json::Error),
    /// An object that was deleted to be made anew does not go.
    #[error("it was deleted to be recreated, and a finalizer keeps it; it is created as soon as it is gone")]
    StillThere,
    /// What is to take the place of an object would be refused.
    #[error("it is left as it is, because the object that is to take its place would not be accepted: {0}")]
    NotReplaced(#[source] Box<ApplyError>),
    /// An object could not be turned into JSON.
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

/// An untyped API for the object.
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

/// The error of a request in one printable sentence.
pub(crate) fn answer(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => refusal(status),
        kube::Error::SerdeError(error) => UntrustedText::new(&error.to_string()).to_string(),
        kube::Error::BuildRequest(RequestError::Validation(reason)) => reason.clone(),
        other => UntrustedText::new(&other.to_string()).to_string(),
    }
}

/// Reason and message of a refusal, which may repeat text of the object and of webhooks. A body that is not a Status is omitted, because it
/// may be a part of a Secret.
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

/// What an administrator does about a kind that cannot be read: a right is missing where the API server says so, and only there.
pub(crate) fn remedy(error: &kube::Error) -> &'static str {
    if is_forbidden(error) {
        "; apply the operator's roles again"
    } else {
        ""
    }
}

/// Whether the API server refuses a request for want of a right.
pub(crate) fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}
