// SPDX-License-Identifier: Apache-2.0
//! Keys of parameters, contexts and secrets, which the Go driver shares.

use cinder_cloud::metadata_keys;

/// Topology segment of nodes and volumes: the availability zone.
pub const TOPOLOGY_ZONE: &str = "topology.cinder.csi.openstack.org/zone";

/// Publish context: the device name that Nova thought of. Nodes find the device by its serial and ignore it.
pub const PUBLISH_DEVICE_PATH: &str = "DevicePath";

/// Publish context: `true` for a volume that is at the node to be read only.
pub const PUBLISH_READONLY: &str = "readonly";

/// Publish context: the bytes that the volume's device has at least, which is more than it had before it grew and may be less than what
/// Cinder says. The Go driver's attachments lack it, and so do those of encrypted volumes, whose devices are smaller by what the keys
/// take.
pub const PUBLISH_SIZE: &str = "cinder.csi.openstack.org/size-bytes";

/// Volume context: `true` on a volume that was made from a snapshot or another volume, whose file system may have to grow.
pub const RESIZE_REQUIRED: &str = "cinder.csi.openstack.org/resizeRequired";

/// StorageClass parameter and volume context: what mkfs is told beside the driver's own defaults.
pub const MKFS_OPTIONS: &str = "mkfsOptions";

/// The same key in cinder-csi-plugin after 1.36, which separates the options by white space alone.
pub const GO_MKFS_OPTIONS: &str = "mkfs-options";

/// StorageClass parameter: `true` allows volumes with a file system from snapshots of raw devices.
pub const ALLOW_MODE_CHANGE: &str = "allowVolumeModeChange";

/// Volume metadata: the value of `--cluster`.
pub const METADATA_CLUSTER: &str = metadata_keys::CLUSTER;

/// Secrets: the name of the cloud to work on.
pub const SECRET_CLOUD: &str = "cloud";

/// Description of every volume, snapshot and backup that is made here.
pub const DESCRIPTION: &str = "Created by OpenStack Cinder CSI driver";

pub(super) const PVC_NAME: &str = "csi.storage.k8s.io/pvc/name";

pub(super) const PVC_NAMESPACE: &str = "csi.storage.k8s.io/pvc/namespace";

pub(super) const PV_NAME: &str = "csi.storage.k8s.io/pv/name";

/// Keys of Kubernetes' own; the sidecars add them and none is ever unknown.
pub(super) const KUBERNETES_PREFIX: &str = "csi.storage.k8s.io/";

/// StorageClass parameter of csi-provisioner: the file system.
pub(super) const FS_TYPE: &str = "csi.storage.k8s.io/fstype";

/// The same, as StorageClasses named it before: csi-provisioner still reads it, in any case.
pub(super) const OLD_FS_TYPE: &str = "fstype";
