// SPDX-License-Identifier: Apache-2.0
//! `CinderCSIDriver` and its `spec`, the desired state.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod adoption;
mod cloud;
mod cloud_options;
mod controller;
mod csi_driver;
mod deletion;
mod health;
mod images;
mod metadata;
mod monitoring;
mod network_policy;
mod node;
mod overrides;
mod pods;
mod sidecars;
mod snapshots;
mod storage_class;
mod topology;
mod update;

pub use adoption::{Adoption, AdoptionMode};
pub use cloud::{CaBundleKind, CaBundleRef, ClientCertRef, Cloud, EndpointType, SecretKeyRef};
pub use cloud_options::{BlockStorage, Proxy};
pub use controller::ControllerSpec;
pub use csi_driver::{CsiDriverSpec, FsGroupPolicy, SchedulingGuard};
pub use deletion::{Deletion, DeletionPolicy};
pub use health::{Health, StuckHealth};
pub use images::{ImageOverrides, ImagePullPolicy, Images, LocalObjectRef};
pub use monitoring::{AlertRules, AlertThresholds, Dashboards, Monitoring, MonitoringMode, ServiceMonitorSettings};
pub use network_policy::{NetworkPolicy, NetworkPolicyMode};
pub use node::{DEFAULT_KUBELET_DIR, NodeRegistration, NodeSpec, NodeUpdate, NodeUpdateType, StartupTaint};
pub use overrides::{Override, OverrideTarget, OverrideType};
pub use pods::Resources;
pub use sidecars::{SidecarName, SidecarPolicy, SidecarSettings};
pub use snapshots::{
    GroupSnapshotClass, SnapshotClass, SnapshotType, Snapshots, SnapshotsMode, VolumeAttributesClassItem,
    VolumeAttributesClasses,
};
pub use storage_class::{
    ClassesState, DefaultClassPolicy, DefaultStorageClass, FsType, ImmutableChange, ReclaimPolicy, StorageClassItem,
    StorageClasses, VolumeBindingMode,
};
pub use topology::{Topology, TopologyMode};
pub use update::{Update, UpdatePolicy};

use crate::status::CinderCSIDriverStatus;

/// Desired state of the driver.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "csi.openstack.org",
    version = "v1beta1",
    kind = "CinderCSIDriver",
    plural = "cindercsidrivers",
    shortname = "ccsi",
    category = "storage",
    status = "CinderCSIDriverStatus",
    derive = "PartialEq",
    doc = "One Cinder CSI driver of this cluster. The object's name is the name of the CSI driver; volumes refer to it for ever. Who may write it is root on every node: bind that right as you bind cluster-admin.",
    printcolumn(
        name = "State",
        type_ = "string",
        description = "What the operator does with the driver: spec.managementState, or how far its removal is",
        json_path = ".status.state"
    ),
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
        name = "Registered",
        type_ = "integer",
        description = "Nodes where the driver is registered with the kubelet",
        json_path = ".status.nodes.registered"
    ),
    printcolumn(
        name = "Nodes",
        type_ = "integer",
        description = "Nodes where the driver should be registered",
        json_path = ".status.nodes.desired"
    ),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        priority = 1,
        description = "The gravest of what condition Degraded reports",
        json_path = r#".status.conditions[?(@.type=="Degraded")].reason"#
    ),
    validation = Rule::new("self.metadata.name.size() <= 63")
        .message("metadata.name is the name of the CSI driver and may have at most 63 characters"),
    validation = Rule::new("self.metadata.name.size() > 63 || self.metadata.name.size() + (has(self.spec.node) && has(self.spec.node.kubeletDir) ? self.spec.node.kubeletDir.size() : 16) <= 80")
        .message("metadata.name and spec.node.kubeletDir may have at most 80 characters together: the kubelet's plugin sockets lie below them, and the path of a socket is limited to 107 characters"),
    validation = Rule::new("!(has(self.spec.adoption) && has(self.spec.adoption.mode) && self.spec.adoption.mode == 'Migrate') || !(has(self.spec.node) && has(self.spec.node.registration)) || self.spec.node.registration == 'Integrated'")
        .message("adoption.mode Migrate needs node.registration Integrated: two registrars on a node would take the driver from each other"),
    validation = Rule::new("!(has(self.spec.adoption) && has(self.spec.adoption.mode) && self.spec.adoption.mode == 'Migrate') || self.metadata.name == 'cinder.csi.openstack.org'")
        .message("adoption.mode Migrate is for the object with the name of the Go driver, cinder.csi.openstack.org: volumes refer to their driver by its name"),
    validation = Rule::new("has(self.spec.operandNamespace) ? (has(oldSelf.spec.operandNamespace) ? self.spec.operandNamespace == oldSelf.spec.operandNamespace : has(oldSelf.status) && has(oldSelf.status.operandNamespace) && self.spec.operandNamespace == oldSelf.status.operandNamespace) : !has(oldSelf.spec.operandNamespace)")
        .message("operandNamespace is chosen when the object is created and cannot be changed or removed later: everything would be made a second time. It can be added later if it is the namespace where the driver runs, which status.operandNamespace names"),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "has(self.clusterID) == has(oldSelf.clusterID) && (!has(self.clusterID) || self.clusterID == oldSelf.clusterID)"
).message("clusterID is chosen when the object is created and cannot be changed, added or removed later: it is written on every volume in Cinder"))]
#[x_kube(validation = Rule::new(
    "has(self.instanceName) == has(oldSelf.instanceName) && (!has(self.instanceName) || self.instanceName == oldSelf.instanceName)"
).message("instanceName is chosen when the object is created and cannot be changed, added or removed later: everything would be made a second time"))]
pub struct CinderCSIDriverSpec {
    /// How the operator manages the driver. Managed: it installs and updates the driver. Paused: it suspends
    /// all changes and continues to report. DryRun: it changes nothing and lists its changes in
    /// status.pendingChanges. Unmanaged: it changes nothing and reports the state of the driver. Removed: it
    /// removes the driver according to spec.deletion.
    #[serde(default)]
    pub management_state: ManagementState,

    /// When the driver is updated to the version of the operator.
    #[serde(default)]
    pub update: Update,

    /// How volumes and objects are handled when the driver is removed.
    #[serde(default)]
    pub deletion: Deletion,

    /// How the operator handles an installation of the Go driver (cinder-csi-plugin).
    #[serde(default)]
    pub adoption: Adoption,

    /// Prefix of the names of all objects that the operator creates for the driver. Defaults to cinder-csi
    /// for the default name of the driver, and to cinder-csi- with 8 digits derived from the name for any
    /// other name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 30), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub instance_name: Option<String>,

    /// Namespace of the driver's pods and of the Secrets and ConfigMaps that this spec references. Defaults
    /// to the namespace of the operator. The namespace must exist, and the operator must have its role there
    /// and serve it (--operand-namespaces). Condition Degraded reports missing parts. The field can be added
    /// later only with the value of status.operandNamespace. An operator that was installed in another
    /// namespace then maintains the driver where it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub operand_namespace: Option<String>,

    /// How much the driver and its sidecars log.
    #[serde(default)]
    pub log_level: LogLevel,

    /// Format of the driver's log. The sidecars have one fixed format.
    #[serde(default)]
    pub log_format: LogFormat,

    /// Identifier of this cluster in the metadata of every volume in Cinder
    /// (cinder.csi.openstack.org/cluster). Defaults to the uid of the namespace kube-system. To manage
    /// volumes of the Go driver, set the value of its flag --cluster.
    #[serde(rename = "clusterID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
    )]
    pub cluster_id: Option<String>,

    /// The OpenStack clouds of the volumes, with references to their credentials. With several clouds, the
    /// Secret of the StorageClass selects the cloud of a new volume (key cloud). Without that key, the region
    /// of the pod's node selects it (nodeRegion).
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["name".into()]),
        validation = Rule::new("self.all(c, has(c.nodeRegion)) || !self.exists(c, has(c.nodeRegion))")
            .message("nodeRegion says which nodes are whose: give it for every cloud or for none"),
        validation = Rule::new("self.all(c, !has(c.nodeRegion) || self.exists_one(d, has(d.nodeRegion) && d.nodeRegion == c.nodeRegion))")
            .message("two clouds have the same nodeRegion: their nodes could not be distinguished"),
        validation = Rule::new("self.all(c, !has(c.section) || self.exists_one(d, (has(d.section) ? d.section : (has(d.name) ? d.name : 'default')) == c.section))")
            .message("two clouds have the same section, or one has the name of another as its section: Secrets could not choose between them"),
    )]
    pub clouds: Vec<Cloud>,

    /// Container images and registries that replace the built-in ones.
    #[serde(default)]
    pub images: Images,

    /// Which releases of the sidecars run.
    #[serde(default)]
    pub sidecar_policy: SidecarPolicy,

    /// How the driver uses Cinder.
    #[serde(default)]
    pub block_storage: BlockStorage,

    /// Proxies between the driver and OpenStack. Without this field, the driver connects directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,

    /// Whether volumes and nodes have the availability zone as a topology segment.
    #[serde(default)]
    pub topology: Topology,

    /// The controller pods, which create, attach, detach and delete volumes.
    #[serde(default)]
    pub controller: ControllerSpec,

    /// The node pods, which mount volumes. One runs on every node.
    #[serde(default)]
    pub node: NodeSpec,

    /// How Kubernetes treats the driver: fields of the CSIDriver object.
    #[serde(rename = "csiDriver", default)]
    pub csi_driver: CsiDriverSpec,

    /// The StorageClasses that the operator manages.
    #[serde(default)]
    pub storage_classes: StorageClasses,

    /// Metrics, alerts and dashboards for Prometheus and Grafana.
    #[serde(default)]
    pub monitoring: Monitoring,

    /// Snapshots of volumes and of groups of volumes.
    #[serde(default)]
    pub snapshots: Snapshots,

    /// The VolumeAttributesClasses that the operator manages.
    #[serde(default)]
    pub volume_attributes_classes: VolumeAttributesClasses,

    /// Restricts the network traffic of the controller pods.
    #[serde(default)]
    pub network_policy: NetworkPolicy,

    /// Patches of objects that the operator creates, for settings without a field. The operator applies them
    /// in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub overrides: Vec<Override>,

    /// How the operator monitors clouds and volumes.
    #[serde(default)]
    pub health: Health,
}

impl CinderCSIDriverSpec {
    /// Creates a spec with `clouds` and defaults in all other fields.
    pub fn new(clouds: Vec<Cloud>) -> Self {
        Self {
            management_state: ManagementState::default(),
            adoption: Adoption::default(),
            update: Update::default(),
            deletion: Deletion::default(),
            instance_name: None,
            operand_namespace: None,
            log_level: LogLevel::default(),
            log_format: LogFormat::default(),
            cluster_id: None,
            clouds,
            images: Images::default(),
            sidecar_policy: SidecarPolicy::default(),
            block_storage: BlockStorage::default(),
            proxy: None,
            topology: Topology::default(),
            controller: ControllerSpec::default(),
            node: NodeSpec::default(),
            csi_driver: CsiDriverSpec::default(),
            storage_classes: StorageClasses::default(),
            monitoring: Monitoring::default(),
            snapshots: Snapshots::default(),
            volume_attributes_classes: VolumeAttributesClasses::default(),
            network_policy: NetworkPolicy::default(),
            overrides: Vec::new(),
            health: Health::default(),
        }
    }
}

/// How the operator manages the driver.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ManagementState {
    /// The operator installs and updates the driver.
    #[default]
    Managed,
    /// The operator suspends all changes. It continues to report, including drift.
    Paused,
    /// The operator changes nothing and reports its pending changes.
    DryRun,
    /// The operator changes nothing and reports the state of the driver.
    Unmanaged,
    /// The operator removes the driver according to spec.deletion. This object remains.
    Removed,
}

/// How much is logged.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLevel {
    /// Operations and failures.
    #[default]
    Normal,
    /// Also intermediate decisions.
    Debug,
    /// Also requests and responses, without secrets.
    Trace,
    /// Everything that the programs and their libraries can log, without secrets.
    TraceAll,
}

/// Format of log lines.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object per line.
    #[default]
    #[serde(rename = "json")]
    Json,
    /// Text for human readers.
    #[serde(rename = "text")]
    Text,
}
