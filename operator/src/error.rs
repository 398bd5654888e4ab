// SPDX-License-Identifier: Apache-2.0
//! Errors of a reconcile.

use std::time::Duration;

use cinder_operator_core::{
    cluster::Key, manifests::RenderError, plan::FailedWrite, problem::Problem, reasons::Degraded,
};
use thiserror::Error;

use crate::{
    kubernetes::{ApplyError, answer},
    leader::LeaderError,
    object_leases::LeaseLost,
    observe::ObserveError,
};

/// Why a reconcile failed. The controller retries it with a growing pause.
#[derive(Debug, Error)]
pub enum ReconcileError {
    /// A read of the cluster failed.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// The holder of the object's Lease is unknown.
    #[error(transparent)]
    Lease(#[from] LeaderError),
    /// This process lost the object's Lease during the reconcile.
    #[error(transparent)]
    LeaseLost(#[from] LeaseLost),
    /// A decision needed more rounds of queries than it may take.
    #[error("the next actions are not decided after {0} rounds of queries")]
    Undecided(usize),
    #[error("cannot read the version of the API server: {0}")]
    Version(#[source] Box<kube::Error>),
    /// The desired objects could not be rendered.
    #[error(transparent)]
    Operands(#[from] RenderError),
    #[error("cannot encode an object: {0}")]
    Encode(#[from] serde_json::Error),
    /// A write failed. The status names the object.
    #[error("cannot write {key}: {message}")]
    Write {
        /// The first object that could not be written.
        key: Key,
        /// Response of the API server.
        message: String,
    },
    #[error("cannot delete {key}: {source}")]
    Delete {
        key: Key,
        /// Response of the API server.
        source: ApplyError,
    },
    /// A pod could not be deleted for its replacement.
    #[error("cannot replace pod {pod} on node {node}: {source}")]
    ReplacePod {
        pod: String,
        node: String,
        /// Response of the API server.
        source: ApplyError,
    },
    #[error("cannot migrate: {act}: {source}")]
    Migrate {
        /// The attempted action.
        act: String,
        /// Response of the API server.
        source: ApplyError,
    },
    /// The ownership metadata could not be removed from an object.
    #[error("cannot release {key}: {source}")]
    Release {
        key: Key,
        /// Response of the API server.
        source: ApplyError,
    },
    /// The finalizer could not be added or removed.
    #[error("cannot change the finalizer: {0}")]
    Finalizer(#[source] ApplyError),
    #[error("cannot remove the annotation that confirmed a move: {0}")]
    Confirmation(#[source] ApplyError),
    #[error("cannot write the status: {0}")]
    Status(#[source] ApplyError),
    /// This version of the operator cannot decode the object.
    #[error("cannot read the object: {0}")]
    Unreadable(String),
    #[error("the reconcile did not finish within {0:?}")]
    TimedOut(Duration),
}

impl ReconcileError {
    /// Whether the status already contains the error, or cannot be written.
    pub(crate) fn is_reported(&self) -> bool {
        match self {
            Self::Write { .. }
            | Self::Delete { .. }
            | Self::Release { .. }
            | Self::ReplacePod { .. }
            | Self::Migrate { .. }
            | Self::Unreadable(_)
            | Self::LeaseLost(_)
            | Self::Status(_) => true,
            Self::Observe(_)
            | Self::Undecided(_)
            | Self::Lease(_)
            | Self::Version(_)
            | Self::Operands(_)
            | Self::Encode(_)
            | Self::Finalizer(_)
            | Self::Confirmation(_)
            | Self::TimedOut(_) => false,
        }
    }

    /// The error for the status. Its message is the same after every attempt.
    pub(crate) fn problem(&self) -> Problem {
        let why = match self {
            Self::Observe(ObserveError::List { plural, source }) => format!("cannot list {plural}: {}", answer(source)),
            Self::Observe(ObserveError::Get { key, source }) => format!("cannot read {key}: {}", answer(source)),
            Self::Version(source) => format!("cannot read the version of the API server: {}", answer(source)),
            other => other.to_string(),
        };
        Problem {
            reason: Degraded::ReconcileFailed,
            message: format!(
                "{}. It is tried again; where a right is missing, apply the operator's roles of its version (config/default, or the \
                 chart); where a webhook or a policy refuses, let the operator's service account through",
                why.trim_end_matches('.')
            ),
        }
    }

    /// The failed write of one of the driver's objects, for the status.
    pub(crate) fn failed_write(&self) -> Option<FailedWrite> {
        let (key, message) = match self {
            Self::Write { key, message } => (key, message.clone()),
            Self::Delete { key, source } | Self::Release { key, source } => (key, source.to_string()),
            _ => return None,
        };
        Some(FailedWrite {
            key: key.clone(),
            message,
        })
    }
}
