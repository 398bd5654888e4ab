// SPDX-License-Identifier: Apache-2.0
//! Errors of reads of the cluster.

use cinder_operator_core::cluster::Key;
use thiserror::Error;

use crate::kubernetes::{ApplyError, answer, remedy};

/// Number of objects per page of a long list.
pub(super) const PAGE: u32 = 500;

/// Maximum number of pages of one list: ten times the volumes of the largest clusters for which Kubernetes is tested.
pub(super) const MOST_PAGES: usize = 2_000;

/// Why a read of the cluster failed.
#[derive(Debug, Error)]
pub enum ObserveError {
    #[error("cannot list {plural}: {}{}", answer(source), remedy(source))]
    List {
        /// Plural name of the kind.
        plural: String,
        /// Response of the API server.
        source: Box<kube::Error>,
    },
    #[error("cannot read {key}: {}{}", answer(source), remedy(source))]
    Get {
        key: Key,
        /// Response of the API server.
        source: Box<kube::Error>,
    },
    /// The kind is not among the kinds that the operator creates.
    #[error(transparent)]
    Kind(#[from] ApplyError),
    #[error("cannot decode an object: {0}")]
    Decode(#[from] serde_json::Error),
    #[error("cannot determine which versions of {group} the API server has: {source}")]
    Group {
        group: String,
        /// Response of the API server.
        source: Box<kube::Error>,
    },
    /// An API group is served without a kind that may have objects of the driver.
    #[error(
        "the API server has the group {group} and not its kind {kind}, so it is unknown whether objects of it exist: apply its \
         CustomResourceDefinition again, or delete the other ones of the group"
    )]
    Missing { group: String, kind: String },
    /// The list exceeds the maximum number of pages.
    #[error("the list of {plural} does not end: more than {MOST_PAGES} pages of {PAGE}")]
    Endless {
        /// Plural name of the kind.
        plural: String,
    },
}
