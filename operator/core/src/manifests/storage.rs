// SPDX-License-Identifier: Apache-2.0
//! The CSIDriver object.

use k8s_openapi::api::storage::v1::{CSIDriver, CSIDriverSpec};

use super::metadata::{self, ComponentLabel};
use crate::resolve::Resolved;

/// Annotation of the CSIDriver object with the namespace of the driver. An operator that is configured for another
/// namespace changes nothing.
pub const OPERAND_NAMESPACE_ANNOTATION: &str = "csi.openstack.org/operand-namespace";

/// Returns the CSIDriver object. It sets every field that has a default in the API server, so that the operator
/// detects changes.
pub(super) fn csi_driver(resolved: &Resolved) -> CSIDriver {
    let settings = &resolved.csi_driver;
    let mut metadata = metadata::owner_annotated(resolved, resolved.driver_name.clone(), ComponentLabel::Storage);
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(OPERAND_NAMESPACE_ANNOTATION.to_owned(), resolved.namespace.clone());
    annotations.extend(resolved.records.clone());
    CSIDriver {
        metadata,
        spec: CSIDriverSpec {
            attach_required: Some(true),
            pod_info_on_mount: Some(false),
            // The driver does not support ephemeral inline volumes.
            volume_lifecycle_modes: Some(vec!["Persistent".into()]),
            fs_group_policy: Some(settings.fs_group_policy.as_str().into()),
            storage_capacity: Some(settings.storage_capacity),
            requires_republish: Some(false),
            se_linux_mount: Some(settings.se_linux_mount),
            node_allocatable_update_period_seconds: settings.node_allocatable_update_period_seconds,
            prevent_pod_scheduling_if_missing: settings.prevent_pod_scheduling_if_missing,
            ..CSIDriverSpec::default()
        },
    }
}
