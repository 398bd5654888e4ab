//! Writes on objects of another installation of the driver.

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, StatefulSet},
    core::v1::Pod,
};
use kube::{
    Api,
    api::{
        ApiResource, DeleteParams, DynamicObject, PartialObjectMeta, Patch, PatchParams, Preconditions,
        PropagationPolicy,
    },
};
use serde_json::json;

use super::{ApplyError, Writer};
use crate::{
    adoption::{Act, OldController, OldObject},
    objects::FIELD_MANAGER,
};

impl Writer {
    /// Does one act of a take-over in a namespace. What is gone already is fine.
    pub async fn take_over(&self, namespace: &str, act: &Act) -> Result<(), ApplyError> {
        match act {
            Act::ScaleDown(controller) => self.scale_down(namespace, controller).await,
            Act::Orphan(set) => {
                let api: Api<DaemonSet> = Api::namespaced(self.client.clone(), namespace);
                let params = params(set, Some(PropagationPolicy::Orphan));
                self.done("DaemonSet", "delete", api.delete(&set.name, &params).await.map(drop))
            }
            Act::Replace(pod) => {
                let api: Api<PartialObjectMeta<Pod>> = Api::namespaced(self.client.clone(), namespace);
                let deleted = api.delete(&pod.name, &params(pod, None)).await.map(drop);
                self.done("Pod", "delete", deleted)
            }
        }
    }

    async fn scale_down(&self, namespace: &str, controller: &OldController) -> Result<(), ApplyError> {
        let resource = match controller.kind {
            "StatefulSet" => ApiResource::erase::<StatefulSet>(&()),
            _ => ApiResource::erase::<Deployment>(&()),
        };
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        let patch = json!({"metadata": {"uid": controller.uid}, "spec": {"replicas": 0}});
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patched = api.patch(&controller.name, &params, &Patch::Merge(&patch)).await;
        self.done(controller.kind, "patch", patched.map(drop))
    }

    /// Counts a write. That the object is gone, or another one has its name, is fine.
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
