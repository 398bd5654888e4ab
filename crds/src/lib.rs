// SPDX-License-Identifier: Apache-2.0
//! The `CinderCSIDriver` API: one cluster-scoped object stands for one Cinder CSI driver of a cluster.
//!
//! ```text
//!  CinderCSIDriver            metadata.name is the name of the CSI driver
//!  ├── spec                   what the administrator wants     spec.rs, spec/
//!  └── status                 what the operator has seen       status.rs, conditions.rs
//! ```
//!
//! The types carry the validation: schema bounds and CEL rules with a sentence each. Defaults are filled in when an object is
//! read, and are not stored in it. [`crd`] makes the
//! CustomResourceDefinition of them, and the YAML file beside this crate is that function's output, checked for drift.

// KubeSchema derives a copy of each public type inside a function, where `pub` reaches nobody.
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
/// The kind of the one resource.
pub const KIND: &str = "CinderCSIDriver";
/// Plural name, as in the resource's URL.
pub const PLURAL: &str = "cindercsidrivers";

/// Holds an object that is being deleted until no volume of its driver is left.
pub const FINALIZER: &str = "csi.openstack.org/volume-safe-teardown";
/// Label on every object that the operator makes; its value is the name of the `CinderCSIDriver`.
pub const INSTANCE_LABEL: &str = "csi.openstack.org/instance";
/// Annotation with the uid of the `CinderCSIDriver`, on every object that the operator makes. They carry no owner reference,
/// because the garbage collector must never delete them under mounted volumes.
pub const OWNER_UID_ANNOTATION: &str = "csi.openstack.org/owner-uid";
/// Annotation on the CustomResourceDefinition with the hash of its schema, so that the operator notices another one.
pub const SCHEMA_HASH_ANNOTATION: &str = "csi.openstack.org/schema-hash";
/// The name of the CSI driver that an administrator gets who does not choose another one.
pub const DEFAULT_DRIVER_NAME: &str = "cinder.csi.openstack.org";
