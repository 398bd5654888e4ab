// SPDX-License-Identifier: Apache-2.0
//! How the API server is talked to about objects of any kind, and what its answers mean.

mod connect;

use cinder_operator_core::cluster::{KINDS, Key};
use kube::{Api, Client, api::DynamicObject};
use thiserror::Error;

pub(crate) use connect::connect;

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
    /// The API server could not be reached, or its answer could not be read.
    #[error("the API server did not answer as it should: {0}")]
    Call(#[source] Box<kube::Error>),
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
            other => Self::Call(Box::new(other)),
        }
    }
}

/// An untyped API for the object.
pub(crate) fn api_for(client: &Client, key: &Key) -> Result<Api<DynamicObject>, ApplyError> {
    let kind = KINDS
        .iter()
        .find(|known| known.kind == key.kind)
        .ok_or(ApplyError::UnknownKind(key.kind))?;
    let resource = kind.api_resource();
    Ok(match &key.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    })
}

/// What the API server answered, in one sentence.
pub(crate) fn answer(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.reason.is_empty() => format!("{}: {}", status.reason, status.message),
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
