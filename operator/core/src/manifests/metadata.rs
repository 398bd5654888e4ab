// SPDX-License-Identifier: Apache-2.0
//! Names, labels and owners.

use std::collections::BTreeMap;

use cinder_csi_crds::{INSTANCE_LABEL, OWNER_UID_ANNOTATION};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use crate::cluster::{
    COMPONENT_LABEL, CONTROLLER_COMPONENT, MANAGED_BY, MANAGED_BY_LABEL, NODE_COMPONENT, VERSION_LABEL,
};
use crate::releases::TEMPLATE_INPUTS;
use crate::resolve::Resolved;

/// A component of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ComponentLabel {
    /// The controller pods.
    Controller,
    /// The node pods.
    Node,
    /// StorageClasses and the CSIDriver.
    Storage,
    /// Objects for Prometheus and Grafana.
    Monitoring,
}

impl ComponentLabel {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Controller => CONTROLLER_COMPONENT,
            Self::Node => NODE_COMPONENT,
            Self::Storage => "storage",
            Self::Monitoring => "monitoring",
        }
    }
}

/// Returns the metadata of an object in the driver's namespace.
pub(super) fn namespaced(resolved: &Resolved, name: String, component: ComponentLabel) -> ObjectMeta {
    ObjectMeta {
        namespace: Some(resolved.namespace.clone()),
        ..owner_annotated(resolved, name, component)
    }
}

/// Returns the metadata of a workload, which records the inputs of its pod template.
pub(super) fn workload(resolved: &Resolved, name: String, component: ComponentLabel) -> ObjectMeta {
    let mut metadata = namespaced(resolved, name, component);
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(TEMPLATE_INPUTS.to_owned(), resolved.inputs.annotation());
    metadata
}

/// Returns the metadata of an object with its owner in an annotation.
///
/// An owner reference is never used. With one, the garbage collector could delete the object while volumes are
/// mounted. This happens when a client removes our finalizer, or deletes the owner in the foreground, which does not
/// wait for the finalizer. In addition, admission control may protect owner references, which then require a
/// permission on the owner.
pub(super) fn owner_annotated(resolved: &Resolved, name: String, component: ComponentLabel) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        labels: Some(labels(resolved, component)),
        annotations: resolved
            .owner
            .as_ref()
            .map(|owner| BTreeMap::from([(OWNER_UID_ANNOTATION.to_owned(), owner.uid.clone())])),
        ..ObjectMeta::default()
    }
}

/// Returns the labels of all objects.
pub(super) fn labels(resolved: &Resolved, component: ComponentLabel) -> BTreeMap<String, String> {
    let mut labels = selector_labels(resolved, component);
    labels.extend([
        ("app.kubernetes.io/name".into(), "cinder-csi".into()),
        ("app.kubernetes.io/instance".into(), resolved.name_prefix.clone()),
        ("app.kubernetes.io/part-of".into(), "cinder-csi".into()),
        (VERSION_LABEL.into(), resolved.version.clone()),
        (MANAGED_BY_LABEL.into(), MANAGED_BY.into()),
    ]);
    labels
}

/// Returns the labels of pods. They omit the version, which would replace every pod at each release of the operator.
pub(super) fn pod_labels(resolved: &Resolved, component: ComponentLabel) -> BTreeMap<String, String> {
    let mut labels = labels(resolved, component);
    labels.remove(VERSION_LABEL);
    labels
}

/// Selects the pods of a component. A selector is immutable, so it contains only permanent labels.
pub(super) fn selector(resolved: &Resolved, component: ComponentLabel) -> LabelSelector {
    LabelSelector {
        match_labels: Some(selector_labels(resolved, component)),
        ..LabelSelector::default()
    }
}

fn selector_labels(resolved: &Resolved, component: ComponentLabel) -> BTreeMap<String, String> {
    BTreeMap::from([
        (INSTANCE_LABEL.to_owned(), resolved.driver_name.clone()),
        (COMPONENT_LABEL.to_owned(), component.as_str().to_owned()),
    ])
}
