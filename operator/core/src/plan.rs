// SPDX-License-Identifier: Apache-2.0
//! What has to be written so that the cluster is as desired? A pure function: nothing here talks to anybody.
//!
//! At rest the answer is «nothing». A write is planned when an object is missing, when the intent changed (its hash is kept in
//! an annotation), or when an owned field of the live object says something else (drift). An object that belongs to somebody
//! else is never written; it blocks its own place and the rest goes on, with one exception: when the CSIDriver object is
//! somebody else's, another installation of this driver runs here, and everything stays as it is.

pub mod changes;
mod last_applied;
mod owned;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    cluster::{
        DEFAULT_CLASS_ANNOTATION, Key, LostNodes, Owner, is_applied, kind, maker_of, own_fields, owns_annotation,
    },
    manifests::{Handling, Operand, Stage},
    text::short_hash,
};

pub use last_applied::{LAST_APPLIED_SUFFIX, LastApplied, RecordedObject, is_base};
pub use owned::differences;

/// Annotation with the hash of what was last applied. It tells that a field is no longer wanted, which the live object alone
/// cannot.
pub const APPLIED_HASH: &str = "csi.openstack.org/applied-hash";

/// How many changed fields an event names.
const NAMED_FIELDS: usize = 5;

/// After so long what an apply could not change is tried again: a webhook that was in the way may be gone.
const TRY_AGAIN_AFTER: Duration = Duration::from_mins(10);

/// One object as it should be.
#[derive(Debug, Clone, PartialEq)]
pub struct Desired {
    /// Which object.
    pub key: Key,
    /// When it is written: a stage needs those before it.
    pub stage: Stage,
    /// All fields that the operator wants to own, the hash annotation included.
    pub object: Value,
    /// What is special about keeping it.
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

    /// An object with the annotation for `hash` in its content.
    fn with_known_hash(key: Key, stage: Stage, handling: Handling, object: Value, hash: String) -> Self {
        Self {
            key,
            stage,
            object,
            handling,
            hash,
        }
    }

    /// An operand, ready to be compared.
    pub fn from_operand(operand: &Operand) -> Result<Self, serde_json::Error> {
        let object = serde_json::to_value(&operand.object)?;
        Ok(Self {
            handling: operand.handling,
            ..Self::new(Key::from(operand), operand.stage, object)
        })
    }

    /// The same object with other content.
    #[must_use]
    pub fn with(&self, object: Value) -> Self {
        Self {
            handling: self.handling,
            ..Self::new(self.key.clone(), self.stage, object)
        }
    }

    /// The same intent, but for labels and annotations that are left to others.
    #[must_use]
    pub fn without(&self, kept: &Kept) -> Self {
        let mut own = self.clone();
        for (part, names) in [("annotations", &kept.annotations), ("labels", &kept.labels)] {
            if let Some(wanted) = own.object["metadata"][part].as_object_mut() {
                wanted.retain(|name, _| !names.contains_key(name));
            }
        }
        own
    }

    /// Whether the live object was applied with this content last.
    pub fn is_applied_to(&self, live: &Value) -> bool {
        live["metadata"]["annotations"][APPLIED_HASH].as_str() == Some(self.hash.as_str())
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
    short_hash(object.to_string(), 16)
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
        /// The version of the object that was looked at.
        resource_version: String,
        /// What somebody else put on the object and the new one is to have too.
        kept: Kept,
    },
    /// An object of ours is no longer wanted.
    Prune {
        /// Which.
        key: Key,
        /// Its uid.
        uid: String,
    },
}

impl Action {
    /// The object that it is about.
    pub fn key(&self) -> &Key {
        match self {
            Self::Create(desired)
            | Self::Update { desired, .. }
            | Self::Repair { desired, .. }
            | Self::Recreate { desired, .. } => &desired.key,
            Self::Prune { key, .. } => key,
        }
    }
}

/// What others put on an object that is made anew.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Their annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Their labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl Kept {
    /// Whether nobody put anything there.
    pub fn is_empty(&self) -> bool {
        self.annotations.is_empty() && self.labels.is_empty()
    }

    /// What an object does not have.
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
    /// Fields differ that cannot be changed, and the spec does not want the object to be made anew.
    Refused {
        /// Which object.
        key: Key,
        /// Paths of those fields.
        fields: Vec<String>,
    },
    /// Fields differ that cannot be changed, and the object is made anew as soon as that harms nobody.
    Waiting {
        /// Which object.
        key: Key,
        /// Paths of those fields.
        fields: Vec<String>,
        /// What is in the way.
        what: String,
    },
    /// The DaemonSet would lose nodes that have volumes of the driver attached.
    NodesInUse {
        /// The DaemonSet.
        key: Key,
        /// The nodes.
        lost: LostNodes,
    },
}

/// The limits of a plan.
#[derive(Debug, Clone, Default)]
pub struct PlanScope {
    /// Whether objects that are not desired are pruned. The desired objects must be complete.
    pub prune: bool,
    /// Objects that are neither written nor pruned.
    pub untouched: BTreeSet<Key>,
    /// Objects that were applied before. They are recreated even where no object may be added.
    pub installed: BTreeSet<Key>,
}

/// What is to be done and what is in the way.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Writes, in this order.
    pub actions: Vec<Action>,
    /// What stays undone until somebody helps.
    pub obstacles: Vec<Obstacle>,
    /// What earlier applies left and is still so.
    pub left: Unapplied,
}

/// Differences that an apply could not remove, by object. Writing again would change nothing, so it is not tried until the intent or
/// the differences are others, or some time has passed.
pub type Unapplied = BTreeMap<Key, UnappliedFields>;

/// What an apply left other than it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnappliedFields {
    /// The hash of the intent.
    pub hash: String,
    /// Paths of the fields.
    pub fields: Vec<String>,
    /// When it was tried last.
    pub tried: Instant,
}

/// A write that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedWrite {
    /// Of which object.
    pub key: Key,
    /// What the API server answered, without anything that changes from try to try.
    pub message: String,
}

/// Plans the writes. `now` is the present of [`UnappliedFields::tried`].
pub fn plan(
    owner: &Owner,
    desired: &[Desired],
    live: &BTreeMap<Key, Value>,
    unapplied: &Unapplied,
    scope: &PlanScope,
    now: Instant,
) -> Plan {
    let mut plan = Plan::default();
    for wanted in desired.iter().filter(|desired| !scope.untouched.contains(&desired.key)) {
        match live.get(&wanted.key) {
            None => plan.actions.push(Action::Create(wanted.clone())),
            Some(there) if !owner.owns(there) => {
                plan.obstacles.push(Obstacle::Foreign {
                    key: wanted.key.clone(),
                    maker: maker_of(there),
                });
            }
            Some(there) => plan_existing(&mut plan, wanted, there, unapplied, now),
        }
    }
    let is_foreign_driver =
        |obstacle: &Obstacle| matches!(obstacle, Obstacle::Foreign { key, .. } if key.kind == kind::CSI_DRIVER);
    if plan.obstacles.iter().any(is_foreign_driver) {
        // The operator's own CSIDriver without its marks still shows that this installation is the one that runs.
        let mut drivers = live.iter().filter(|(key, _)| key.kind == kind::CSI_DRIVER);
        let is_unmarked = drivers.any(|(_, there)| is_applied(there));
        plan.actions.retain(|action| match action {
            Action::Create(desired) => is_unmarked && scope.installed.contains(&desired.key),
            Action::Update { .. } | Action::Repair { .. } => true,
            Action::Recreate { .. } | Action::Prune { .. } => false,
        });
        return plan;
    }
    if scope.prune {
        let wanted: BTreeSet<&Key> = desired.iter().map(|desired| &desired.key).collect();
        let orphans = live.iter().filter(|(key, there)| {
            let is_kept = wanted.contains(key) || scope.untouched.contains(key);
            !is_kept && owner.owns(there) && !is_being_deleted(there)
        });
        plan.actions.extend(orphans.map(|(key, there)| Action::Prune {
            key: key.clone(),
            uid: uid_of(there),
        }));
    }
    plan
}

fn plan_existing(plan: &mut Plan, wanted: &Desired, there: &Value, unapplied: &Unapplied, now: Instant) {
    let uid = uid_of(there);
    if wanted.handling.create_only {
        return;
    }
    let yielding = yields_default(wanted, there);
    let wanted = yielding.as_ref().unwrap_or(wanted);
    if is_being_deleted(there) {
        // It is on its way out; the event of its end brings the next reconcile, which makes it anew.
        return;
    }
    let fixed = changed_immutables(wanted, there);
    if !fixed.is_empty() {
        plan_recreation(plan, wanted, there, fixed);
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
        return;
    }
    let known = unapplied.get(&wanted.key);
    let known = known.filter(|left| left.hash == wanted.hash && left.fields == fields);
    plan.left.extend(known.map(|left| (wanted.key.clone(), left.clone())));
    if known.is_none_or(|left| now.duration_since(left.tried) >= TRY_AGAIN_AFTER) {
        plan.actions.push(Action::Repair {
            desired: wanted.clone(),
            uid,
            fields,
        });
    }
}

/// Fields differ that cannot be changed: the object is made anew where that harms nobody who uses it.
fn plan_recreation(plan: &mut Plan, wanted: &Desired, there: &Value, fields: Vec<String>) {
    let key = wanted.key.clone();
    let is_harmless = match wanted.key.kind {
        kind::STORAGE_CLASS
        | kind::ATTRIBUTES_CLASS
        | kind::GROUP_SNAPSHOT_CLASS
        | kind::ROLE_BINDING
        | kind::CLUSTER_ROLE_BINDING => true,
        // Whether volumes are attached at all decides what happens to those that are.
        kind::CSI_DRIVER => !fields.iter().any(|field| field == "spec.attachRequired"),
        _ => false,
    };
    if wanted.handling.keeps_immutable {
        plan.obstacles.push(Obstacle::Refused { key, fields });
    } else if is_harmless {
        let version = &there["metadata"]["resourceVersion"];
        plan.actions.push(Action::Recreate {
            desired: wanted.clone(),
            uid: uid_of(there),
            fields,
            resource_version: version.as_str().unwrap_or_default().to_owned(),
            kept: kept(&wanted.object, there),
        });
    } else {
        plan.obstacles.push(Obstacle::Immutable { key, fields });
    }
}

/// The class without the mark of the default, where somebody else has put one there: his counts, whatever it says.
fn yields_default(wanted: &Desired, there: &Value) -> Option<Desired> {
    let has_mark = |object: &Value| object["metadata"]["annotations"][DEFAULT_CLASS_ANNOTATION].is_string();
    let is_concerned = wanted.key.kind == kind::STORAGE_CLASS && !wanted.handling.insists_on_default;
    let is_ours = || own_fields(there).any(|fields| owns_annotation(fields, DEFAULT_CLASS_ANNOTATION));
    if !is_concerned || !has_mark(&wanted.object) || !has_mark(there) || is_ours() {
        return None;
    }
    let mut wanted = wanted.clone();
    if let Some(annotations) = wanted.object["metadata"]["annotations"].as_object_mut() {
        annotations.remove(DEFAULT_CLASS_ANNOTATION);
    }
    Some(wanted)
}

/// Labels and annotations of others, such as the mark of the default StorageClass that an administrator has set: they must
/// not get lost because the object is made anew.
fn kept(wanted: &Value, there: &Value) -> Kept {
    // It tells of an object that does not exist any more.
    const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let of_others = |part: &str| -> BTreeMap<String, String> {
        let is_ours = |name: &str| {
            let path = format!("f:{name}");
            let owned = format!("f:{part}");
            own_fields(there).any(|fields| fields["f:metadata"][&owned].get(&path).is_some())
        };
        let all = there["metadata"][part].as_object().into_iter().flatten();
        all.filter(|(name, _)| wanted["metadata"][part].get(name.as_str()).is_none())
            .filter(|(name, _)| *name != LAST_APPLIED && !is_ours(name))
            .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
            .collect()
    };
    Kept {
        annotations: of_others("annotations"),
        labels: of_others("labels"),
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
        kind::ATTRIBUTES_CLASS => &[("/driverName", Value::Null), ("/parameters", Value::Null)],
        kind::GROUP_SNAPSHOT_CLASS => &[
            ("/driver", Value::Null),
            ("/deletionPolicy", Value::Null),
            ("/parameters", Value::Null),
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
