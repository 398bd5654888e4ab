// SPDX-License-Identifier: Apache-2.0
//! Renders the objects of a driver. The functions are pure: equal inputs result in equal objects, in the order of
//! their application.

use crate::cluster::{Key, kind};
use crate::resolve::Resolved;

mod access;
mod classes;
mod controller;
mod disruption;
mod metadata;
mod monitoring;
mod network_policy;
mod node;
mod operand;
mod overrides;
mod paths;
mod place;
mod pod;
mod registrar;
mod secret;
mod sidecars;
mod storage;

pub use access::controller_account_of;
use metadata::ComponentLabel;
pub use operand::{Handling, Operand, RenderError, Stage};
pub use overrides::Overridden;
pub use place::Place;
pub use pod::DRIVER_PORT as DRIVER_PORT_NAME;
pub use secret::DriverCredentials;
pub use secret::{cloud_config_name, cloud_config_name_of};
pub use storage::OPERAND_NAMESPACE_ANNOTATION;

/// Returns the keys of the driver's Deployment and DaemonSet.
pub fn workload_keys(namespace: &str, name_prefix: &str) -> [Key; 2] {
    let key = |kind, component: ComponentLabel| {
        Key::new(kind, Some(namespace), &format!("{name_prefix}-{}", component.as_str()))
    };
    [
        key(kind::DEPLOYMENT, ComponentLabel::Controller),
        key(kind::DAEMON_SET, ComponentLabel::Node),
    ]
}

/// Renders all objects of `resolved`, in the order of their stages.
///
/// Without `credentials`, the driver's Secret is omitted, and the controller pods have no hash of it. They would wait
/// for the Secret. The caller does not apply the controller until credentials exist. While login with new credentials
/// fails, the caller passes the last working ones.
pub fn operands(resolved: &Resolved, credentials: Option<&DriverCredentials>) -> Result<Vec<Operand>, RenderError> {
    Ok(render(resolved, credentials)?.0)
}

/// Renders all objects and applies `spec.overrides`. An object in [`Overridden::held`] lacks a patch and must not be
/// applied.
pub fn render(
    resolved: &Resolved,
    credentials: Option<&DriverCredentials>,
) -> Result<(Vec<Operand>, Overridden), RenderError> {
    let mut operands = render_base(resolved, credentials)?;
    let overridden = overrides::apply(&resolved.overrides, &resolved.restrictions, &mut operands);
    Ok((operands, overridden))
}

/// Renders the objects without overrides.
fn render_base(resolved: &Resolved, credentials: Option<&DriverCredentials>) -> Result<Vec<Operand>, RenderError> {
    let mut operands = access::operands(resolved)?;
    if let Some(credentials) = credentials {
        operands.push(Operand::new(Stage::Base, &secret::secret(resolved, credentials))?);
    }
    operands.push(Operand::new(Stage::CsiDriver, &storage::csi_driver(resolved))?);
    let controller = controller::deployment(resolved, credentials);
    let node = node::daemon_set(resolved);
    if let Some(budget) = disruption::budget(resolved) {
        operands.push(Operand::new(Stage::Controller, &budget)?);
    }
    for (stage, policy) in network_policy::policies(resolved) {
        operands.push(Operand::new(stage, &policy)?);
    }
    operands.push(Operand::new(Stage::Controller, &controller)?);
    operands.push(Operand::new(Stage::Node, &node)?);
    operands.extend(classes::operands(resolved)?);
    if let (Some(controller), Some(node)) = (&controller.spec, &node.spec) {
        operands.extend(monitoring::operands(resolved, &controller.template, &node.template)?);
    }
    Ok(operands)
}

#[cfg(test)]
mod tests;
