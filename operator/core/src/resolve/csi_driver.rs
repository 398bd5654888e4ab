// SPDX-License-Identifier: Apache-2.0
//! What the CSIDriver object says, as far as the API server of the cluster can take it.

use cinder_csi_crds::{CsiDriverSpec, FsGroupPolicy};

use crate::cluster::KubernetesVersion;
use crate::cluster::at_least;

/// How often, in seconds, the kubelet asks how many volumes a node may have.
const UPDATE_SECONDS: i64 = 60;

/// The CSIDriver object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiDriver {
    /// What the kubelet does with fsGroup.
    pub fs_group_policy: FsGroupPolicy,
    /// Whether volumes are mounted with their SELinux label.
    pub se_linux_mount: bool,
    /// Whether capacity is published.
    pub storage_capacity: bool,
    /// How often the kubelet asks how many volumes a node may have; `None` where the API server does not know the field: it
    /// would drop it, and that would look like drift for ever.
    pub node_allocatable_update_period_seconds: Option<i64>,
}

/// Leaves out what a version of the API server does not know.
pub(super) fn csi_driver(spec: &CsiDriverSpec, kubernetes: Option<KubernetesVersion>) -> CsiDriver {
    CsiDriver {
        fs_group_policy: spec.fs_group_policy,
        se_linux_mount: spec.se_linux_mount,
        storage_capacity: spec.storage_capacity,
        node_allocatable_update_period_seconds: at_least(kubernetes, 34).then_some(UPDATE_SECONDS),
    }
}
