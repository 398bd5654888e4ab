// SPDX-License-Identifier: Apache-2.0
//! Record of the content that the operator applied last, as a ConfigMap in the driver's namespace.
//!
//! When a part of the spec cannot be applied, its objects are held: the operator repairs and recreates them from this
//! record. Accounts, roles and bindings are not in the record, because their content does not depend on the spec. A
//! client with write access to ConfigMaps must not gain rights through it. Secrets are not in it either.

use std::collections::BTreeMap;

use cinder_csi_crds::{INSTANCE_LABEL, OWNER_UID_ANNOTATION};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::desired::{APPLIED_HASH, Desired, is_being_deleted, uid_of};
use super::owned::differences;
use crate::{
    cluster::{KINDS, Key, MANAGED_BY, MANAGED_BY_LABEL, Owner, kind},
    manifests::{Handling, Stage},
};

/// Suffix of the name of the ConfigMap. The name starts with the prefix of the driver's objects.
pub const LAST_APPLIED_SUFFIX: &str = "-last-applied";

/// Key of the ConfigMap's data.
const DATA_KEY: &str = "objects.json";

/// Maximum size of the record, in bytes. The API server accepts a ConfigMap of 1 MiB.
const LONGEST: usize = 900 * 1024;

/// One object of the record.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedObject {
    /// The content that was applied last.
    pub desired: Desired,
    /// Whether `spec.overrides` changed the content.
    pub overridden: bool,
}

/// Serialized form of an object.
#[derive(Serialize, Deserialize)]
struct StoredObject {
    stage: Stage,
    #[serde(default)]
    handling: Handling,
    #[serde(default)]
    overridden: bool,
    object: Value,
}

/// The content that was applied last, by object.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LastApplied {
    objects: BTreeMap<Key, RecordedObject>,
    /// The ConfigMap, if it exists.
    config_map: Option<Value>,
}

impl LastApplied {
    /// Returns the key of a driver's record.
    pub fn key(namespace: &str, name_prefix: &str) -> Key {
        Key::new(
            kind::CONFIG_MAP,
            Some(namespace),
            &format!("{name_prefix}{LAST_APPLIED_SUFFIX}"),
        )
    }

    /// Removes the record from the existing objects, so that it is neither planned nor pruned. Parts that cannot be
    /// decoded are unknown, and so is a record of another owner.
    pub fn take(live: &mut BTreeMap<Key, Value>, owner: &Owner, namespace: &str, name_prefix: &str) -> Self {
        let config_map = live.remove(&Self::key(namespace, name_prefix));
        let config_map = config_map.filter(|found| owner.owns(found));
        let text = config_map.as_ref().and_then(|found| found["data"][DATA_KEY].as_str());
        let all: Vec<Value> = text
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let objects = all.into_iter().filter_map(|one| recorded(one, namespace));
        Self {
            objects: objects.map(|one| (one.desired.key.clone(), one)).collect(),
            config_map,
        }
    }

    /// The uid of the ConfigMap, if it exists.
    pub fn uid(&self) -> Option<String> {
        let uid = self.config_map.as_ref().map(uid_of);
        uid.filter(|uid| !uid.is_empty())
    }

    /// Whether the ConfigMap exists and has all fields of `desired`.
    pub fn is_stored_as(&self, desired: &Desired) -> bool {
        let stored = self.config_map.as_ref();
        stored.is_some_and(|stored| differences(&desired.object, stored, 1).is_empty())
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    pub fn get(&self, key: &Key) -> Option<&RecordedObject> {
        self.objects.get(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key, &RecordedObject)> {
        self.objects.iter()
    }

    /// Returns the content to which an object is held. This is the recorded content, unless the live object has newer
    /// unrecorded content.
    pub fn content_for(&self, key: &Key, live: Option<&Value>) -> Option<&Desired> {
        let recorded = &self.objects.get(key)?.desired;
        live.is_none_or(|live| applied_hash(live) == Some(recorded.hash()))
            .then_some(recorded)
    }

    /// Returns the record after a reconcile. `live` is the state after its writes. Objects that still have their
    /// earlier content retain their entry, and so do missing objects that are desired.
    #[must_use]
    pub fn updated<'a>(
        &self,
        owner: &Owner,
        desired: impl IntoIterator<Item = (&'a Desired, bool)>,
        is_desired: impl Fn(&Key) -> bool,
        live: &BTreeMap<Key, Value>,
    ) -> Self {
        let mut objects = self.objects.clone();
        objects.retain(|key, _| live.contains_key(key) || is_desired(key));
        for (desired, overridden) in desired {
            let is_recordable = desired.stage != Stage::Base && !desired.handling.create_only;
            let live_object = live.get(&desired.key);
            let is_applied = live_object.is_some_and(|live_object| {
                owner.owns(live_object)
                    && !is_being_deleted(live_object)
                    && applied_hash(live_object) == Some(desired.hash())
            });
            if is_recordable && is_applied {
                let desired = desired.clone();
                objects.insert(desired.key.clone(), RecordedObject { desired, overridden });
            }
        }
        Self {
            objects,
            config_map: self.config_map.clone(),
        }
    }

    /// Returns the ConfigMap with the record.
    pub fn config_map(&self, owner: &Owner, namespace: &str, name_prefix: &str) -> Result<Desired, serde_json::Error> {
        let key = Self::key(namespace, name_prefix);
        let is_workload = |key: &Key| [kind::DAEMON_SET, kind::DEPLOYMENT, kind::CSI_DRIVER].contains(&key.kind);
        // Workloads and the CSIDriver have priority when the record is too large.
        let (first, others): (Vec<_>, Vec<_>) = self.objects.iter().partition(|(key, _)| is_workload(key));
        let mut parts = Vec::new();
        let mut room = LONGEST;
        for (_, one) in first.into_iter().chain(others) {
            let part = serde_json::to_string(&StoredObject {
                stage: one.desired.stage,
                handling: one.desired.handling,
                overridden: one.overridden,
                object: one.desired.object.clone(),
            })?;
            if let Some(left) = room.checked_sub(part.len() + 2) {
                room = left;
                parts.push(part);
            }
        }
        let object = json!({
            "apiVersion": "v1",
            "kind": kind::CONFIG_MAP,
            "metadata": {
                "name": key.name,
                "namespace": namespace,
                "labels": {
                    (INSTANCE_LABEL): owner.name,
                    (MANAGED_BY_LABEL): MANAGED_BY,
                    "app.kubernetes.io/part-of": "cinder-csi",
                },
                "annotations": {(OWNER_UID_ANNOTATION): owner.uid},
            },
            "data": {(DATA_KEY): format!("[{}]", parts.join(",\n"))},
        });
        Ok(Desired::new(key, Stage::Monitoring, object))
    }
}

/// Decodes one object. `None` for objects of another namespace or of an excluded kind.
fn recorded(stored: Value, namespace: &str) -> Option<RecordedObject> {
    let stored: StoredObject = serde_json::from_value(stored).ok()?;
    let object = stored.object;
    let kind = KINDS.iter().find(|kind| object["kind"] == kind.kind)?;
    let metadata = &object["metadata"];
    let own_namespace = metadata["namespace"].as_str();
    let is_in_place = own_namespace == kind.namespaced.then_some(namespace);
    if stored.stage == Stage::Base || !is_in_place || is_base(kind.kind) {
        return None;
    }
    let key = Key::new(kind.kind, own_namespace, metadata["name"].as_str()?);
    let hash = applied_hash(&object)?.to_owned();
    Some(RecordedObject {
        desired: Desired::with_known_hash(key, stored.stage, stored.handling, object, hash),
        overridden: stored.overridden,
    })
}

/// Whether objects of a kind grant rights or contain credentials.
pub fn is_base(kind: &str) -> bool {
    matches!(
        kind,
        kind::SECRET | "ServiceAccount" | "Role" | "ClusterRole" | kind::ROLE_BINDING | kind::CLUSTER_ROLE_BINDING
    )
}

fn applied_hash(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][APPLIED_HASH].as_str()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn mk_owner() -> Owner {
        Owner {
            name: "d".to_owned(),
            uid: "u".to_owned(),
        }
    }

    fn mk_desired(stage: Stage, kind: &'static str, content: &str) -> Desired {
        let metadata = json!({"name": "x", "namespace": "ns", "labels": {(INSTANCE_LABEL): "d"}});
        let object = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": content});
        Desired::new(Key::new(kind, Some("ns"), "x"), stage, object)
    }

    fn mk_live(desired: &Desired) -> BTreeMap<Key, Value> {
        BTreeMap::from([(desired.key.clone(), desired.object.clone())])
    }

    fn record(desired: &Desired, live: &BTreeMap<Key, Value>) -> LastApplied {
        LastApplied::default().updated(&mk_owner(), [(desired, true)], |_| true, live)
    }

    #[test]
    fn record_survives_its_config_map() {
        let desired = mk_desired(Stage::Node, kind::DAEMON_SET, "a");
        let record = record(&desired, &mk_live(&desired));
        let config_map = record.config_map(&mk_owner(), "ns", "p").expect("JSON");
        let mut live = mk_live(&config_map);
        let taken = LastApplied::take(&mut live, &mk_owner(), "ns", "p");
        assert_eq!(taken.objects, record.objects);
        assert!(taken.is_stored_as(&config_map));
        assert!(live.is_empty(), "the record is no object of a plan");
        assert!(record.get(&desired.key).is_some_and(|one| one.overridden));
    }

    #[test]
    fn records_only_applied_content() {
        let (old, new) = (
            mk_desired(Stage::Node, kind::DAEMON_SET, "old"),
            mk_desired(Stage::Node, kind::DAEMON_SET, "new"),
        );
        let first = record(&old, &mk_live(&old));
        let held = first.updated(&mk_owner(), [(&new, false)], |_| true, &mk_live(&old));
        assert_eq!(held, first);
        let updated = first.updated(&mk_owner(), [(&new, false)], |_| true, &mk_live(&new));
        assert_eq!(updated.content_for(&new.key, None), Some(&new));
        assert_eq!(updated.content_for(&new.key, Some(&old.object)), None, "it is stale");
        let forgotten = first.updated(&mk_owner(), [], |_| false, &BTreeMap::new());
        assert!(forgotten.is_empty());
    }

    #[rstest]
    #[case::role(Stage::Base, "Role")]
    #[case::secret(Stage::Base, kind::SECRET)]
    #[case::role_of_another_stage(Stage::Node, "Role")]
    fn record_never_grants_rights(#[case] stage: Stage, #[case] kind: &'static str) {
        let desired = mk_desired(stage, kind, "a");
        let written = LastApplied {
            config_map: None,
            objects: BTreeMap::from([(
                desired.key.clone(),
                RecordedObject {
                    desired: desired.clone(),
                    overridden: false,
                },
            )]),
        };
        let mut live = mk_live(&written.config_map(&mk_owner(), "ns", "p").expect("JSON"));
        assert!(LastApplied::take(&mut live, &mk_owner(), "ns", "p").is_empty());
    }

    #[rstest]
    #[case::no_json("{")]
    #[case::no_list("{}")]
    #[case::no_objects("[1, {\"stage\": \"Node\"}, {\"stage\": \"Node\", \"object\": {\"kind\": \"DaemonSet\"}}]")]
    fn undecodable_record_is_unknown(#[case] text: &str) {
        let key = LastApplied::key("ns", "p");
        let mut live = BTreeMap::from([(
            key,
            json!({"metadata": {"labels": {(INSTANCE_LABEL): "d"}}, "data": {(DATA_KEY): text}}),
        )]);
        assert!(LastApplied::take(&mut live, &mk_owner(), "ns", "p").is_empty());
    }

    #[test]
    fn bounded_record_retains_workloads() {
        let large = "x".repeat(LONGEST - 2_000);
        let mut objects = BTreeMap::new();
        for desired in [
            mk_desired(Stage::Controller, "NetworkPolicy", &large),
            mk_desired(Stage::Node, kind::DAEMON_SET, &large),
        ] {
            let key = desired.key.clone();
            objects.insert(
                key,
                RecordedObject {
                    desired,
                    overridden: false,
                },
            );
        }
        let config_map = LastApplied {
            objects,
            config_map: None,
        }
        .config_map(&mk_owner(), "ns", "p")
        .expect("JSON");
        assert!(config_map.object.to_string().len() < 1 << 20);
        let read = LastApplied::take(&mut mk_live(&config_map), &mk_owner(), "ns", "p");
        let kinds: Vec<&str> = read.iter().map(|(key, _)| key.kind).collect();
        assert_eq!(kinds, [kind::DAEMON_SET]);
    }
}
