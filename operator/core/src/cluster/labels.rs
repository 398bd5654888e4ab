// SPDX-License-Identifier: Apache-2.0
//! Labels and annotations that identify objects of the driver.

/// Recommended label for the program that manages an object.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Value of this label on all objects of the operator.
pub const MANAGED_BY: &str = "cinder-csi-operator";
/// Recommended label for the version of an application.
pub const VERSION_LABEL: &str = "app.kubernetes.io/version";
/// Recommended label for the component of an application.
pub const COMPONENT_LABEL: &str = "app.kubernetes.io/component";
/// Value of this label on objects of the controller.
pub const CONTROLLER_COMPONENT: &str = "controller";
/// Value of this label on objects of the nodes.
pub const NODE_COMPONENT: &str = "node";
/// Annotation of the default StorageClass.
pub const DEFAULT_CLASS_ANNOTATION: &str = "storageclass.kubernetes.io/is-default-class";
/// Label of pods with the revision of the DaemonSet. The DaemonSet controller sets it.
pub const REVISION_LABEL: &str = "controller-revision-hash";
