// SPDX-License-Identifier: Apache-2.0
//! StorageClasses, snapshot classes and VolumeAttributesClasses, which claims and snapshots reference.

use std::collections::BTreeMap;

use cinder_csi_crds::{GroupSnapshotClass, ImmutableChange, SnapshotClass, SnapshotType, VolumeAttributesClassItem};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttributesClass};
use kube::api::{DynamicObject, ObjectMeta, TypeMeta};
use serde_json::{Value, json};

use super::metadata::{self, ComponentLabel};
use super::operand::{Handling, Operand, RenderError, Stage};
use crate::cluster::DEFAULT_CLASS_ANNOTATION;
use crate::cluster::kinds;
use crate::resolve::{Class, Resolved};

/// Annotation of the default class, on snapshot classes.
const DEFAULT_SNAPSHOT_CLASS_ANNOTATION: &str = "snapshot.storage.kubernetes.io/is-default-class";
/// Annotation of the default class, on group snapshot classes.
const DEFAULT_GROUP_CLASS_ANNOTATION: &str = "groupsnapshot.storage.kubernetes.io/is-default-class";

const SNAPSHOT_API: &str = "snapshot.storage.k8s.io/v1";
const GROUP_SNAPSHOT_API: &str = "groupsnapshot.storage.k8s.io/v1";

/// Calls that receive the Secret of a class. A deletion receives the Secret of the creation. csi-provisioner before
/// 6.2 rejects a class with a Secret for modifications.
const SECRET_CALLS: [&str; 3] = ["provisioner", "controller-publish", "controller-expand"];

/// Returns all classes.
pub(super) fn operands(resolved: &Resolved) -> Result<Vec<Operand>, RenderError> {
    let mut operands = Vec::new();
    for class in resolved.storage_classes.items.iter().filter(|class| !class.was_made) {
        let mut operand = Operand::new(Stage::StorageClasses, &storage_class(resolved, class))?;
        operand.handling = Handling {
            create_only: resolved.storage_classes.is_left_to_others(),
            keeps_immutable: class.item.on_immutable_change == ImmutableChange::Refuse,
            insists_on_default: class.insists,
        };
        operands.push(operand);
    }
    for class in &resolved.snapshots.classes {
        operands.push(snapshot_class(resolved, class)?);
    }
    for class in &resolved.snapshots.group_classes {
        operands.push(group_snapshot_class(resolved, class)?);
    }
    for class in &resolved.attributes_classes {
        operands.push(Operand::new(Stage::StorageClasses, &attributes_class(resolved, class))?);
    }
    Ok(operands)
}

/// Returns the metadata of a class, with additions of the spec. `resolve` rejects additions with keys of the
/// operator.
fn class_metadata(
    resolved: &Resolved,
    name: &str,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> ObjectMeta {
    let mut metadata = metadata::owner_annotated(resolved, name.to_owned(), ComponentLabel::Storage);
    for (given, own) in [(labels, &mut metadata.labels), (annotations, &mut metadata.annotations)] {
        if !given.is_empty() {
            own.get_or_insert_default().extend(given.clone());
        }
    }
    metadata
}

fn storage_class(resolved: &Resolved, class: &Class) -> StorageClass {
    let item = &class.item;
    let mut metadata = class_metadata(resolved, &item.name, &item.labels, &item.annotations);
    if class.is_default {
        annotate(&mut metadata, DEFAULT_CLASS_ANNOTATION, "true");
    }

    let mut parameters = item.extra_parameters.clone();
    parameters.insert("csi.storage.k8s.io/fstype".into(), item.fs_type.as_str().into());
    insert_given(&mut parameters, "type", item.volume_type.as_ref());
    insert_given(&mut parameters, "availability", item.availability.as_ref());
    for call in SECRET_CALLS.iter().filter(|_| item.secret_name.is_some()) {
        insert_given(
            &mut parameters,
            &format!("csi.storage.k8s.io/{call}-secret-name"),
            item.secret_name.as_ref(),
        );
        parameters.insert(
            format!("csi.storage.k8s.io/{call}-secret-namespace"),
            resolved.namespace.clone(),
        );
    }

    StorageClass {
        metadata,
        provisioner: resolved.driver_name.clone(),
        parameters: Some(parameters),
        reclaim_policy: Some(item.reclaim_policy.as_str().into()),
        volume_binding_mode: Some(item.volume_binding_mode.as_str().into()),
        allow_volume_expansion: Some(item.allow_volume_expansion),
        mount_options: none_if_empty(&item.mount_options),
        allowed_topologies: none_if_empty(&item.allowed_topologies),
    }
}

fn attributes_class(resolved: &Resolved, item: &VolumeAttributesClassItem) -> VolumeAttributesClass {
    VolumeAttributesClass {
        metadata: class_metadata(resolved, &item.name, &item.labels, &item.annotations),
        driver_name: resolved.driver_name.clone(),
        parameters: Some(item.parameters.clone()),
    }
}

fn snapshot_class(resolved: &Resolved, item: &SnapshotClass) -> Result<Operand, RenderError> {
    let mut metadata = class_metadata(resolved, &item.name, &item.labels, &item.annotations);
    if item.is_default {
        annotate(&mut metadata, DEFAULT_SNAPSHOT_CLASS_ANNOTATION, "true");
    }
    let mut parameters = BTreeMap::from([("force-create".to_owned(), item.force_create.to_string())]);
    if item.kind == SnapshotType::Backup {
        parameters.insert("type".into(), "backup".into());
        insert_given(&mut parameters, "availability", item.availability.as_ref());
        if item.incremental {
            parameters.insert("incremental".into(), "true".into());
        }
        if let Some(seconds) = item.backup_max_duration_seconds_per_gb {
            parameters.insert("backup-max-duration-seconds-per-gb".into(), seconds.to_string());
        }
    }
    let content = json!({
        "driver": resolved.driver_name,
        "deletionPolicy": item.deletion_policy.as_str(),
        "parameters": parameters,
    });
    untyped(SNAPSHOT_API, "VolumeSnapshotClass", metadata, content)
}

fn group_snapshot_class(resolved: &Resolved, item: &GroupSnapshotClass) -> Result<Operand, RenderError> {
    let mut metadata = class_metadata(resolved, &item.name, &item.labels, &item.annotations);
    if item.is_default {
        annotate(&mut metadata, DEFAULT_GROUP_CLASS_ANNOTATION, "true");
    }
    let mut content = json!({
        "driver": resolved.driver_name,
        "deletionPolicy": item.deletion_policy.as_str(),
    });
    if let Some(group_type) = &item.group_type {
        content["parameters"] = json!({"group-type": group_type});
    }
    untyped(GROUP_SNAPSHOT_API, "VolumeGroupSnapshotClass", metadata, content)
}

/// Creates an object of a kind from a CustomResourceDefinition.
fn untyped(api: &str, kind: &'static str, metadata: ObjectMeta, content: Value) -> Result<Operand, RenderError> {
    let listed = kinds::of(api, kind).ok_or_else(|| RenderError::unlisted(kind))?;
    let object = DynamicObject {
        types: Some(TypeMeta {
            api_version: api.into(),
            kind: kind.into(),
        }),
        metadata,
        data: content,
    };
    Ok(Operand::of_kind(Stage::StorageClasses, listed, object))
}

fn annotate(metadata: &mut ObjectMeta, name: &str, value: &str) {
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(name.to_owned(), value.to_owned());
}

fn insert_given(parameters: &mut BTreeMap<String, String>, key: &str, value: Option<&String>) {
    if let Some(value) = value {
        parameters.insert(key.into(), value.clone());
    }
}

fn none_if_empty<T: Clone>(items: &[T]) -> Option<Vec<T>> {
    (!items.is_empty()).then(|| items.to_vec())
}
