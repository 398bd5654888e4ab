//! What the cluster knows of the driver: CSIDriver and StorageClasses.

use std::collections::BTreeMap;

use cinder_csi_crds::StorageClassItem;
use k8s_openapi::api::storage::v1::{CSIDriver, CSIDriverSpec, StorageClass};

use super::metadata::{self, Component};
use crate::resolve::Resolved;

/// On the StorageClass of claims that name none.
pub const DEFAULT_CLASS_ANNOTATION: &str = "storageclass.kubernetes.io/is-default-class";

/// How the cluster deals with the driver. Every field that the API server would fill in is given, so that a change of it
/// is seen.
pub(super) fn csi_driver(resolved: &Resolved) -> CSIDriver {
    CSIDriver {
        metadata: metadata::remembered(resolved, resolved.driver_name.clone(), Component::Storage),
        spec: CSIDriverSpec {
            attach_required: Some(true),
            pod_info_on_mount: Some(false),
            volume_lifecycle_modes: Some(vec!["Persistent".into()]),
            // The kubelet applies fsGroup on its own to every file system, shared or not: ours are all on block devices.
            fs_group_policy: Some("File".into()),
            storage_capacity: Some(false),
            requires_republish: Some(false),
            // Without `context=` at the first mount, which the driver does not hand on so far.
            se_linux_mount: Some(false),
            ..CSIDriverSpec::default()
        },
    }
}

pub(super) fn storage_class(resolved: &Resolved, item: &StorageClassItem) -> StorageClass {
    let mut metadata = metadata::remembered(resolved, item.name.clone(), Component::Storage);
    if item.is_default {
        metadata
            .annotations
            .get_or_insert_default()
            .insert(DEFAULT_CLASS_ANNOTATION.into(), "true".into());
    }

    let mut parameters = item.extra_parameters.clone();
    parameters.insert("csi.storage.k8s.io/fstype".into(), item.fs_type.as_str().into());
    insert_given(&mut parameters, "type", item.volume_type.as_ref());
    insert_given(&mut parameters, "availability", item.availability.as_ref());

    StorageClass {
        metadata,
        provisioner: resolved.driver_name.clone(),
        parameters: Some(parameters),
        reclaim_policy: Some(item.reclaim_policy.as_str().into()),
        volume_binding_mode: Some(item.volume_binding_mode.as_str().into()),
        mount_options: none_if_empty(&item.mount_options),
        allowed_topologies: none_if_empty(&item.allowed_topologies),
        ..StorageClass::default()
    }
}

fn insert_given(parameters: &mut BTreeMap<String, String>, key: &str, value: Option<&String>) {
    if let Some(value) = value {
        parameters.insert(key.into(), value.clone());
    }
}

fn none_if_empty<T: Clone>(items: &[T]) -> Option<Vec<T>> {
    (!items.is_empty()).then(|| items.to_vec())
}
