// SPDX-License-Identifier: Apache-2.0
//! What a drain of nodes may take away.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::metadata::{self, ComponentLabel};
use crate::resolve::Resolved;

/// The budget of the controller's pods; none for a single one, which would keep its node from being drained.
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
            // A pod that serves nobody can go: else a controller that does not start would hold up the drain that could mend it.
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".into()),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    })
}
