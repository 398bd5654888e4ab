// SPDX-License-Identifier: Apache-2.0
//! Resolves the CSIDriver object, restricted to fields that the API server supports.

use cinder_csi_crds::{CsiDriverSpec, FsGroupPolicy, SchedulingGuard};

use crate::cluster::KubernetesVersion;
use crate::cluster::at_least;

/// Interval of the kubelet's queries for the maximum number of volumes per node, in seconds.
const UPDATE_SECONDS: i64 = 60;

/// The CSIDriver object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiDriver {
    /// How the kubelet applies fsGroup.
    pub fs_group_policy: FsGroupPolicy,
    /// Whether volumes are mounted with their SELinux label.
    pub se_linux_mount: bool,
    /// Whether capacity is published.
    pub storage_capacity: bool,
    /// Interval of the kubelet's queries for the maximum number of volumes per node. `None` if the API server lacks
    /// the field. It would drop the field, which would appear as permanent drift.
    pub node_allocatable_update_period_seconds: Option<i64>,
    /// Whether the scheduler avoids nodes without a registered driver. `None` if the API server lacks the field.
    pub prevent_pod_scheduling_if_missing: Option<bool>,
}

/// Omits fields that a version of the API server lacks.
pub(super) fn csi_driver(spec: &CsiDriverSpec, kubernetes: Option<KubernetesVersion>) -> CsiDriver {
    CsiDriver {
        fs_group_policy: spec.fs_group_policy,
        se_linux_mount: spec.se_linux_mount,
        storage_capacity: spec.storage_capacity,
        node_allocatable_update_period_seconds: at_least(kubernetes, 34).then_some(UPDATE_SECONDS),
        prevent_pod_scheduling_if_missing: prevent_pod_scheduling(spec.prevent_pod_scheduling_if_missing, kubernetes),
    }
}

/// The field is enabled by default since Kubernetes 1.37. If it is disabled, the API server drops it, which would
/// appear as permanent drift. Therefore an unknown version counts as an old one unless the spec requires the field.
fn prevent_pod_scheduling(guard: SchedulingGuard, kubernetes: Option<KubernetesVersion>) -> Option<bool> {
    let has_field = kubernetes.is_some() && at_least(kubernetes, 37);
    match guard {
        SchedulingGuard::Auto => has_field.then_some(true),
        SchedulingGuard::Enabled => at_least(kubernetes, 35).then_some(true),
        SchedulingGuard::Disabled => has_field.then_some(false),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::old(Some(34), [None, None, None])]
    #[case::behind_a_gate(Some(35), [None, Some(true), None])]
    #[case::last_with_gate(Some(36), [None, Some(true), None])]
    #[case::on_by_default(Some(37), [Some(true), Some(true), Some(false)])]
    #[case::later(Some(100), [Some(true), Some(true), Some(false)])]
    #[case::unknown(None, [None, Some(true), None])]
    fn scheduling_guard_follows_the_api_server(#[case] minor: Option<u32>, #[case] expected: [Option<bool>; 3]) {
        let kubernetes = minor.map(|minor| KubernetesVersion { major: 1, minor });
        let guards = [
            SchedulingGuard::Auto,
            SchedulingGuard::Enabled,
            SchedulingGuard::Disabled,
        ];
        let fields = guards.map(|guard| {
            let spec = CsiDriverSpec {
                prevent_pod_scheduling_if_missing: guard,
                ..CsiDriverSpec::default()
            };
            csi_driver(&spec, kubernetes).prevent_pod_scheduling_if_missing
        });
        assert_eq!(fields, expected);
    }
}
