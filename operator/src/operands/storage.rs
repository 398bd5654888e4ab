//! What the cluster knows of the driver: the CSIDriver.

use k8s_openapi::api::storage::v1::{CSIDriver, CSIDriverSpec, TokenRequest};

use super::metadata::{self, Component};
use crate::resolve::Resolved;

/// How the cluster deals with the driver. Every field that the API server would fill in is given, so that a change of it
/// is seen.
pub(super) fn csi_driver(resolved: &Resolved) -> CSIDriver {
    let given = &resolved.csi_driver;
    let modes = given.volume_lifecycle_modes.iter();
    CSIDriver {
        metadata: metadata::remembered(resolved, resolved.driver_name.clone(), Component::Storage),
        spec: CSIDriverSpec {
            attach_required: Some(true),
            pod_info_on_mount: Some(given.pod_info_on_mount),
            volume_lifecycle_modes: Some(modes.map(|mode| mode.as_str().into()).collect()),
            fs_group_policy: Some(given.fs_group_policy.as_str().into()),
            storage_capacity: Some(given.storage_capacity),
            requires_republish: Some(given.requires_republish),
            se_linux_mount: Some(given.se_linux_mount),
            node_allocatable_update_period_seconds: given.node_allocatable_update_period_seconds,
            prevent_pod_scheduling_if_missing: given.prevent_pod_scheduling_if_missing,
            token_requests: (!given.token_requests.is_empty()).then(|| {
                let requests = given.token_requests.iter().map(|request| TokenRequest {
                    audience: request.audience.clone(),
                    expiration_seconds: request.expiration_seconds,
                });
                requests.collect()
            }),
            service_account_token_in_secrets: given.service_account_token_in_secrets,
        },
    }
}
