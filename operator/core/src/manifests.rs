// SPDX-License-Identifier: Apache-2.0
//! Renders the objects of a driver. The functions are pure: equal inputs result in equal objects, in the order of
//! their application.

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

/// Order of application. A stage depends on the stages before it. A removal uses the reverse order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Stage {
    /// Service accounts, roles, bindings and the Secret of the driver.
    Base,
    CsiDriver,
    /// The Deployment of the controller.
    Controller,
    /// The DaemonSet of the nodes.
    Node,
    /// StorageClasses. From this stage on, claims can request volumes.
    StorageClasses,
    /// Objects for Prometheus and Grafana.
    Monitoring,
}

/// A complete object to apply, with exactly the fields that the operator owns.
#[derive(Clone, PartialEq)]
pub struct Operand {
    /// Stage in which the object is applied.
    pub stage: Stage,
    pub kind: &'static Kind,
    pub object: DynamicObject,
    pub handling: Handling,
}

/// Exceptions in how the operator maintains an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Handling {
    /// The operator creates the object when it is missing, and never changes it.
    pub create_only: bool,
    /// The operator does not recreate the object when immutable fields differ.
    pub keeps_immutable: bool,
    /// The operator restores the annotation of the default class when another client changes it.
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

    pub fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// The namespace, or `None` for a cluster-scoped object.
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
    /// Omits the content, which may be secret.
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

/// An object could not be serialized.
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
