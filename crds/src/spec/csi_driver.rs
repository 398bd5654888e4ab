// SPDX-License-Identifier: Apache-2.0
//! Fields of the CSIDriver object.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Fields of the CSIDriver object.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CsiDriverSpec {
    /// When the kubelet applies a pod's fsGroup to the volume. File: always. ReadWriteOnceWithFSType: only to
    /// single-node volumes with a file system. None: never.
    #[serde(default)]
    pub fs_group_policy: FsGroupPolicy,

    /// Whether volumes are mounted with the SELinux label of their pod, instead of a relabel of each file. It
    /// has no effect on nodes without SELinux.
    #[serde(rename = "seLinuxMount", default = "default_true")]
    pub se_linux_mount: bool,

    /// Whether the scheduler considers the available storage when it selects a node for a new volume.
    /// csi-provisioner then publishes the quota and the pools of Cinder as CSIStorageCapacity objects.
    #[serde(default)]
    pub storage_capacity: bool,

    /// Whether the scheduler avoids nodes without a registered driver for pods with volumes of the driver.
    /// Auto: from Kubernetes 1.37 on. Enabled: from Kubernetes 1.35 on; 1.35 and 1.36 need the feature gate
    /// VolumeLimitScaling. Disabled: never. A cluster autoscaler must run with
    /// --enable-csi-node-aware-scheduling, the default from 1.37 on. Without it, the autoscaler adds no nodes
    /// for such pods.
    #[serde(default)]
    pub prevent_pod_scheduling_if_missing: SchedulingGuard,
}

impl Default for CsiDriverSpec {
    fn default() -> Self {
        Self {
            fs_group_policy: FsGroupPolicy::default(),
            se_linux_mount: true,
            storage_capacity: false,
            prevent_pod_scheduling_if_missing: SchedulingGuard::default(),
        }
    }
}

/// Whether the scheduler avoids nodes without the driver.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchedulingGuard {
    /// If the API server has the field without a feature gate.
    #[default]
    Auto,
    /// If the API server has the field.
    Enabled,
    /// Never.
    Disabled,
}

/// When the kubelet applies fsGroup.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FsGroupPolicy {
    /// To every volume with a file system.
    #[default]
    File,
    /// To single-node volumes with a named file system type.
    ReadWriteOnceWithFSType,
    /// To no volume.
    None,
}

impl FsGroupPolicy {
    /// Value in the Kubernetes API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "File",
            Self::ReadWriteOnceWithFSType => "ReadWriteOnceWithFSType",
            Self::None => "None",
        }
    }
}

fn default_true() -> bool {
    true
}
