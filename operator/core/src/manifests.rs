// SPDX-License-Identifier: Apache-2.0
//! The objects that a driver is made of. Pure: the same input gives the same objects, in the order in which they are
//! applied.

use std::fmt;

use k8s_openapi::Resource;
use kube::api::DynamicObject;
use serde::{Deserialize, Serialize};

use crate::cluster::{Key, Kind, kind, kinds};
use crate::resolve::Resolved;

mod access;
mod classes;
mod controller;
mod disruption;
mod metadata;
mod monitoring;
mod network_policy;
mod node;
mod overrides;
mod place;
mod pod;
mod registrar;
mod secret;
mod sidecars;
mod storage;

pub use access::controller_account_of;
use metadata::ComponentLabel;
pub use overrides::Overridden;
pub use place::Place;
pub use pod::DRIVER_PORT as DRIVER_PORT_NAME;
pub use secret::DriverCredentials;
pub use secret::{cloud_config_name, cloud_config_name_of};
pub use storage::OPERAND_NAMESPACE_ANNOTATION;

/// When an object is applied: a stage needs those before it. Removal goes the other way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Stage {
    /// Service accounts, roles, bindings, the driver's Secret.
    Base,
    /// The CSIDriver object.
    CsiDriver,
    /// The controller's Deployment.
    Controller,
    /// The DaemonSet of the nodes.
    Node,
    /// StorageClasses: from here on volumes are asked for.
    StorageClasses,
    /// What Prometheus and Grafana are given.
    Monitoring,
}

/// An object to apply: complete, with every field that the operator owns and no other.
#[derive(Clone, PartialEq)]
pub struct Operand {
    /// When it is applied.
    pub stage: Stage,
    /// What it is.
    pub kind: &'static Kind,
    /// The object itself.
    pub object: DynamicObject,
    /// What is special about keeping it.
    pub handling: Handling,
}

/// What is special about keeping an object as it should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Handling {
    /// It is made when it is missing, and never changed.
    pub create_only: bool,
    /// It is not made anew when fields differ that cannot be changed.
    pub keeps_immutable: bool,
    /// The mark of the default class is put back when somebody else changes it.
    pub insists_on_default: bool,
}

impl Operand {
    fn new<K: Resource + Serialize>(stage: Stage, object: &K) -> Result<Self, RenderError> {
        let failed = |source| RenderError { kind: K::KIND, source };
        let kind = kinds::of(K::API_VERSION, K::KIND).ok_or_else(|| RenderError::unlisted(K::KIND))?;
        let object = serde_json::to_value(object)
            .and_then(serde_json::from_value::<DynamicObject>)
            .map_err(failed)?;
        Ok(Self::of_kind(stage, kind, object))
    }

    fn of_kind(stage: Stage, kind: &'static Kind, object: DynamicObject) -> Self {
        Self {
            stage,
            kind,
            object,
            handling: Handling::default(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// Its namespace; none for an object of the cluster.
    pub fn namespace(&self) -> Option<&str> {
        self.object.metadata.namespace.as_deref()
    }
}

impl From<&Operand> for Key {
    fn from(operand: &Operand) -> Self {
        Self::new(operand.kind.kind, operand.namespace(), operand.name())
    }
}

impl fmt::Debug for Operand {
    /// Without the content, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:?})", self.stage)
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace() {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind.kind, self.name()),
            None => write!(f, "{} {}", self.kind.kind, self.name()),
        }
    }
}

/// An object could not be put into the form in which it is sent.
#[derive(Debug, thiserror::Error)]
#[error("make the {kind}: {source}")]
pub struct RenderError {
    kind: &'static str,
    source: serde_json::Error,
}

impl RenderError {
    pub(crate) fn new(kind: &'static str, source: serde_json::Error) -> Self {
        Self { kind, source }
    }

    fn unlisted(kind: &'static str) -> Self {
        let source = serde::ser::Error::custom("the kind is not in the list of those that are made");
        Self { kind, source }
    }
}

/// The Deployment and the DaemonSet of a driver.
pub fn workload_keys(namespace: &str, name_prefix: &str) -> [Key; 2] {
    let key = |kind, component: ComponentLabel| {
        Key::new(kind, Some(namespace), &format!("{name_prefix}-{}", component.as_str()))
    };
    [
        key(kind::DEPLOYMENT, ComponentLabel::Controller),
        key(kind::DAEMON_SET, ComponentLabel::Node),
    ]
}

/// Everything that `resolved` is made of, in the order of its stages.
///
/// Without `credentials` the driver's Secret is left out, and the controller's pods carry no hash of it: they would wait
/// for the Secret. Whoever applies the objects holds the controller back until there are credentials, and gives the last
/// good ones while those at hand do not log in.
pub fn operands(resolved: &Resolved, credentials: Option<&DriverCredentials>) -> Result<Vec<Operand>, RenderError> {
    Ok(render(resolved, credentials)?.0)
}

/// The objects, and the result of `spec.overrides`. An object of [`Overridden::held`] lacks a patch and must not be applied.
pub fn render(
    resolved: &Resolved,
    credentials: Option<&DriverCredentials>,
) -> Result<(Vec<Operand>, Overridden), RenderError> {
    let mut operands = untouched(resolved, credentials)?;
    let overridden = overrides::apply(&resolved.overrides, &resolved.restrictions, &mut operands);
    Ok((operands, overridden))
}

/// As the operator makes them on its own.
fn untouched(resolved: &Resolved, credentials: Option<&DriverCredentials>) -> Result<Vec<Operand>, RenderError> {
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
