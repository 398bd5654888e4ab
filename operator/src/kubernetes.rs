// SPDX-License-Identifier: Apache-2.0
//! How the API server is talked to about objects of any kind, and what its answers mean.

mod connect;
mod guarded_api;
mod secret;

use cinder_operator_core::cluster::{KINDS, Key};
use kube::{Client, api::DynamicObject};
use thiserror::Error;

pub(crate) use connect::connect;
pub(crate) use guarded_api::{GuardedApi, undecodable_error};
pub(crate) use secret::{SecretData, SecretError, get_secret};

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
                message: if status.reason.is_empty() {
                    status.message.clone()
                } else {
                    format!("{}: {}", status.reason, status.message)
                },
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

/// What the API server answered, in one sentence.
pub(crate) fn answer(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.reason.is_empty() => format!("{}: {}", status.reason, status.message),
        kube::Error::Api(status) => status.message.clone(),
        kube::Error::SerdeError(error) => error.to_string(),
        other => other.to_string(),
    }
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
