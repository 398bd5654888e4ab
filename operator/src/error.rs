// SPDX-License-Identifier: Apache-2.0
//! Why one reconcile did not succeed.

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

/// Why one reconcile did not succeed. It is tried again with a growing pause.
#[derive(Debug, Error)]
pub enum ReconcileError {
    /// Something could not be seen.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// The holder of the object's Lease is unknown.
    #[error(transparent)]
    Lease(#[from] LeaderError),
    /// The object's Lease was lost during the work.
    #[error(transparent)]
    LeaseLost(#[from] LeaseLost),
    /// A decision needed more rounds of queries than it may take.
    #[error("the next actions are not decided after {0} rounds of queries")]
    Undecided(usize),
    /// The cluster's own facts could not be read.
    #[error("cannot read the version of the API server: {0}")]
    Version(#[source] Box<kube::Error>),
    /// The desired objects could not be made.
    #[error(transparent)]
    Operands(#[from] RenderError),
    /// An object could not be turned into JSON.
    #[error("cannot encode an object: {0}")]
    Encode(#[from] serde_json::Error),
    /// A write failed; the status names it.
    #[error("cannot write {key}: {message}")]
    Write {
        /// The first object that could not be written.
        key: Key,
        /// What the API server answered.
        message: String,
    },
    /// An object could not be deleted.
    #[error("cannot delete {key}: {source}")]
    Delete {
        /// Which.
        key: Key,
        /// What the API server answered.
        source: ApplyError,
    },
    /// A pod could not be deleted to make place for a new one.
    #[error("cannot replace pod {pod} on node {node}: {source}")]
    ReplacePod {
        /// Which.
        pod: String,
        /// Where.
        node: String,
        /// What the API server answered.
        source: ApplyError,
    },
    /// A step of a migration failed.
    #[error("cannot migrate: {act}: {source}")]
    Migrate {
        /// What was to be done.
        act: String,
        /// What the API server answered.
        source: ApplyError,
    },
    /// The marks of ownership could not be taken off an object.
    #[error("cannot release {key}: {source}")]
    Release {
        /// Which.
        key: Key,
        /// What the API server answered.
        source: ApplyError,
    },
    /// The finalizer could not be set or taken off.
    #[error("cannot change the finalizer: {0}")]
    Finalizer(#[source] ApplyError),
    /// The annotation that confirmed a move could not be removed.
    #[error("cannot remove the annotation that confirmed a move: {0}")]
    Confirmation(#[source] ApplyError),
    /// The status could not be written.
    #[error("cannot write the status: {0}")]
    Status(#[source] ApplyError),
    /// This version of the operator cannot read the object.
    #[error("cannot read the object: {0}")]
    Unreadable(String),
    /// It took too long.
    #[error("the reconcile did not finish within {0:?}")]
    TimedOut(Duration),
}

impl ReconcileError {
    /// Whether the status says it already, among all else that was seen, or cannot say it.
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

    /// What the status says of it: the same at every try.
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

    /// The write of one of the driver's objects that failed, as the status tells it.
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
