// SPDX-License-Identifier: Apache-2.0
//! Keys in the metadata of Cinder's resources through which a process informs a later one. They are a stable contract,
//! like the keys of the Go driver. No value is a secret.

/// On a volume, snapshot or backup: the cluster for which it was created. Every CSI driver for Cinder writes it.
pub const CLUSTER: &str = "cinder.csi.openstack.org/cluster";
/// On a volume: the name of its PersistentVolume, which external-provisioner passes with `--extra-create-metadata`.
pub(crate) const PV_NAME: &str = "csi.storage.k8s.io/pv/name";
/// On a volume: the id of the backup from which it was restored. Cinder itself records the id of a source snapshot or
/// volume.
pub const SOURCE_BACKUP: &str = "cinder.csi.openstack.org/source-backup";
/// The same, as Cinder writes it when it restores the backup. Cinder also replaces all other metadata with the metadata
/// of the backed up volume, including the keys of that volume's own creation.
pub const CINDERS_SOURCE_BACKUP: &str = "src_backup_id";
/// On a volume: the acceptable zones, separated by commas. No caller ever received a volume in another zone.
pub const REQUESTED_ZONES: &str = "cinder.csi.openstack.org/requested-zones";
/// On a volume: `true` if the volume must support several servers. No caller ever received a volume that does not.
pub const REQUESTED_MULTIATTACH: &str = "cinder.csi.openstack.org/requested-multiattach";
/// On a volume and a backup: how pods use the volume, `Block` or `Filesystem`. Volumes of the Go driver lack it.
pub const VOLUME_MODE: &str = "cinder.csi.openstack.org/volume-mode";
/// On a volume, followed by a server's id: the id of the read-only attachment to that server. The key has no slash,
/// because the driver removes it later, and Cinder finds no key with a slash in a path.
pub const READ_ONLY_AT: &str = "cinder.csi.openstack.org.read-only-at.";
/// On a snapshot: the name of the backup whose data it freezes. It is deleted when the backup is complete.
pub const TEMPORARY_FOR: &str = "cinder.csi.openstack.org/temporary-for-backup";
/// On a failed backup: how often its id was returned since the failure. The failure is returned only after that.
pub const FAILURE_SEEN: &str = "cinder.csi.openstack.org/failure-seen";
/// On a snapshot: the zone of its volume.
pub const ZONE: &str = "cinder.csi.openstack.org/zone";

/// The maximum length of a metadata value in Cinder, in characters.
pub(crate) const LONGEST_VALUE: usize = 255;
