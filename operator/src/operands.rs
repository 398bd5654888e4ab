//! The objects that a driver is made of. Pure: the same input gives the same objects, in the order in which they are
//! applied.

use std::fmt;

use k8s_openapi::Resource;
use kube::api::DynamicObject;
use serde::Serialize;

use crate::resolve::Resolved;

mod access;
mod controller;
mod kinds;
mod metadata;
mod node;
mod pod;
mod secret;
mod storage;

pub use kinds::{KINDS, Kind};
pub use metadata::{MANAGED_BY, MANAGED_BY_LABEL, VERSION_LABEL};
pub use secret::{CA_FILE, DriverCredentials};
pub use storage::DEFAULT_CLASS_ANNOTATION;

/// When an object is applied: a stage needs those before it. Removal goes the other way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
}

impl Operand {
    fn new<K: Resource + Serialize>(stage: Stage, object: &K) -> Result<Self, RenderError> {
        let failed = |source| RenderError { kind: K::KIND, source };
        let kind = kinds::of(K::API_VERSION, K::KIND).ok_or_else(|| {
            failed(serde::ser::Error::custom(
                "the kind is not in the list of those that are made",
            ))
        })?;
        let object = serde_json::to_value(object)
            .and_then(serde_json::from_value::<DynamicObject>)
            .map_err(failed)?;
        Ok(Self { stage, kind, object })
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

/// Everything that `resolved` is made of, in the order of its stages.
///
/// Without `credentials` the driver's Secret is left out, and the controller's pods carry no hash of it: they would wait
/// for the Secret. Whoever applies the objects holds the controller back until there are credentials, and gives the last
/// good ones while those at hand do not log in.
pub fn operands(resolved: &Resolved, credentials: Option<&DriverCredentials>) -> Result<Vec<Operand>, RenderError> {
    let mut operands = access::operands(resolved)?;
    if let Some(credentials) = credentials {
        operands.push(Operand::new(Stage::Base, &secret::secret(resolved, credentials))?);
    }
    operands.push(Operand::new(Stage::CsiDriver, &storage::csi_driver(resolved))?);
    operands.push(Operand::new(
        Stage::Controller,
        &controller::deployment(resolved, credentials),
    )?);
    operands.push(Operand::new(Stage::Node, &node::daemon_set(resolved))?);
    for class in &resolved.storage_classes {
        operands.push(Operand::new(
            Stage::StorageClasses,
            &storage::storage_class(resolved, class),
        )?);
    }
    Ok(operands)
}

#[cfg(test)]
mod tests;
