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
mod names;
pub mod spec;
pub mod status;
pub mod yaml;

#[cfg(test)]
mod tests;

pub use conditions::ConditionType;
pub use manifest::{crd, schema_hash};
pub use names::{
    DEFAULT_DRIVER_NAME, FINALIZER, GROUP, INSTANCE_LABEL, KIND, OWNER_UID_ANNOTATION, PLURAL, SCHEMA_HASH_ANNOTATION,
    VERSION,
};
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
