// SPDX-License-Identifier: Apache-2.0
//! A rendered object with its place in the order of application.

use std::fmt;

use k8s_openapi::Resource;
use kube::api::DynamicObject;
use serde::{Deserialize, Serialize};

use crate::cluster::{Key, Kind, kinds};

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
    pub(super) fn new<K: Resource + Serialize>(stage: Stage, object: &K) -> Result<Self, RenderError> {
        let failed = |source| RenderError { kind: K::KIND, source };
        let kind = kinds::of(K::API_VERSION, K::KIND).ok_or_else(|| RenderError::unlisted(K::KIND))?;
        let object = serde_json::to_value(object)
            .and_then(serde_json::from_value::<DynamicObject>)
            .map_err(failed)?;
        Ok(Self::of_kind(stage, kind, object))
    }

    pub(super) fn of_kind(stage: Stage, kind: &'static Kind, object: DynamicObject) -> Self {
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

    pub(super) fn unlisted(kind: &'static str) -> Self {
        let source = serde::ser::Error::custom("the kind is not in the list of those that are made");
        Self { kind, source }
    }
}
