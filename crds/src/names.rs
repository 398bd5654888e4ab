// SPDX-License-Identifier: Apache-2.0
//! Names of the API: group and kind, labels, annotations and the finalizer; and the pattern for names of objects.

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

/// Names that the API server accepts for a Secret, a ConfigMap or a StorageClass: a DNS subdomain.
pub(crate) const OBJECT_NAME: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
