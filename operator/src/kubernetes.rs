// SPDX-License-Identifier: Apache-2.0
//! Requests to the API server for objects of any kind, and the interpretation of its responses.

mod access_review;
mod answer;
mod connect;
mod guarded_api;
#[cfg(test)]
mod json_pointers;
mod secret;

use cinder_operator_core::cluster::{KINDS, Key};
use kube::{Client, api::DynamicObject};
use thiserror::Error;

pub(crate) use access_review::{is_account_allowed, is_allowed};
pub use answer::answer;
use answer::refusal;
pub(crate) use answer::{is_forbidden, remedy};
pub use connect::connect;
pub(crate) use guarded_api::undecodable_error;
pub use guarded_api::{GuardedApi, check_name};
#[cfg(test)]
pub(crate) use json_pointers::json_pointers;
pub use secret::{SecretData, SecretError, decode_secret, get_secret};

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
