// SPDX-License-Identifier: Apache-2.0
//! Carries out a plan. Besides events and Leases, this is the only module that writes to the API server.
//!
//! The writer uses server-side apply under one field manager. A create does not force: it never takes over fields of an
//! object that appeared in between. A change or deletion carries the uid of the observed object, so that it cannot
//! affect a different object of the same name. Every call is idempotent, and the next reconcile completes an
//! interrupted plan.

mod adoption;
mod records;

pub use records::Records;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use cinder_csi_crds::{
    CinderCSIDriver, CinderCSIDriverStatus, FINALIZER, GROUP, INSTANCE_LABEL, KIND, OWNER_UID_ANNOTATION, VERSION,
};
use cinder_operator_core::{
    cluster::{FIELD_MANAGER, Key, MANAGED_BY_LABEL, kind},
    notice::Notice,
    plan::{
        APPLIED_HASH, Action, Desired, FailedWrite, Plan, RetainedMetadata, Unapplied, UnappliedFields, differences,
        uid_of,
    },
    reasons::Event,
};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::{
    Client, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, ObjectMeta, PartialObjectMeta, Patch, PatchParams, PostParams,
        Preconditions, PropagationPolicy,
    },
};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    kubernetes::{ApplyError, GuardedApi, api_for},
    metrics::Metrics,
};

/// Pauses between attempts to recreate an object after its deletion. They are short because the cluster needs the
/// object.
const RECREATE_PAUSES: [Duration; 5] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// Maximum number of fields that are recorded after an apply could not change them.
const RECORDED_FIELDS: usize = 5;

/// Writes to the API server, and counts the writes.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    metrics: Arc<Metrics>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl Writer {
    pub fn new(client: Client, metrics: Arc<Metrics>) -> Self {
        Self { client, metrics }
    }

    /// Applies an object. `uid` is the uid of the object to change; `None` creates it. Returns the object in the
    /// response of the API server.
    pub async fn apply(&self, desired: &Desired, uid: Option<&str>) -> Result<Value, ApplyError> {
        let api = api_for(&self.client, &desired.key)?;
        let mut object = desired.object.clone();
        let mut params = PatchParams::apply(FIELD_MANAGER);
        if let Some(uid) = uid {
            object["metadata"]["uid"] = json!(uid);
            params = params.force();
        }
        let result = api.patch(&desired.key.name, &params, &Patch::Apply(&object)).await;
        self.metrics.api_write(desired.key.kind, "apply", result.is_ok());
        Ok(serde_json::to_value(result?)?)
    }

    /// Restores the metadata that other clients had set on the predecessor of an object, and returns the object after
    /// the write. The preceding apply does not contain this metadata: later applies of the operator do not manage it,
    /// and users can change it.
    async fn restore_metadata(&self, key: &Key, live: Value, retained: &RetainedMetadata) -> Result<Value, ApplyError> {
        let missing = retained.missing_in(&live);
        if missing.is_empty() {
            return Ok(live);
        }
        let patch = json!({"metadata": {
            "uid": uid_of(&live),
            "annotations": missing.annotations,
            "labels": missing.labels,
        }});
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let api = api_for(&self.client, key)?;
        let result = api.patch(&key.name, &params, &Patch::Merge(&patch)).await;
        self.metrics.api_write(key.kind, "patch", result.is_ok());
        Ok(serde_json::to_value(result?)?)
    }

    /// Checks with a dry run whether the API server accepts the creation of such an object. The dry run uses a name
    /// that is not in use.
    async fn check_creation(
        &self,
        desired: &Desired,
        retained: &RetainedMetadata,
        uid: &str,
    ) -> Result<(), ApplyError> {
        let api = api_for(&self.client, &desired.key)?;
        let mut object = merge_metadata(desired, retained);
        object["metadata"]["name"] = json!(format!("dry-run-{}", uid.split('-').next().unwrap_or_default()));
        let object: DynamicObject = serde_json::from_value(object)?;
        let params = PostParams {
            dry_run: true,
            field_manager: Some(FIELD_MANAGER.to_owned()),
        };
        let result = api.create(&params, &object).await.map_err(ApplyError::from);
        result
            .map(drop)
            .map_err(|error| ApplyError::NotReplaced(Box::new(error)))
    }

    /// Deletes the object of this uid and version, and recreates it immediately to keep the interruption short. Before
    /// the deletion, a dry run confirms that the API server accepts the replacement, and the metadata of other clients
    /// is recorded.
    async fn recreate(
        &self,
        desired: &Desired,
        uid: &str,
        resource_version: &str,
        retained: &RetainedMetadata,
        records: &mut Records,
    ) -> Result<Value, ApplyError> {
        self.check_creation(desired, retained, uid).await?;
        if !retained.is_empty() {
            records.insert(&desired.key, retained);
            self.write_records(records).await?;
        }
        let preconditions = Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: Some(resource_version.to_owned()),
        };
        let policy = PropagationPolicy::Background;
        self.delete_if(&desired.key, preconditions, policy).await?;
        let mut pauses = RECREATE_PAUSES.iter();
        loop {
            // A finalizer can retain the old object for a moment, so that the apply updates the old object.
            let failure = match self.apply(desired, None).await {
                Ok(applied) if applied["metadata"]["uid"] != uid => {
                    return self.restore_metadata(&desired.key, applied, retained).await;
                }
                Ok(_) => ApplyError::StillThere,
                Err(error) => error,
            };
            let Some(pause) = pauses.next() else {
                return Err(failure);
            };
            tokio::time::sleep(*pause).await;
        }
    }

    /// Deletes the object of this uid; an object that does not exist is not an error. A workload is deleted in the
    /// foreground: the object disappears only after its pods have terminated.
    pub async fn delete(&self, key: &Key, uid: &str) -> Result<(), ApplyError> {
        let preconditions = Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        };
        let policy = match key.kind {
            kind::DEPLOYMENT | kind::DAEMON_SET => PropagationPolicy::Foreground,
            _ => PropagationPolicy::Background,
        };
        self.delete_if(key, preconditions, policy).await
    }

    /// Deletes the object of this uid without waiting for its pods, even after a foreground deletion has begun.
    pub async fn abandon(&self, key: &Key, uid: &str) -> Result<(), ApplyError> {
        let preconditions = Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        };
        self.delete_if(key, preconditions, PropagationPolicy::Background).await
    }

    async fn delete_if(
        &self,
        key: &Key,
        preconditions: Preconditions,
        policy: PropagationPolicy,
    ) -> Result<(), ApplyError> {
        let api = api_for(&self.client, key)?;
        let params = DeleteParams {
            preconditions: Some(preconditions),
            propagation_policy: Some(policy),
            ..DeleteParams::default()
        };
        let result = match api.delete(&key.name, &params).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(drop),
        };
        self.metrics.api_write(key.kind, "delete", result.is_ok());
        Ok(result?)
    }

    /// Removes the labels and annotations that mark an object as the operator's. A missing object is not an error.
    pub async fn release(&self, key: &Key, uid: &str) -> Result<(), ApplyError> {
        let patch = json!({"metadata": {
            "uid": uid,
            "labels": {INSTANCE_LABEL: null, MANAGED_BY_LABEL: null},
            "annotations": {OWNER_UID_ANNOTATION: null, APPLIED_HASH: null},
        }});
        self.merge(key, &patch).await
    }

    /// Deletes a Lease. A missing Lease is not an error.
    pub async fn delete_lease(&self, namespace: &str, name: &str) -> Result<(), ApplyError> {
        let leases: GuardedApi<PartialObjectMeta<Lease>> = GuardedApi::namespaced(self.client.clone(), namespace);
        let result = match leases.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(drop),
        };
        self.metrics.api_write("Lease", "delete", result.is_ok());
        Ok(result?)
    }

    /// Deletes a pod of the driver, so that its controller replaces it. A missing pod is not an error.
    pub async fn delete_pod(&self, namespace: &str, name: &str, uid: &str) -> Result<(), ApplyError> {
        let pods: GuardedApi<PartialObjectMeta<Pod>> = GuardedApi::namespaced(self.client.clone(), namespace);
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let result = match pods.delete(name, &params).await {
            // The pod does not exist, or a different pod has its name.
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
            other => other.map(drop),
        };
        self.metrics.api_write("Pod", "delete", result.is_ok());
        Ok(result?)
    }

    /// Adds or removes the finalizer of the object with this uid. The object is read again first, because a preceding
    /// write of the status changes its version. Returns whether the object still exists.
    pub async fn set_finalizer(&self, driver: &CinderCSIDriver, is_present: bool) -> Result<bool, ApplyError> {
        let api: GuardedApi<PartialObjectMeta<CinderCSIDriver>> = GuardedApi::all(self.client.clone());
        let metadata = match api.get_opt(&driver.name_any()).await? {
            Some(current) if current.metadata.uid == driver.metadata.uid => current.metadata,
            // The object of this uid does not exist, so it has no finalizer to change.
            _ => return Ok(false),
        };
        let mut finalizers = metadata.finalizers.unwrap_or_default();
        if finalizers.iter().any(|finalizer| finalizer == FINALIZER) == is_present {
            return Ok(true);
        }
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        if is_present {
            finalizers.push(FINALIZER.to_owned());
        }
        let patch = json!({"metadata": {
            "finalizers": finalizers,
            "resourceVersion": metadata.resource_version,
            "uid": metadata.uid,
        }});
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let result = api.patch(&driver.name_any(), &params, &Patch::Merge(&patch)).await;
        self.metrics.api_write(KIND, "patch", result.is_ok());
        Ok(result.map(|_| true)?)
    }

    /// Records the namespace of the driver in the status of the object with this uid, unless a namespace other than
    /// `former` is already recorded. Returns the recorded namespace. If two clients record at the same time, the API
    /// server rejects one write.
    pub async fn claim_namespace(
        &self,
        driver: &CinderCSIDriver,
        namespace: &str,
        former: Option<&str>,
    ) -> Result<String, ApplyError> {
        let api: GuardedApi<CinderCSIDriver> = GuardedApi::all(self.client.clone());
        let current = api.get(&driver.name_any()).await?;
        let status = current.status.unwrap_or_default();
        if let Some(recorded) = status
            .operand_namespace
            .filter(|recorded| Some(recorded.as_str()) != former)
        {
            return Ok(recorded);
        }
        let version = current.metadata.resource_version.as_deref();
        let status = CinderCSIDriverStatus {
            operand_namespace: Some(namespace.to_owned()),
            ..status
        };
        self.apply_status(&driver.metadata, version, &status).await?;
        Ok(namespace.to_owned())
    }

    /// Merges a patch into an object. A missing object is not an error.
    async fn merge(&self, key: &Key, patch: &Value) -> Result<(), ApplyError> {
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let api = api_for(&self.client, key)?;
        let result = match api.patch(&key.name, &params, &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(drop),
        };
        self.metrics.api_write(key.kind, "patch", result.is_ok());
        Ok(result?)
    }

    /// Sets an annotation of an existing object.
    pub async fn annotate(&self, key: &Key, annotation: &str, value: &str) -> Result<(), ApplyError> {
        let patch = json!({"metadata": {"annotations": {annotation: value}}});
        self.merge(key, &patch).await
    }

    /// Removes an annotation of the object with this uid.
    pub async fn remove_annotation(&self, driver: &CinderCSIDriver, annotation: &str) -> Result<(), ApplyError> {
        let api: GuardedApi<PartialObjectMeta<CinderCSIDriver>> = GuardedApi::all(self.client.clone());
        let patch = json!({"metadata": {"uid": driver.metadata.uid, "annotations": {annotation: null}}});
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(&patch);
        let result = match api.patch(&driver.name_any(), &params, &patch).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(drop),
        };
        self.metrics.api_write(KIND, "patch", result.is_ok());
        Ok(result?)
    }

    /// Writes the whole status.
    pub async fn set_status(&self, metadata: &ObjectMeta, status: &impl Serialize) -> Result<(), ApplyError> {
        self.apply_status(metadata, None, status).await
    }

    /// Applies the status. If `version` is present, the write succeeds only for that resource version.
    async fn apply_status(
        &self,
        metadata: &ObjectMeta,
        version: Option<&str>,
        status: &impl Serialize,
    ) -> Result<(), ApplyError> {
        let name = metadata.name.as_deref().unwrap_or_default();
        let mut patch = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": KIND,
            "metadata": {"name": name, "uid": metadata.uid},
            "status": status,
        });
        if let Some(version) = version {
            patch["metadata"]["resourceVersion"] = json!(version);
        }
        // The response is untyped, because this version of the operator may not be able to decode the object.
        let resource = ApiResource::erase::<CinderCSIDriver>(&());
        let api: GuardedApi<DynamicObject> = GuardedApi::all_with(self.client.clone(), &resource);
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let result = api.patch_status(name, &params, &Patch::Apply(&patch)).await;
        self.metrics.api_write(KIND, "status", result.is_ok());
        Ok(result.map(drop)?)
    }
}

fn merge_metadata(desired: &Desired, retained: &RetainedMetadata) -> Value {
    let mut object = desired.object.clone();
    for (part, names) in [("annotations", &retained.annotations), ("labels", &retained.labels)] {
        for (name, value) in names {
            object["metadata"][part][name] = json!(value);
        }
    }
    object
}

/// Result of the execution of a plan.
#[derive(Debug, Default)]
pub struct Applied {
    /// Objects after the writes; `None` for deleted objects.
    pub written: BTreeMap<Key, Option<Value>>,
    /// Events about the executed actions.
    pub notices: Vec<Notice>,
    /// Failed writes. After a failure, no action of a later stage is executed.
    pub failures: Vec<FailedWrite>,
    /// Kinds of the objects that another client had changed.
    pub repaired: Vec<&'static str>,
    /// Fields that the API server did not change as requested, for the next plan.
    pub left: Unapplied,
}

/// Executes the plan, stage by stage. `live` has the objects from which the plan was computed.
pub async fn apply_plan(writer: &Writer, plan: &Plan, live: &BTreeMap<Key, Value>, mut records: Records) -> Applied {
    let mut outcome = Applied {
        left: plan.left.clone(),
        ..Applied::default()
    };
    let mut created = Vec::new();
    let mut failed_stage = None;
    for action in &plan.actions {
        let stage = stage_of(action);
        // A later stage may depend on the failed object. Orphans are removed only after a complete run.
        if failed_stage.is_some_and(|failed| stage.is_none_or(|stage| stage > failed)) {
            break;
        }
        if let Err(error) = apply_action(writer, action, &mut outcome, &mut created, &mut records).await {
            let key = action.key();
            let message = error.to_string();
            outcome.failures.push(FailedWrite {
                key: key.clone(),
                message,
            });
            failed_stage = failed_stage
                .or(stage)
                .or(Some(cinder_operator_core::manifests::Stage::Base));
        }
    }
    for (key, object) in live {
        let Some(retained) = records.find(key).filter(|_| !outcome.written.contains_key(key)) else {
            continue;
        };
        match writer.restore_metadata(key, object.clone(), &retained).await {
            Ok(applied) => {
                outcome.written.insert(key.clone(), Some(applied));
            }
            Err(error) => outcome.failures.push(FailedWrite {
                key: key.clone(),
                message: error.to_string(),
            }),
        }
    }
    let is_there = |key: &str| {
        let written = outcome.written.iter().find(|(written, _)| written.to_string() == key);
        let existed = live.keys().any(|existing| existing.to_string() == key);
        written.map_or(existed, |(_, object)| object.is_some())
    };
    let is_failed = |key: &str| outcome.failures.iter().any(|failure| failure.key.to_string() == key);
    records.retain_missing(|key| is_there(key) && !is_failed(key));
    if let Err(error) = writer.write_records(&mut records).await {
        // The next reconcile removes it.
        tracing::warn!(%error, "the record of recreated objects is not removed yet");
    }
    if !created.is_empty() {
        outcome.notices.insert(
            0,
            Notice::new(Event::Created, format!("created {}", created.join(", "))),
        );
    }
    outcome
}

fn stage_of(action: &Action) -> Option<cinder_operator_core::manifests::Stage> {
    match action {
        Action::Create(desired)
        | Action::Update { desired, .. }
        | Action::Repair { desired, .. }
        | Action::Recreate { desired, .. } => Some(desired.stage),
        Action::Prune { .. } => None,
    }
}

async fn apply_action(
    writer: &Writer,
    action: &Action,
    outcome: &mut Applied,
    created: &mut Vec<String>,
    records: &mut Records,
) -> Result<(), ApplyError> {
    // Metadata of an object whose recreation was interrupted after the deletion.
    let retained = records.find(action.key()).unwrap_or_default();
    match action {
        Action::Create(desired) => {
            write(writer, desired, None, &retained, outcome).await?;
            created.push(desired.key.to_string());
        }
        Action::Update { desired, uid } => {
            write(writer, desired, Some(uid), &retained, outcome).await?;
            outcome
                .notices
                .push(Notice::new(Event::Updated, format!("updated {}", desired.key)));
        }
        Action::Repair { desired, uid, fields } => {
            write(writer, desired, Some(uid), &retained, outcome).await?;
            if !outcome.left.contains_key(&desired.key) {
                let sentence = format!(
                    "{} had been changed ({}) and was restored",
                    desired.key,
                    fields.join(", ")
                );
                outcome.notices.push(Notice::new(Event::DriftRepaired, sentence));
                outcome.repaired.push(desired.key.kind);
            }
        }
        Action::Recreate {
            desired,
            uid,
            fields,
            resource_version,
            kept: retained,
        } => {
            let applied = writer
                .recreate(desired, uid, resource_version, retained, records)
                .await?;
            let sentence = format!(
                "{} was recreated, because {} cannot be changed; what was made from it before stays as it is",
                desired.key,
                fields.join(", ")
            );
            outcome.notices.push(Notice::new(Event::Recreated, sentence));
            record_result(desired, applied, outcome);
        }
        Action::Prune { key, uid } => {
            writer.delete(key, uid).await?;
            let sentence = format!("removed {key}, which is no longer wanted");
            outcome.notices.push(Notice::new(Event::Pruned, sentence));
            outcome.written.insert(key.clone(), None);
        }
    }
    Ok(())
}

/// Applies the fields that the operator manages and restores `retained`, the metadata of other clients. `retained` takes
/// precedence over a value of the operator, for example for the annotation of the default StorageClass.
async fn write(
    writer: &Writer,
    desired: &Desired,
    uid: Option<&str>,
    retained: &RetainedMetadata,
    outcome: &mut Applied,
) -> Result<(), ApplyError> {
    let own = desired.without(retained);
    let applied = writer.apply(&own, uid).await?;
    let applied = writer.restore_metadata(&own.key, applied, retained).await?;
    record_result(&own, applied, outcome);
    Ok(())
}

/// Records the result, and the fields that differ from the requested values. The next plan skips these fields, because
/// another attempt would not change them.
fn record_result(desired: &Desired, applied: Value, outcome: &mut Applied) {
    let fields = differences(&desired.object, &applied, RECORDED_FIELDS);
    if fields.is_empty() {
        outcome.left.remove(&desired.key);
    } else {
        tracing::warn!(object = %desired.key, fields = fields.join(", "), "the API server or a webhook keeps other values than asked for");
        let left = UnappliedFields {
            hash: desired.hash().to_owned(),
            fields,
            tried: Instant::now().into_std(),
        };
        outcome.left.insert(desired.key.clone(), left);
    }
    outcome.written.insert(desired.key.clone(), Some(applied));
}
