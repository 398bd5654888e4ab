// SPDX-License-Identifier: Apache-2.0
//! The `CinderCSIDriver` API. Each cluster-scoped object describes one Cinder CSI driver of the cluster.
//!
//! ```text
//!  CinderCSIDriver            metadata.name is the name of the CSI driver
//!  ├── spec                   desired state     spec.rs, spec/
//!  └── status                 observed state    status.rs, conditions.rs
//! ```
//!
//! The types carry the validation: schema bounds and CEL rules, each with a message. Readers of an object apply the
//! defaults; objects do not store them. [`crd`] generates the CustomResourceDefinition from the types. A test compares
//! the YAML file of this crate with its output.

// KubeSchema derives a copy of each public type inside a function, where `pub` has no effect.
#![allow(unreachable_pub)]

pub mod conditions;
pub mod manifest;
pub mod spec;
pub mod status;
pub mod yaml;

#[cfg(test)]
mod tests;

pub use conditions::ConditionType;
pub use manifest::{crd, schema_hash};
pub use spec::{
    Adoption, AdoptionMode, AlertRules, AlertThresholds, BlockStorage, CaBundleKind, CaBundleRef, CinderCSIDriver,
    CinderCSIDriverSpec, ClassesState, ClientCertRef, Cloud, ControllerSpec, CsiDriverSpec, Dashboards,
    DefaultClassPolicy, DefaultStorageClass, Deletion, DeletionPolicy, EndpointType, FsGroupPolicy, FsType,
    GroupSnapshotClass, Health, ImageOverrides, ImagePullPolicy, Images, ImmutableChange, LocalObjectRef, LogFormat,
    LogLevel, ManagementState, Monitoring, MonitoringMode, NetworkPolicy, NetworkPolicyMode, NodeRegistration,
    NodeSpec, NodeUpdate, NodeUpdateType, Override, OverrideTarget, OverrideType, Proxy, ReclaimPolicy, Resources,
    SchedulingGuard, SecretKeyRef, ServiceMonitorSettings, SidecarName, SidecarPolicy, SidecarSettings, SnapshotClass,
    SnapshotType, Snapshots, SnapshotsMode, StartupTaint, StorageClassItem, StorageClasses, StuckHealth, Topology,
    TopologyMode, Update, UpdatePolicy, VolumeAttributesClassItem, VolumeAttributesClasses, VolumeBindingMode,
};
pub use status::{
    AdoptionStatus, AdoptionStep, Blocker, ChangeAction, CinderCSIDriverStatus, CloudPlace, CloudStatus,
    ComponentStatus, ControllerStatus, DeletionStatus, DriverState, FailedNode, NodesStatus, PendingChange,
    PendingChanges, PendingTopology, RecordedContents, RolloutState, RolloutStatus, StorageClassesStatus, StuckVolume,
    TopologyStatus, VolumesStatus,
};
pub use yaml::to_yaml;

/// The API group of every kind in this crate.
pub const GROUP: &str = "csi.openstack.org";
/// The API version served and stored.
pub const VERSION: &str = "v1beta1";
pub const KIND: &str = "CinderCSIDriver";
/// Plural name in the URL of the resource.
pub const PLURAL: &str = "cindercsidrivers";

/// Blocks the deletion of an object until no volume of its driver exists.
pub const FINALIZER: &str = "csi.openstack.org/volume-safe-teardown";
/// Label on every object that the operator creates. Its value is the name of the `CinderCSIDriver`.
pub const INSTANCE_LABEL: &str = "csi.openstack.org/instance";
/// Annotation with the uid of the `CinderCSIDriver`, on every object that the operator creates. The objects
/// have no owner reference: the garbage collector must never delete them while volumes are mounted.
pub const OWNER_UID_ANNOTATION: &str = "csi.openstack.org/owner-uid";
/// Annotation on the CustomResourceDefinition with the hash of its schema. The operator compares it to detect
/// a different schema.
pub const SCHEMA_HASH_ANNOTATION: &str = "csi.openstack.org/schema-hash";
/// Default name of the CSI driver.
pub const DEFAULT_DRIVER_NAME: &str = "cinder.csi.openstack.org";
