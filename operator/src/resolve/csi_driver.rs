//! What the CSIDriver object says, as far as the API server of the cluster can take it.

use cinder_csi_crds::{CsiDriverSpec, FsGroupPolicy, TokenRequest, VolumeLifecycleMode};

use super::KubernetesVersion;
use crate::skew::at_least;

/// How often the kubelet asks how many volumes a node may have, where nobody says otherwise.
const USUAL_UPDATE_SECONDS: i64 = 60;

/// The CSIDriver object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a field of CSIDriver")]
pub struct CsiDriver {
    /// What the kubelet does with fsGroup.
    pub fs_group_policy: FsGroupPolicy,
    /// Whether volumes are mounted with their SELinux label.
    pub se_linux_mount: bool,
    /// Whether the kubelet names the pod.
    pub pod_info_on_mount: bool,
    /// Whether capacity is published.
    pub storage_capacity: bool,
    /// Whether the kubelet publishes again and again.
    pub requires_republish: bool,
    /// How volumes come to be.
    pub volume_lifecycle_modes: Vec<VolumeLifecycleMode>,
    /// How often the kubelet asks how many volumes a node may have.
    pub node_allocatable_update_period_seconds: Option<i64>,
    /// Whether pods are kept from nodes without the driver.
    pub prevent_pod_scheduling_if_missing: Option<bool>,
    /// Tokens of service accounts.
    pub token_requests: Vec<TokenRequest>,
    /// Whether those come as secrets.
    pub service_account_token_in_secrets: Option<bool>,
    /// Fields that somebody set and the API server does not know: it would drop them, and they would look like drift for ever.
    pub unsupported: Vec<String>,
}

/// Leaves out what a version of the API server does not know.
pub(super) fn csi_driver(spec: &CsiDriverSpec, kubernetes: Option<KubernetesVersion>) -> CsiDriver {
    let mut unsupported = Vec::new();
    let mut gate = |minor: u32, is_given: bool, field: &str| {
        let is_known = at_least(kubernetes, minor);
        if is_given && !is_known {
            unsupported.push(format!("spec.csiDriver.{field}"));
        }
        is_known
    };
    let update = gate(
        34,
        spec.node_allocatable_update_period_seconds.is_some(),
        "nodeAllocatableUpdatePeriodSeconds",
    );
    let prevent = gate(
        // Alpha, and so off, in 1.36.
        37,
        spec.prevent_pod_scheduling_if_missing.is_some(),
        "preventPodSchedulingIfMissing",
    );
    let in_secrets = gate(
        35,
        spec.service_account_token_in_secrets.is_some(),
        "serviceAccountTokenInSecrets",
    );
    CsiDriver {
        fs_group_policy: spec.fs_group_policy,
        se_linux_mount: spec.se_linux_mount,
        pod_info_on_mount: spec.pod_info_on_mount,
        storage_capacity: spec.storage_capacity,
        requires_republish: spec.requires_republish,
        volume_lifecycle_modes: spec.volume_lifecycle_modes.clone(),
        node_allocatable_update_period_seconds: update.then(|| {
            spec.node_allocatable_update_period_seconds
                .unwrap_or(USUAL_UPDATE_SECONDS)
        }),
        prevent_pod_scheduling_if_missing: spec.prevent_pod_scheduling_if_missing.filter(|_| prevent),
        token_requests: spec.token_requests.clone(),
        service_account_token_in_secrets: spec.service_account_token_in_secrets.filter(|_| in_secrets),
        unsupported,
    }
}
