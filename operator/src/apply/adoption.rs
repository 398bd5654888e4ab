// SPDX-License-Identifier: Apache-2.0
//! Writes to objects of an installation that the operator adopts.

use cinder_operator_core::{
    cluster::{FIELD_MANAGER, NOTE, Note, OldController, OldObject},
    migration::Act,
    plan::Desired,
};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, StatefulSet},
    core::v1::Pod,
};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, PartialObjectMeta, Patch, PatchParams, PostParams, Preconditions,
    PropagationPolicy,
};
use serde_json::json;

use super::Writer;
use crate::kubernetes::{ApplyError, GuardedApi, api_for};

impl Writer {
    /// Executes one action of a migration in a namespace. A missing object is not an error.
    pub async fn migrate(&self, namespace: &str, act: &Act) -> Result<(), ApplyError> {
        match act {
            Act::ScaleDown(controller, note) => self.scale(namespace, controller, 0, Some(note)).await,
            Act::Write(controller, note) => self.scale(namespace, controller, controller.replicas, Some(note)).await,
            Act::GiveBack(controller, note) => {
                let replicas = controller.note.as_ref().map_or(1, |known| known.replicas);
                self.scale(namespace, controller, replicas, note.as_ref()).await
            }
            // A later step checks each pod of the object, so this deletion does not wait.
            Act::Withdraw(key, uid) => self.abandon(key, uid).await,
            Act::Orphan(set) => {
                let api: GuardedApi<DaemonSet> = GuardedApi::namespaced(self.client.clone(), namespace);
                let params = params(set, Some(PropagationPolicy::Orphan));
                self.done("DaemonSet", "delete", api.delete(&set.name, &params).await.map(drop))
            }
            Act::Replace(pod) => {
                let api: GuardedApi<PartialObjectMeta<Pod>> = GuardedApi::namespaced(self.client.clone(), namespace);
                let deleted = api.delete(&pod.name, &params(pod, None)).await.map(drop);
                self.done("Pod", "delete", deleted)
            }
        }
    }

    /// Scales a workload and records the previous state in one write, so that neither is lost without the other.
    async fn scale(
        &self,
        namespace: &str,
        controller: &OldController,
        replicas: i32,
        note: Option<&Note>,
    ) -> Result<(), ApplyError> {
        let resource = match controller.kind {
            "StatefulSet" => ApiResource::erase::<StatefulSet>(&()),
            _ => ApiResource::erase::<Deployment>(&()),
        };
        let api: GuardedApi<DynamicObject> = GuardedApi::namespaced_with(self.client.clone(), namespace, &resource);
        let note = note.map(serde_json::to_string).transpose()?;
        let metadata = json!({"uid": controller.uid, "annotations": {NOTE: note}});
        let patch = json!({"metadata": metadata, "spec": {"replicas": replicas}});
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patched = api.patch(&controller.name, &params, &Patch::Merge(&patch)).await;
        self.done(controller.kind, "patch", patched.map(drop))
    }

    /// Checks with dry runs whether the API server accepts a Deployment and one of its pods. Admission, quotas and pod
    /// security evaluate them; nothing is written.
    pub async fn try_out(&self, desired: &Desired) -> Result<(), ApplyError> {
        let api = api_for(&self.client, &desired.key)?;
        let params = PatchParams::apply(FIELD_MANAGER).dry_run();
        api.patch(&desired.key.name, &params, &Patch::Apply(&desired.object))
            .await?;
        let mut pod = desired.object["spec"]["template"].clone();
        pod["metadata"]["name"] = json!(format!("{}-trial", desired.key.name));
        let pods: GuardedApi<Pod> = GuardedApi::namespaced(
            self.client.clone(),
            desired.key.namespace.as_deref().unwrap_or_default(),
        );
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        pods.create(&params, &serde_json::from_value(pod)?).await?;
        Ok(())
    }

    /// Counts a write. A missing object, or a different object under the same name, is not an error.
    fn done(&self, kind: &'static str, verb: &'static str, result: kube::Result<()>) -> Result<(), ApplyError> {
        let result = match result {
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
            other => other,
        };
        self.metrics.api_write(kind, verb, result.is_ok());
        Ok(result?)
    }
}

fn params(object: &OldObject, propagation_policy: Option<PropagationPolicy>) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(object.uid.clone()),
            resource_version: None,
        }),
        propagation_policy,
        ..DeleteParams::default()
    }
}
