// SPDX-License-Identifier: Apache-2.0
//! Desired state of an object, with the hash of the intent, and basic facts about the live object.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    cluster::{Key, kind},
    manifests::{Handling, Operand, Stage},
    text::short_hash,
};

/// Annotation with the hash of the last applied intent. Without it, the operator would not notice that a field was
/// removed from the intent.
pub const APPLIED_HASH: &str = "csi.openstack.org/applied-hash";

/// The desired state of one object.
#[derive(Debug, Clone, PartialEq)]
pub struct Desired {
    pub key: Key,
    /// Stage in which the object is written. A stage depends on the stages before it.
    pub stage: Stage,
    /// All fields that the operator owns, including the hash annotation.
    pub object: Value,
    /// Exceptions in how the operator maintains the object.
    pub handling: Handling,
    hash: String,
}

impl Desired {
    /// Adds the hash of the intent to the object.
    pub fn new(key: Key, stage: Stage, mut object: Value) -> Self {
        let hash = intent_hash(key.kind, &object);
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
            if let Some(annotations) = annotations.as_object_mut() {
                annotations.insert(APPLIED_HASH.to_owned(), Value::from(hash.clone()));
            }
        }
        Self {
            key,
            stage,
            object,
            handling: Handling::default(),
            hash,
        }
    }

    /// Creates the desired state with `hash` as its annotation.
    pub(super) fn with_known_hash(key: Key, stage: Stage, handling: Handling, object: Value, hash: String) -> Self {
        Self {
            key,
            stage,
            object,
            handling,
            hash,
        }
    }

    /// Prepares a rendered object for the comparison.
    pub fn from_operand(operand: &Operand) -> Result<Self, serde_json::Error> {
        let object = serde_json::to_value(&operand.object)?;
        Ok(Self {
            handling: operand.handling,
            ..Self::new(Key::from(operand), operand.stage, object)
        })
    }

    /// Returns the same object with other content.
    #[must_use]
    pub fn with(&self, object: Value) -> Self {
        Self {
            handling: self.handling,
            ..Self::new(self.key.clone(), self.stage, object)
        }
    }

    /// Returns the same intent without labels and annotations of other clients.
    #[must_use]
    pub fn without(&self, kept: &RetainedMetadata) -> Self {
        let mut own = self.clone();
        for (part, names) in [("annotations", &kept.annotations), ("labels", &kept.labels)] {
            if let Some(remaining) = own.object["metadata"][part].as_object_mut() {
                remaining.retain(|name, _| !names.contains_key(name));
            }
        }
        own
    }

    /// Whether this content was the last one applied to the live object.
    pub fn is_applied_to(&self, live: &Value) -> bool {
        live["metadata"]["annotations"][APPLIED_HASH].as_str() == Some(self.hash.as_str())
    }

    /// The hash of the intent.
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

/// Returns a short hash of the whole intent. Values of a Secret are excluded: more users can read the hash than the
/// values, and a comparison detects changed values.
fn intent_hash(kind: &str, object: &Value) -> String {
    let mut object = object.clone();
    if kind == self::kind::SECRET
        && let Some(data) = object.get_mut("data").and_then(Value::as_object_mut)
    {
        data.values_mut().for_each(|value| *value = Value::Null);
    }
    short_hash(object.to_string(), 16)
}

/// Labels and annotations of other clients on a recreated object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetainedMetadata {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl RetainedMetadata {
    pub fn is_empty(&self) -> bool {
        self.annotations.is_empty() && self.labels.is_empty()
    }

    /// Returns the labels and annotations that an object lacks.
    #[must_use]
    pub fn missing_in(&self, object: &Value) -> Self {
        let missing = |part: &str, all: &BTreeMap<String, String>| {
            let mut missing = all.clone();
            missing.retain(|name, _| object["metadata"][part].get(name.as_str()).is_none());
            missing
        };
        Self {
            annotations: missing("annotations", &self.annotations),
            labels: missing("labels", &self.labels),
        }
    }
}

/// Whether a live object is on its way out.
pub fn is_being_deleted(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// The uid of a live object.
pub fn uid_of(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}
