// SPDX-License-Identifier: Apache-2.0
//! Keys of parameters, contexts and secrets, which the Go driver shares.

use cinder_cloud::metadata_keys;

/// Topology segment of nodes and volumes: the availability zone.
pub const TOPOLOGY_ZONE: &str = "topology.cinder.csi.openstack.org/zone";

/// Publish context: the device name that Nova predicted. Nodes find the device by its serial and ignore this value.
pub const PUBLISH_DEVICE_PATH: &str = "DevicePath";

/// Publish context: `true` for a volume that is published read-only.
pub const PUBLISH_READONLY: &str = "readonly";

/// Publish context: the minimum size of the volume's device in bytes.
///
/// It is larger than before the last expansion, and may be smaller than the size in Cinder. Attachments of the Go
/// driver lack it. So do encrypted volumes, whose devices are smaller by the size of the encryption header.
pub const PUBLISH_SIZE: &str = "cinder.csi.openstack.org/size-bytes";

/// Volume context: `true` for a volume from a snapshot or another volume, whose file system may have to grow.
pub const RESIZE_REQUIRED: &str = "cinder.csi.openstack.org/resizeRequired";

/// StorageClass parameter and volume context: options of mkfs in addition to the driver's defaults.
pub const MKFS_OPTIONS: &str = "mkfsOptions";

/// The same key in cinder-csi-plugin after 1.36, which separates the options by white space only.
pub const GO_MKFS_OPTIONS: &str = "mkfs-options";

/// StorageClass parameter: `true` allows volumes with a file system from snapshots of raw devices.
pub const ALLOW_MODE_CHANGE: &str = "allowVolumeModeChange";

/// Volume metadata: the value of `--cluster`.
pub const METADATA_CLUSTER: &str = metadata_keys::CLUSTER;

/// Secrets: the name of the cloud.
pub const SECRET_CLOUD: &str = "cloud";

/// The description of every volume, snapshot and backup of this driver.
pub const DESCRIPTION: &str = "Created by OpenStack Cinder CSI driver";

pub(super) const PVC_NAME: &str = "csi.storage.k8s.io/pvc/name";

pub(super) const PVC_NAMESPACE: &str = "csi.storage.k8s.io/pvc/namespace";

pub(super) const PV_NAME: &str = "csi.storage.k8s.io/pv/name";

/// The prefix of keys that the sidecars add. They are never unknown.
pub(super) const KUBERNETES_PREFIX: &str = "csi.storage.k8s.io/";

/// StorageClass parameter of csi-provisioner: the file system.
pub(super) const FS_TYPE: &str = "csi.storage.k8s.io/fstype";

/// The earlier name of the same parameter, which csi-provisioner still accepts in any case.
pub(super) const OLD_FS_TYPE: &str = "fstype";
