// SPDX-License-Identifier: Apache-2.0
//! Renders a spec to the desired objects.

use cinder_csi_crds::CinderCSIDriver;

use super::{
    decision::PodsView,
    held::Holds,
    pod_templates::{Existing, Renderer, from_operand},
};
use crate::{
    cluster::{Key, kind},
    manifests::{DriverCredentials, RenderError, render},
    plan::Desired,
    problem::Problem,
    reasons::Degraded,
    resolve::{Environment, Resolved, resolve_parts},
    rollout::{Gate, Release},
};

/// The desired objects of a driver.
#[derive(Debug)]
pub(super) struct Intent {
    /// The spec with all defaults.
    pub(super) resolved: Resolved,
    /// The desired objects that can be created now.
    pub(super) desired: Vec<Desired>,
    /// Whether all desired objects are known. They depend on credentials and zones.
    pub(super) is_complete: bool,
    /// Whether there are credentials for the controller.
    pub(super) has_credentials: bool,
    /// The parts of the spec that cannot be carried out.
    pub(super) problems: Vec<Problem>,
    /// The objects that keep their last applied content.
    pub(super) holds: Holds,
    /// The releases of the workloads, and whether an update may begin.
    pub(super) gate: Gate,
    pub(super) pods: PodsView,
}

impl Intent {
    pub(super) fn keys(&self) -> Vec<Key> {
        self.desired.iter().map(|desired| desired.key.clone()).collect()
    }
}

/// Renders the spec for this cluster, and collects the parts that cannot be carried out.
pub(super) fn resolve_intent(
    driver: &CinderCSIDriver,
    environment: &Environment,
    credentials: Option<&DriverCredentials>,
    existing: Existing<'_>,
) -> Result<Intent, RenderError> {
    let (resolved, spec_holds) = resolve_parts(driver, environment);
    let mut problems: Vec<Problem> = spec_holds.iter().map(|hold| hold.problem.clone()).collect();
    let (operands, overridden) = render(&resolved, credentials)?;
    problems.extend(failed_overrides(&overridden.failed));
    let scopes = spec_holds.into_iter().map(|hold| hold.scope).collect();
    let holds = Holds::new(scopes, &overridden, &resolved.overrides);
    let mut desired = operands.iter().map(from_operand).collect::<Result<Vec<_>, _>>()?;
    let renderer = Renderer {
        driver,
        environment,
        credentials,
        existing,
    };
    let target = Release {
        version: resolved.version.clone(),
        inputs: Some(resolved.inputs.clone()),
    };
    let (gate, of_controller) = renderer.choose(target, &mut desired, &holds)?;
    desired.retain(|desired| !waits(desired.key.kind, &resolved, credentials.is_some()));
    let of_controller = of_controller.as_ref().unwrap_or(&resolved);
    Ok(Intent {
        pods: PodsView::of(of_controller, environment, overridden),
        desired,
        is_complete: credentials.is_some() && resolved.topology.is_decided,
        has_credentials: credentials.is_some(),
        problems,
        holds,
        gate,
        resolved,
    })
}

fn failed_overrides(failed: &[String]) -> Option<Problem> {
    (!failed.is_empty()).then(|| Problem {
        reason: Degraded::OverrideFailed,
        message: format!(
            "these patches of spec.overrides fail, and their objects keep their last applied content: {}. Fix them or remove them",
            failed.join("; ")
        ),
    })
}

/// Whether a workload is not created yet. Without credentials the controller would only fail, and one that runs with older credentials must
/// not be touched. Controller and nodes wait until it is known whether zones are used.
fn waits(kind: &str, resolved: &Resolved, has_credentials: bool) -> bool {
    match kind {
        kind::DEPLOYMENT => !has_credentials || !resolved.topology.is_decided,
        kind::DAEMON_SET => !resolved.topology.is_decided,
        _ => false,
    }
}
