//! What has to be written so that the cluster is as desired? A pure function: nothing here talks to anybody.
//!
//! At rest the answer is «nothing». A write is planned when an object is missing, when the intent changed (its hash is kept in
//! an annotation), or when an owned field of the live object says something else (drift). An object that belongs to somebody
//! else is never written; it blocks its own place and the rest goes on, with one exception: when the CSIDriver object is
//! somebody else's, another installation of this driver runs here, and everything stays as it is.

mod owned;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    objects::{FIELD_MANAGER, Key, Owner, is_applied, kind, maker_of},
    operands::{DEFAULT_CLASS_ANNOTATION, Operand, Stage},
};

pub(crate) use owned::differences;

/// Annotation with the hash of what was last applied. It tells that a field is no longer wanted, which the live object alone
/// cannot.
pub const APPLIED_HASH: &str = "csi.openstack.org/applied-hash";

/// How many changed fields an event names.
const NAMED_FIELDS: usize = 5;

/// One object as it should be.
#[derive(Debug, Clone, PartialEq)]
pub struct Desired {
    /// Which object.
    pub key: Key,
    /// When it is written: a stage needs those before it.
    pub stage: Stage,
    /// All fields that the operator wants to own, the hash annotation included.
    pub object: Value,
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
            hash,
        }
    }

    /// An operand, ready to be compared.
    pub fn from_operand(operand: &Operand) -> Result<Self, serde_json::Error> {
        Ok(Self::new(
            Key::from(operand),
            operand.stage,
            serde_json::to_value(&operand.object)?,
        ))
    }

    /// The hash of the intent.
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

/// A short hash of the whole intent. Values of a Secret are left out: the hash is readable by more people than they are,
/// and a changed value is seen by comparing.
fn intent_hash(kind: &str, object: &Value) -> String {
    let mut object = object.clone();
    if kind == self::kind::SECRET
        && let Some(data) = object.get_mut("data").and_then(Value::as_object_mut)
    {
        data.values_mut().for_each(|value| *value = Value::Null);
    }
    short_hash(object.to_string().as_bytes())
}

/// The first 16 hexadecimal digits of the SHA-256 sum.
pub(crate) fn short_hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .take(8)
        .fold(String::new(), |mut hex, byte| {
            // Writing to a string cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// The object is not there.
    Create(Desired),
    /// The intent changed: a new spec or a new version of the operator.
    Update {
        /// What is wanted.
        desired: Desired,
        /// The uid of the object that is there.
        uid: String,
    },
    /// Somebody changed owned fields.
    Repair {
        /// What is wanted.
        desired: Desired,
        /// The uid of the object that is there.
        uid: String,
        /// Paths of some of the changed fields.
        fields: Vec<String>,
    },
    /// Fields differ that Kubernetes does not let anybody change: delete and create.
    Recreate {
        /// What is wanted.
        desired: Desired,
        /// The uid of the object that is there.
        uid: String,
        /// Paths of those fields.
        fields: Vec<String>,
        /// Annotations that somebody else put on the object and that the new one is to have too.
        kept: BTreeMap<String, String>,
    },
    /// An object of ours is no longer wanted.
    Prune {
        /// Which.
        key: Key,
        /// Its uid.
        uid: String,
    },
}

/// Something that the operator will not do on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// The name is taken by an object that is not ours.
    Foreign {
        /// Which object.
        key: Key,
        /// Who seems to have made it.
        maker: String,
    },
    /// Fields differ that cannot be changed, and recreating the object could harm mounted volumes or running pods.
    Immutable {
        /// Which object.
        key: Key,
        /// Paths of those fields.
        fields: Vec<String>,
    },
}

/// What is to be done and what is in the way.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Writes, in this order.
    pub actions: Vec<Action>,
    /// What stays undone until somebody helps.
    pub obstacles: Vec<Obstacle>,
}

/// Differences that an apply could not remove, by object: the hash of the intent and the paths. Writing again would change
/// nothing, so it is not tried until one of the two is different.
pub type Unrepairable = BTreeMap<Key, (String, Vec<String>)>;

/// Plans the writes. `prune` is false when the desired objects are known to be incomplete.
pub fn plan(
    owner: &Owner,
    desired: &[Desired],
    live: &BTreeMap<Key, Value>,
    unrepairable: &Unrepairable,
    prune: bool,
) -> Plan {
    let mut plan = Plan::default();
    for wanted in desired {
        match live.get(&wanted.key) {
            None => plan.actions.push(Action::Create(wanted.clone())),
            Some(there) if !owner.owns(there) => {
                plan.obstacles.push(Obstacle::Foreign {
                    key: wanted.key.clone(),
                    maker: maker_of(there),
                });
            }
            Some(there) => plan_existing(&mut plan, wanted, there, unrepairable),
        }
    }
    let is_foreign_driver =
        |obstacle: &Obstacle| matches!(obstacle, Obstacle::Foreign { key, .. } if key.kind == kind::CSI_DRIVER);
    if plan.obstacles.iter().any(is_foreign_driver) {
        plan.actions.clear();
        return plan;
    }
    if prune {
        let wanted: BTreeSet<&Key> = desired.iter().map(|desired| &desired.key).collect();
        let orphans = live
            .iter()
            .filter(|(key, there)| !wanted.contains(key) && owner.owns(there) && !is_being_deleted(there));
        plan.actions.extend(orphans.map(|(key, there)| Action::Prune {
            key: key.clone(),
            uid: uid_of(there),
        }));
    }
    plan
}

fn plan_existing(plan: &mut Plan, wanted: &Desired, there: &Value, unrepairable: &Unrepairable) {
    let uid = uid_of(there);
    if is_being_deleted(there) {
        // It is on its way out; the event of its end brings the next reconcile, which makes it anew.
        return;
    }
    let fixed = changed_immutables(wanted, there);
    if !fixed.is_empty() {
        let (desired, fields) = (wanted.clone(), fixed);
        match wanted.key.kind {
            kind::STORAGE_CLASS | kind::ROLE_BINDING | kind::CLUSTER_ROLE_BINDING => {
                let kept = kept_annotations(&desired.object, there);
                plan.actions.push(Action::Recreate {
                    desired,
                    uid,
                    fields,
                    kept,
                });
            }
            _ => plan.obstacles.push(Obstacle::Immutable {
                key: wanted.key.clone(),
                fields,
            }),
        }
        return;
    }
    let applied = there["metadata"]["annotations"][APPLIED_HASH].as_str();
    let fields = differences(&wanted.object, there, NAMED_FIELDS);
    // One that came back from a backup is as it should be and yet not known to be ours: nothing would ever take it away.
    let is_restored = !is_applied(there);
    if fields.is_empty() && !is_restored {
        return;
    }
    if is_restored || applied.is_some_and(|applied| applied != wanted.hash) {
        plan.actions.push(Action::Update {
            desired: wanted.clone(),
            uid,
        });
    } else if unrepairable.get(&wanted.key) != Some(&(wanted.hash.clone(), fields.clone())) {
        plan.actions.push(Action::Repair {
            desired: wanted.clone(),
            uid,
            fields,
        });
    }
}

/// The mark of the default StorageClass where an administrator has set it, and not the spec: claims without a class must not
/// lose theirs because the class is made anew.
fn kept_annotations(wanted: &Value, there: &Value) -> BTreeMap<String, String> {
    let value = |object: &Value| {
        let value = object["metadata"]["annotations"][DEFAULT_CLASS_ANNOTATION].as_str();
        value.map(str::to_owned)
    };
    let path = format!("f:{DEFAULT_CLASS_ANNOTATION}");
    let is_ours = |entry: &Value| {
        entry["manager"] == FIELD_MANAGER
            && entry["operation"] == "Apply"
            && entry["fieldsV1"]["f:metadata"]["f:annotations"].get(&path).is_some()
    };
    let managers = there["metadata"]["managedFields"].as_array();
    if value(wanted).is_some() || managers.into_iter().flatten().any(is_ours) {
        return BTreeMap::new();
    }
    value(there)
        .map(|value| BTreeMap::from([(DEFAULT_CLASS_ANNOTATION.to_owned(), value)]))
        .unwrap_or_default()
}

/// Whether a live object is on its way out.
pub(crate) fn is_being_deleted(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// The uid of a live object.
pub(crate) fn uid_of(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

/// The paths of fields that differ and that the API server refuses to change.
fn changed_immutables(wanted: &Desired, there: &Value) -> Vec<String> {
    let fields: &[(&str, Value)] = match wanted.key.kind {
        kind::STORAGE_CLASS => &[
            ("/provisioner", Value::Null),
            ("/parameters", Value::Null),
            ("/reclaimPolicy", json!("Delete")),
            ("/volumeBindingMode", json!("Immediate")),
        ],
        kind::CSI_DRIVER => &[
            ("/spec/attachRequired", json!(true)),
            ("/spec/volumeLifecycleModes", json!(["Persistent"])),
        ],
        kind::DEPLOYMENT | kind::DAEMON_SET => &[("/spec/selector", Value::Null)],
        kind::ROLE_BINDING | kind::CLUSTER_ROLE_BINDING => &[("/roleRef", Value::Null)],
        _ => &[],
    };
    let value = |object: &Value, path: &str, default: &Value| match object.pointer(path) {
        None | Some(Value::Null) => default.clone(),
        Some(Value::Object(map)) if map.is_empty() => default.clone(),
        Some(value) => value.clone(),
    };
    fields
        .iter()
        .filter(|(path, default)| value(&wanted.object, path, default) != value(there, path, default))
        .map(|(path, _)| path.trim_start_matches('/').replace('/', "."))
        .collect()
}

#[cfg(test)]
mod tests;
