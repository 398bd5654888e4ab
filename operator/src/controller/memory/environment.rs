// SPDX-License-Identifier: Apache-2.0

use cinder_operator_core::cluster::{Answers, KubernetesVersion};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The properties of the cluster that rarely change.
#[derive(Debug, Default)]
pub(crate) struct EnvironmentMemory {
    pub(crate) identity: Mutex<Option<(ClusterIdentity, Instant)>>,
    /// The versions that the API servers have reported.
    pub(crate) versions: Mutex<Answers<KubernetesVersion>>,
}

/// The identity of the cluster.
#[derive(Debug, Clone)]
pub(crate) struct ClusterIdentity {
    pub(crate) uid: Option<String>,
}
