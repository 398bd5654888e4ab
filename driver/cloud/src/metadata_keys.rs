// SPDX-License-Identifier: Apache-2.0
//! Marks that operations leave in metadata, so that another process can tell later what happened. They are a contract like the
//! keys of the Go driver, and none of them is a secret.

/// On a volume, a snapshot or a backup: the cluster that it was made for. Every CSI driver for Cinder writes it.
pub const CLUSTER: &str = "cinder.csi.openstack.org/cluster";
/// On a volume: the name of its PersistentVolume, which external-provisioner adds with `--extra-create-metadata`.
pub(crate) const PV_NAME: &str = "csi.storage.k8s.io/pv/name";
/// On a volume: the id of the backup that it was restored from. Cinder keeps that of a snapshot or a volume itself.
pub const SOURCE_BACKUP: &str = "cinder.csi.openstack.org/source-backup";
/// The same as Cinder itself writes it when the backup is restored. All other metadata is that of the volume in the backup then, the
/// marks of that volume's own creation included.
pub const CINDERS_SOURCE_BACKUP: &str = "src_backup_id";
/// On a volume: the zones, separated by commas, of which it was to be in one. A volume elsewhere was never given to anybody.
pub const REQUESTED_ZONES: &str = "cinder.csi.openstack.org/requested-zones";
/// On a volume: `true` where several servers shall have it. One that only one server can have was never given to anybody then.
pub const REQUESTED_MULTIATTACH: &str = "cinder.csi.openstack.org/requested-multiattach";
/// On a volume and a backup: how pods use the volume, `Block` or `Filesystem`. Volumes that the Go driver created lack it.
pub const VOLUME_MODE: &str = "cinder.csi.openstack.org/volume-mode";
/// On a volume, with a server's id behind it: the attachment to that server, which is there to be read only. Without a slash, for it is
/// removed again, and Cinder finds no key with one in a path.
pub const READ_ONLY_AT: &str = "cinder.csi.openstack.org.read-only-at.";
/// On a snapshot: it only freezes the data for the backup of this name, and goes when that is made.
pub const TEMPORARY_FOR: &str = "cinder.csi.openstack.org/temporary-for-backup";
/// On a backup that failed: how often its id was answered after that. Only then the failure is.
pub const FAILURE_SEEN: &str = "cinder.csi.openstack.org/failure-seen";
/// On a snapshot: the zone of its volume.
pub const ZONE: &str = "cinder.csi.openstack.org/zone";

/// The longest value of Cinder's metadata, in characters.
pub(crate) const LONGEST_VALUE: usize = 255;
