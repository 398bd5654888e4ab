// SPDX-License-Identifier: Apache-2.0
//! Limits the disruption by node drains.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::metadata::{self, ComponentLabel};
use crate::resolve::Resolved;

/// Returns the budget of the controller pods. `None` for a single pod, whose budget would block the drain of its
/// node.
pub(super) fn budget(resolved: &Resolved) -> Option<PodDisruptionBudget> {
    (resolved.controller.replicas > 1).then(|| PodDisruptionBudget {
        metadata: metadata::namespaced(
            resolved,
            format!("{}-controller", resolved.name_prefix),
            ComponentLabel::Controller,
        ),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(metadata::selector(resolved, ComponentLabel::Controller)),
            // Pods that are not ready can be evicted. Otherwise a failing controller would block a drain that could
            // repair it.
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".into()),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    })
}
