//! How the cluster deals with the driver.

// KubeSchema makes a second struct of each, which an attribute of the first does not reach.
#![allow(clippy::struct_excessive_bools, reason = "each is a field of CSIDriver")]

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Fields of the CSIDriver object. What the API server of the cluster does not know is left out and named in
/// status.unsupportedFields.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.serviceAccountTokenInSecrets) || has(self.tokenRequests) && size(self.tokenRequests) > 0")
    .message("serviceAccountTokenInSecrets has a meaning only with tokenRequests"))]
pub struct CsiDriverSpec {
    /// Whether the kubelet applies a pod's fsGroup to the volume: File always, ReadWriteOnceWithFSType only to volumes of one
    /// node with a file system, None never.
    #[serde(default)]
    pub fs_group_policy: FsGroupPolicy,

    /// Whether volumes are mounted with the SELinux label of their pod instead of being relabelled file by file. Without a
    /// meaning where nodes have no SELinux.
    #[serde(rename = "seLinuxMount", default = "default_true")]
    pub se_linux_mount: bool,

    /// Whether the kubelet tells the driver which pod a volume is for. The driver does not need it.
    #[serde(default)]
    pub pod_info_on_mount: bool,

    /// Whether the scheduler asks where there is room before it chooses a node for a new volume. csi-provisioner publishes
    /// what Cinder's quota and pools tell as CSIStorageCapacity objects then.
    #[serde(default)]
    pub storage_capacity: bool,

    /// Whether the kubelet publishes volumes again and again while their pods run. The driver does not need it.
    #[serde(default)]
    pub requires_republish: bool,

    /// How volumes of the driver come to be: Persistent, by PersistentVolumeClaims. Ephemeral is refused, because the driver
    /// makes no volumes out of what stands in a pod alone; the claims that pods bring along (`pod.spec.volumes[].ephemeral`) are
    /// Persistent to it. A CSIDriver object of others that says more is made anew at a moment when nothing is being attached.
    #[serde(default = "default_lifecycle_modes")]
    #[schemars(length(min = 1, max = 2))]
    #[x_kube(
        merge_strategy = ListMerge::Set,
        validation = Rule::new("!('Ephemeral' in self)")
            .message("volumeLifecycleModes can hold Persistent only: the driver makes no volumes inline in pods (pod.spec.volumes[].csi), and pods with one would wait for ever; use pod.spec.volumes[].ephemeral, whose claims are Persistent"),
    )]
    pub volume_lifecycle_modes: Vec<VolumeLifecycleMode>,

    /// How often, in seconds, the kubelet asks how many volumes a node may have; 60 when it is not given. From Kubernetes 1.34
    /// on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 86_400))]
    pub node_allocatable_update_period_seconds: Option<i64>,

    /// Whether pods are kept from nodes where the driver is not registered. A cluster autoscaler that knows nothing of it makes
    /// no new nodes any more. From Kubernetes 1.37 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prevent_pod_scheduling_if_missing: Option<bool>,

    /// Tokens of the pods' service accounts that the kubelet gives to the driver. The driver does not need them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(validation = Rule::new("self.all(a, self.exists_one(b, a.audience == b.audience))")
        .message("each audience of tokenRequests can be there only once"))]
    pub token_requests: Vec<TokenRequest>,

    /// Whether those tokens come as secrets of the call. From Kubernetes 1.35 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_token_in_secrets: Option<bool>,
}

impl Default for CsiDriverSpec {
    fn default() -> Self {
        Self {
            fs_group_policy: FsGroupPolicy::default(),
            se_linux_mount: true,
            pod_info_on_mount: false,
            storage_capacity: false,
            requires_republish: false,
            volume_lifecycle_modes: default_lifecycle_modes(),
            node_allocatable_update_period_seconds: None,
            prevent_pod_scheduling_if_missing: None,
            token_requests: Vec::new(),
            service_account_token_in_secrets: None,
        }
    }
}

/// Whether the kubelet applies fsGroup.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FsGroupPolicy {
    /// To every volume with a file system.
    #[default]
    File,
    /// To volumes of one node whose file system is named.
    ReadWriteOnceWithFSType,
    /// To none.
    None,
}

impl FsGroupPolicy {
    /// As Kubernetes writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "File",
            Self::ReadWriteOnceWithFSType => "ReadWriteOnceWithFSType",
            Self::None => "None",
        }
    }
}

/// How a volume comes to be.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeLifecycleMode {
    /// By a PersistentVolumeClaim.
    Persistent,
    /// With the pod that names it, without a claim.
    Ephemeral,
}

impl VolumeLifecycleMode {
    /// As Kubernetes writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Persistent => "Persistent",
            Self::Ephemeral => "Ephemeral",
        }
    }
}

/// A token that the kubelet gives to the driver.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TokenRequest {
    /// Whom the token is for; empty is the API server.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub audience: String,

    /// How long it is good, in seconds; an hour when it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 600, max = 4_294_967_296_i64))]
    pub expiration_seconds: Option<i64>,
}

fn default_lifecycle_modes() -> Vec<VolumeLifecycleMode> {
    vec![VolumeLifecycleMode::Persistent]
}

fn default_true() -> bool {
    true
}
