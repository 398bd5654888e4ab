//! What the administrator wants: `CinderCSIDriver` and its `spec`.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod cloud;
mod deletion;
mod images;
mod pods;
mod storage_class;
mod update;

pub use cloud::{CaBundleKind, CaBundleRef, Cloud, SecretKeyRef};
pub use deletion::{Deletion, DeletionPolicy};
pub use images::{ImageOverrides, ImagePullPolicy, Images, LocalObjectRef};
pub use pods::{ControllerSpec, DEFAULT_KUBELET_DIR, NodeSpec, Resources, SidecarSettings, Sidecars};
pub use storage_class::{FsType, ReclaimPolicy, StorageClassItem, StorageClasses, VolumeBindingMode};
pub use update::{Update, UpdatePolicy, UpdateWindow};

use crate::status::CinderCSIDriverStatus;

/// What the API server takes as the name of a Secret, a ConfigMap or a StorageClass: a DNS subdomain.
const OBJECT_NAME: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// What is wanted of the driver.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "csi.openstack.org",
    version = "v1alpha1",
    kind = "CinderCSIDriver",
    plural = "cindercsidrivers",
    shortname = "ccsi",
    category = "storage",
    status = "CinderCSIDriverStatus",
    derive = "PartialEq",
    doc = "One Cinder CSI driver of this cluster. The object's name is the name of the CSI driver; volumes refer to it for ever.",
    printcolumn(name = "State", type_ = "string", json_path = ".spec.managementState"),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Available")].status"#
    ),
    printcolumn(
        name = "Progressing",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Progressing")].status"#
    ),
    printcolumn(
        name = "Degraded",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Degraded")].status"#
    ),
    printcolumn(
        name = "Nodes",
        type_ = "integer",
        description = "Nodes where the driver is registered with the kubelet",
        json_path = ".status.nodes.registered"
    ),
    printcolumn(
        name = "Wanted",
        type_ = "integer",
        description = "Nodes where the driver should be registered",
        json_path = ".status.nodes.desired"
    ),
    printcolumn(
        name = "Volumes",
        type_ = "integer",
        description = "PersistentVolumes of this driver",
        json_path = ".status.volumes.persistentVolumes"
    ),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        priority = 1,
        description = "Why the driver is available or not",
        json_path = r#".status.conditions[?(@.type=="Available")].reason"#
    ),
    validation = Rule::new("self.metadata.name.size() <= 63")
        .message("metadata.name is the name of the CSI driver and may have at most 63 characters"),
    validation = Rule::new("self.metadata.name.size() > 63 || self.metadata.name.size() + self.spec.node.kubeletDir.size() <= 80")
        .message("metadata.name and spec.node.kubeletDir may have at most 80 characters together: the kubelet's plugin sockets lie below them, and the path of a socket is limited to 107 characters"),
)]
#[cfg_attr(test, kube(cel))]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "has(self.clusterID) == has(oldSelf.clusterID) && (!has(self.clusterID) || self.clusterID == oldSelf.clusterID)"
).message("clusterID is chosen when the object is created and cannot be changed, added or removed later: it is written on every volume in Cinder"))]
pub struct CinderCSIDriverSpec {
    /// Whether the operator runs the driver (Managed), holds all changes for a while (Paused), tells in
    /// status.pendingChanges what it would change (DryRun), leaves everything to somebody else (Unmanaged), or takes the
    /// driver away as spec.deletion says (Removed).
    #[serde(default)]
    pub management_state: ManagementState,

    /// How the driver follows the operator to another version.
    #[serde(default)]
    pub update: Update,

    /// What happens to volumes and objects when the driver is taken away.
    #[serde(default)]
    pub deletion: Deletion,

    /// How much the driver and its sidecars log.
    #[serde(default)]
    pub log_level: LogLevel,

    /// Identifies this cluster in the metadata of every volume in Cinder (cinder.csi.openstack.org/cluster). When it
    /// is not given, the uid of the namespace kube-system serves. To take over the volumes of the Go driver, give the
    /// value of its flag --cluster.
    #[serde(rename = "clusterID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
    )]
    pub cluster_id: Option<String>,

    /// The OpenStack cloud with the volumes, and where its credentials are. Exactly one for now.
    #[schemars(length(min = 1, max = 1))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub clouds: Vec<Cloud>,

    /// Container images, where others than the built-in ones are wanted.
    #[serde(default)]
    pub images: Images,

    /// Whether volumes and nodes carry the availability zone that they are in.
    #[serde(default)]
    pub topology: Topology,

    /// The pods that create, attach, detach and delete volumes.
    #[serde(default)]
    pub controller: ControllerSpec,

    /// The pods that mount volumes, one on every node.
    #[serde(default)]
    pub node: NodeSpec,

    /// The StorageClasses that the operator keeps.
    #[serde(default)]
    pub storage_classes: StorageClasses,
}

impl CinderCSIDriverSpec {
    /// A spec with `clouds` and the defaults of the schema in everything else.
    pub fn new(clouds: Vec<Cloud>) -> Self {
        Self {
            management_state: ManagementState::default(),
            update: Update::default(),
            deletion: Deletion::default(),
            log_level: LogLevel::default(),
            cluster_id: None,
            clouds,
            images: Images::default(),
            topology: Topology::default(),
            controller: ControllerSpec::default(),
            node: NodeSpec::default(),
            storage_classes: StorageClasses::default(),
        }
    }
}

/// What the operator does with the driver.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ManagementState {
    /// The operator makes and keeps the driver.
    #[default]
    Managed,
    /// The operator changes nothing for now; it goes on to report, drift included.
    Paused,
    /// The operator changes nothing and reports what it would change.
    DryRun,
    /// The operator changes nothing and reports how the driver is.
    Unmanaged,
    /// The operator takes the driver away as spec.deletion says. This object stays.
    Removed,
}

/// How much is logged.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLevel {
    /// What happened and what failed.
    #[default]
    Normal,
    /// Also the decisions on the way.
    Debug,
    /// Also requests and answers, without secrets.
    Trace,
    /// Everything that the programs and their libraries can say, without secrets.
    TraceAll,
}

/// Availability zones.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// Enabled: volumes are created in, and pods scheduled to, the zone of the other. It takes the names of the zones
    /// of Nova and Cinder to be the same. Disabled: zones are ignored.
    #[serde(default)]
    pub mode: TopologyMode,
}

/// Whether zones are used.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopologyMode {
    /// Volumes and nodes carry their zone.
    #[default]
    Enabled,
    /// Zones are ignored.
    Disabled,
}
