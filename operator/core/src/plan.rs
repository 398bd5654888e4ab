// SPDX-License-Identifier: Apache-2.0
//! Computes the writes that bring the cluster to its desired state. The functions are pure.
//!
//! When nothing has changed, the plan is empty. A write is planned in three cases: an object is missing, the intent
//! changed (an annotation stores its hash), or an owned field of the live object differs (drift). The operator never
//! writes an object of another owner. Such an object blocks only itself, with one exception. When the CSIDriver object
//! belongs to another owner, another installation of this driver runs in the cluster, and the operator changes nothing.

pub mod changes;
mod desired;
mod last_applied;
mod owned;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::{
    DEFAULT_CLASS_ANNOTATION, Key, LostNodes, Owner, is_applied, kind, maker_of, own_fields, owns_annotation,
};

pub use desired::{APPLIED_HASH, Desired, RetainedMetadata, is_being_deleted, uid_of};
pub use last_applied::{LAST_APPLIED_SUFFIX, LastApplied, RecordedObject, is_base};
pub use owned::differences;

/// Maximum number of changed fields in an event.
const NAMED_FIELDS: usize = 5;

/// Time after which the operator retries a change that an apply could not achieve. A webhook that reverted it may
/// have been removed.
const TRY_AGAIN_AFTER: Duration = Duration::from_mins(10);

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// The object does not exist.
    Create(Desired),
    /// The intent changed: a new spec or a new version of the operator.
    Update {
        desired: Desired,
        /// Uid of the live object.
        uid: String,
    },
    /// Another client changed owned fields.
    Repair {
        desired: Desired,
        /// Uid of the live object.
        uid: String,
        /// Paths of some of the changed fields.
        fields: Vec<String>,
    },
    /// Immutable fields differ. The object is deleted and recreated.
    Recreate {
        desired: Desired,
        /// Uid of the live object.
        uid: String,
        /// Paths of the immutable fields.
        fields: Vec<String>,
        /// Resource version of the object that was compared.
        resource_version: String,
        /// Labels and annotations of other clients, which the new object receives.
        kept: RetainedMetadata,
    },
    /// An owned object is no longer desired.
    Prune { key: Key, uid: String },
}

impl Action {
    /// Returns the object of the action.
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

/// A change that the operator does not apply on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// An object of another owner has the name.
    Foreign {
        key: Key,
        /// Name of the apparent creator of the object.
        maker: String,
    },
    /// Immutable fields differ, and recreating the object could harm mounted volumes or running pods.
    Immutable {
        key: Key,
        /// Paths of the immutable fields.
        fields: Vec<String>,
    },
    /// Immutable fields differ, and the spec forbids recreating the object.
    Refused {
        key: Key,
        /// Paths of the immutable fields.
        fields: Vec<String>,
    },
    /// Immutable fields differ. The operator recreates the object when nothing uses it any more.
    Waiting {
        key: Key,
        /// Paths of the immutable fields.
        fields: Vec<String>,
        /// The users of the object.
        what: String,
    },
    /// The DaemonSet would exclude nodes to which volumes of the driver are attached.
    NodesInUse { key: Key, lost: LostNodes },
}

/// The limits of a plan.
#[derive(Debug, Clone, Default)]
pub struct PlanScope {
    /// Whether undesired objects are pruned. The desired objects must then be complete.
    pub prune: bool,
    /// Objects that are neither written nor pruned.
    pub untouched: BTreeSet<Key>,
    /// Objects that were applied before. They are recreated even where no new object may be created.
    pub installed: BTreeSet<Key>,
}

/// Planned writes, and obstacles to other changes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Writes, in this order.
    pub actions: Vec<Action>,
    /// Changes that need an administrator.
    pub obstacles: Vec<Obstacle>,
    /// Differences of earlier applies that still exist.
    pub left: Unapplied,
}

/// Differences that an apply could not remove, by object. Another write would have the same result. The operator
/// retries when the intent or the differences change, or after `TRY_AGAIN_AFTER`.
pub type Unapplied = BTreeMap<Key, UnappliedFields>;

/// Fields that differ after an apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnappliedFields {
    /// Hash of the intent.
    pub hash: String,
    /// Paths of the fields.
    pub fields: Vec<String>,
    /// Time of the last apply.
    pub tried: Instant,
}

/// A failed write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedWrite {
    pub key: Key,
    /// Error of the API server, without parts that differ between attempts.
    pub message: String,
}

/// Plans the writes. `now` is the current time of the clock in [`UnappliedFields::tried`].
pub fn plan(
    owner: &Owner,
    desired: &[Desired],
    live: &BTreeMap<Key, Value>,
    unapplied: &Unapplied,
    scope: &PlanScope,
    now: Instant,
) -> Plan {
    let mut plan = Plan::default();
    for intent in desired.iter().filter(|desired| !scope.untouched.contains(&desired.key)) {
        match live.get(&intent.key) {
            None => plan.actions.push(Action::Create(intent.clone())),
            Some(live_object) if !owner.owns(live_object) => {
                plan.obstacles.push(Obstacle::Foreign {
                    key: intent.key.clone(),
                    maker: maker_of(live_object),
                });
            }
            Some(live_object) => plan_existing(&mut plan, intent, live_object, unapplied, now),
        }
    }
    let is_foreign_driver =
        |obstacle: &Obstacle| matches!(obstacle, Obstacle::Foreign { key, .. } if key.kind == kind::CSI_DRIVER);
    if plan.obstacles.iter().any(is_foreign_driver) {
        // An own CSIDriver object without its labels still shows that this installation serves the driver.
        let mut drivers = live.iter().filter(|(key, _)| key.kind == kind::CSI_DRIVER);
        let is_unmarked = drivers.any(|(_, live_object)| is_applied(live_object));
        plan.actions.retain(|action| match action {
            Action::Create(desired) => is_unmarked && scope.installed.contains(&desired.key),
            Action::Update { .. } | Action::Repair { .. } => true,
            Action::Recreate { .. } | Action::Prune { .. } => false,
        });
        return plan;
    }
    if scope.prune {
        let desired_keys: BTreeSet<&Key> = desired.iter().map(|desired| &desired.key).collect();
        let orphans = live.iter().filter(|(key, live_object)| {
            let is_kept = desired_keys.contains(key) || scope.untouched.contains(key);
            !is_kept && owner.owns(live_object) && !is_being_deleted(live_object)
        });
        plan.actions.extend(orphans.map(|(key, live_object)| Action::Prune {
            key: key.clone(),
            uid: uid_of(live_object),
        }));
    }
    plan
}

fn plan_existing(plan: &mut Plan, intent: &Desired, live_object: &Value, unapplied: &Unapplied, now: Instant) {
    let uid = uid_of(live_object);
    if intent.handling.create_only {
        return;
    }
    let yielding = without_default_mark(intent, live_object);
    let intent = yielding.as_ref().unwrap_or(intent);
    if is_being_deleted(live_object) {
        // The event of its deletion triggers the next reconcile, which recreates it.
        return;
    }
    let fixed = changed_immutables(intent, live_object);
    if !fixed.is_empty() {
        plan_recreation(plan, intent, live_object, fixed);
        return;
    }
    let applied = live_object["metadata"]["annotations"][APPLIED_HASH].as_str();
    let fields = differences(&intent.object, live_object, NAMED_FIELDS);
    // An object restored from a backup can match the intent without the ownership labels. Without an update, it would
    // never be pruned.
    let is_restored = !is_applied(live_object);
    if fields.is_empty() && !is_restored {
        return;
    }
    if is_restored || applied.is_some_and(|applied| applied != intent.hash()) {
        plan.actions.push(Action::Update {
            desired: intent.clone(),
            uid,
        });
        return;
    }
    let known = unapplied.get(&intent.key);
    let known = known.filter(|left| left.hash == intent.hash() && left.fields == fields);
    plan.left.extend(known.map(|left| (intent.key.clone(), left.clone())));
    if known.is_none_or(|left| now.duration_since(left.tried) >= TRY_AGAIN_AFTER) {
        plan.actions.push(Action::Repair {
            desired: intent.clone(),
            uid,
            fields,
        });
    }
}

/// Plans to recreate an object with different immutable fields, if this does not harm its users.
fn plan_recreation(plan: &mut Plan, intent: &Desired, live_object: &Value, fields: Vec<String>) {
    let key = intent.key.clone();
    let is_harmless = match intent.key.kind {
        kind::STORAGE_CLASS
        | kind::ATTRIBUTES_CLASS
        | kind::GROUP_SNAPSHOT_CLASS
        | kind::ROLE_BINDING
        | kind::CLUSTER_ROLE_BINDING => true,
        // attachRequired determines how the attached volumes are detached.
        kind::CSI_DRIVER => !fields.iter().any(|field| field == "spec.attachRequired"),
        _ => false,
    };
    if intent.handling.keeps_immutable {
        plan.obstacles.push(Obstacle::Refused { key, fields });
    } else if is_harmless {
        let version = &live_object["metadata"]["resourceVersion"];
        plan.actions.push(Action::Recreate {
            desired: intent.clone(),
            uid: uid_of(live_object),
            fields,
            resource_version: version.as_str().unwrap_or_default().to_owned(),
            kept: kept(&intent.object, live_object),
        });
    } else {
        plan.obstacles.push(Obstacle::Immutable { key, fields });
    }
}

/// Returns the class without the annotation of the default class, if another client has set it. The value of that
/// client takes precedence.
fn without_default_mark(intent: &Desired, live_object: &Value) -> Option<Desired> {
    let has_mark = |object: &Value| object["metadata"]["annotations"][DEFAULT_CLASS_ANNOTATION].is_string();
    let is_concerned = intent.key.kind == kind::STORAGE_CLASS && !intent.handling.insists_on_default;
    let is_ours = || own_fields(live_object).any(|fields| owns_annotation(fields, DEFAULT_CLASS_ANNOTATION));
    if !is_concerned || !has_mark(&intent.object) || !has_mark(live_object) || is_ours() {
        return None;
    }
    let mut intent = intent.clone();
    if let Some(annotations) = intent.object["metadata"]["annotations"].as_object_mut() {
        annotations.remove(DEFAULT_CLASS_ANNOTATION);
    }
    Some(intent)
}

/// Collects labels and annotations of other clients, such as the default-class annotation of an administrator. They
/// must survive a re-creation of the object.
fn kept(intent: &Value, live_object: &Value) -> RetainedMetadata {
    // It describes an object that no longer exists.
    const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let of_others = |part: &str| -> BTreeMap<String, String> {
        let is_ours = |name: &str| {
            let path = format!("f:{name}");
            let owned = format!("f:{part}");
            own_fields(live_object).any(|fields| fields["f:metadata"][&owned].get(&path).is_some())
        };
        let all = live_object["metadata"][part].as_object().into_iter().flatten();
        all.filter(|(name, _)| intent["metadata"][part].get(name.as_str()).is_none())
            .filter(|(name, _)| *name != LAST_APPLIED && !is_ours(name))
            .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
            .collect()
    };
    RetainedMetadata {
        annotations: of_others("annotations"),
        labels: of_others("labels"),
    }
}

/// The paths of fields that differ and that the API server refuses to change.
fn changed_immutables(intent: &Desired, live_object: &Value) -> Vec<String> {
    let fields: &[(&str, Value)] = match intent.key.kind {
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
        .filter(|(path, default)| value(&intent.object, path, default) != value(live_object, path, default))
        .map(|(path, _)| path.trim_start_matches('/').replace('/', "."))
        .collect()
}

#[cfg(test)]
mod tests;
