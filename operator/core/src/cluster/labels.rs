// SPDX-License-Identifier: Apache-2.0
//! The labels and annotations by which objects of the driver are found and read.

/// The usual label for the program that looks after an object.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Its value on everything that the operator makes.
pub const MANAGED_BY: &str = "cinder-csi-operator";
/// The usual label for the version of an application.
pub const VERSION_LABEL: &str = "app.kubernetes.io/version";
/// The usual label for the part of an application.
pub const COMPONENT_LABEL: &str = "app.kubernetes.io/component";
/// Its value on what talks to OpenStack.
pub const CONTROLLER_COMPONENT: &str = "controller";
/// Its value on what runs on the nodes.
pub const NODE_COMPONENT: &str = "node";
/// On the StorageClass of claims that name none.
pub const DEFAULT_CLASS_ANNOTATION: &str = "storageclass.kubernetes.io/is-default-class";
/// Label of pods that tells the revision of the DaemonSet that they were made from. Its controller sets it.
pub const REVISION_LABEL: &str = "controller-revision-hash";
