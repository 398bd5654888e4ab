//! What Kubernetes says of one claim, as far as the user may see it.

use std::fmt;

use k8s_openapi::{
    api::{
        core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod},
        storage::v1::{CSINode, StorageClass, VolumeAttachment},
    },
    jiff::Timestamp,
};
use kube::{Api, Client, Resource, ResourceExt, api::ListParams};
use serde::{Serialize, de::DeserializeOwned};

use super::{DiagnoseError, GONE, PodLine, optional, read};
use crate::{
    diagnosis::{Operation, Suspect},
    observe::{AttachmentObject, ClaimObject, Fact, Index, NodeObject, RegistrationObject, VolumeObject},
};

/// The namespace of events about objects without one.
const DEFAULT: &str = "default";

/// What was found.
pub(super) struct Looked {
    pub(super) index: Index,
    /// The uids of the claims that it may be about: several that were deleted may have had the name.
    pub(super) uids: Vec<String>,
    pub(super) phase: String,
    pub(super) driver: Option<String>,
    pub(super) volume: Option<String>,
    pub(super) volume_id: Option<String>,
    pub(super) pods: Vec<PodLine>,
}

impl Looked {
    pub(super) async fn new(
        client: &Client,
        namespace: &str,
        name: &str,
        notes: &mut Vec<String>,
    ) -> Result<Self, DiagnoseError> {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
        let claim = read(claims.get_opt(name).await, "the claim")?;
        let mut looked = Self {
            index: Index::default(),
            uids: Vec::new(),
            phase: GONE.to_owned(),
            driver: None,
            volume: None,
            volume_id: None,
            pods: Vec::new(),
        };
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let pods = optional(pods.list(&ListParams::default()).await, "Pods", notes);
        let pods = pods.into_iter().flatten().filter(|pod| uses(pod, name));
        looked.pods = pods.map(|pod| pod_line(&pod)).collect();
        match &claim {
            Some(claim) => looked.of_claim(client, claim, notes).await?,
            None => looked.of_deleted(client, namespace, name, notes).await?,
        }
        let attachments: Api<VolumeAttachment> = Api::all(client.clone());
        looked
            .put_all::<AttachmentObject, _>(&attachments, "VolumeAttachments", notes)
            .await?;
        let machines: Api<Node> = Api::all(client.clone());
        looked.put_all::<NodeObject, _>(&machines, "Nodes", notes).await?;
        let registrations: Api<CSINode> = Api::all(client.clone());
        looked
            .put_all::<RegistrationObject, _>(&registrations, "CSINodes", notes)
            .await?;
        Ok(looked)
    }

    async fn of_claim(
        &mut self,
        client: &Client,
        claim: &PersistentVolumeClaim,
        notes: &mut Vec<String>,
    ) -> Result<(), DiagnoseError> {
        self.uids.extend(claim.uid());
        self.phase = claim
            .status
            .as_ref()
            .and_then(|status| status.phase.clone())
            .unwrap_or_default();
        self.put::<ClaimObject>(claim)?;
        if claim.metadata.deletion_timestamp.is_some() {
            notes.push("the claim is being deleted, and goes once no pod uses it any more".to_owned());
        }
        let annotations = claim.annotations();
        let provisioner = annotations
            .get("volume.kubernetes.io/storage-provisioner")
            .or_else(|| annotations.get("volume.beta.kubernetes.io/storage-provisioner"));
        self.driver = provisioner.cloned();
        if let Some(name) = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_ref()) {
            self.volume = Some(name.clone());
            let volumes: Api<PersistentVolume> = Api::all(client.clone());
            let object = optional(volumes.get_opt(name).await, "the PersistentVolume", notes).flatten();
            if let Some(object) = object {
                self.put_volume(&object)?;
            }
        } else if self.driver.is_none() {
            let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
            notes.push(self.why_nobody_is_asked(client, class).await);
        }
        Ok(())
    }

    /// A claim goes before its volume does.
    async fn of_deleted(
        &mut self,
        client: &Client,
        namespace: &str,
        name: &str,
        notes: &mut Vec<String>,
    ) -> Result<(), DiagnoseError> {
        let volumes: Api<PersistentVolume> = Api::all(client.clone());
        let volumes = optional(volumes.list(&ListParams::default()).await, "PersistentVolumes", notes);
        for volume in volumes.into_iter().flatten() {
            let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
            let is_its = |claim: &&k8s_openapi::api::core::v1::ObjectReference| {
                (claim.namespace.as_deref(), claim.name.as_deref()) == (Some(namespace), Some(name))
            };
            if let Some(claim) = claim.filter(is_its) {
                self.uids.extend(claim.uid.clone());
                self.volume = Some(volume.name_any());
                self.put_volume(&volume)?;
            }
        }
        if self.volume.is_none() {
            return Err(DiagnoseError::NoClaim {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            });
        }
        notes.push("the claim was deleted, and its PersistentVolume is still there".to_owned());
        Ok(())
    }

    fn put_volume(&mut self, volume: &PersistentVolume) -> Result<(), DiagnoseError> {
        if let Some(csi) = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref()) {
            self.driver = Some(csi.driver.clone());
            self.volume_id = Some(csi.volume_handle.clone());
        }
        self.put::<VolumeObject>(volume)
    }

    /// Why no provisioner has been asked for a volume.
    async fn why_nobody_is_asked(&mut self, client: &Client, class: Option<&str>) -> String {
        let Some(name) = class.filter(|name| !name.is_empty()) else {
            return "the claim names no StorageClass, and no class is the default: name one (`kubectl get storageclass` lists them)"
                .to_owned();
        };
        let classes: Api<StorageClass> = Api::all(client.clone());
        match classes.get_opt(name).await {
            Ok(None) => format!(
                "StorageClass {name}, which the claim names, does not exist: `kubectl get storageclass` lists those that do"
            ),
            Ok(Some(class)) => {
                let waits = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
                self.driver = Some(class.provisioner);
                match (waits, self.pods.is_empty()) {
                    (true, true) => format!(
                        "StorageClass {name} has a volume made when a pod uses the claim, and none does yet: all is well until then"
                    ),
                    (true, false) => format!(
                        "StorageClass {name} has a volume made when a pod that uses the claim gets a node, and none has got one yet: see \
                         the pod"
                    ),
                    (false, _) => format!(
                        "the kube-controller-manager has not yet asked the provisioner of StorageClass {name} for a volume"
                    ),
                }
            }
            Err(error) => format!("StorageClass {name} could not be read: {error}"),
        }
    }

    fn put<K: Fact + DeserializeOwned>(&mut self, object: &impl Serialize) -> Result<(), DiagnoseError> {
        self.index
            .put(&serde_json::from_value::<K>(serde_json::to_value(object)?)?);
        Ok(())
    }

    async fn put_all<K, T>(&mut self, api: &Api<T>, what: &str, notes: &mut Vec<String>) -> Result<(), DiagnoseError>
    where
        K: Fact + DeserializeOwned,
        T: Resource + Clone + fmt::Debug + Serialize + DeserializeOwned,
    {
        let all = optional(api.list(&ListParams::default()).await, what, notes);
        all.into_iter().flatten().try_for_each(|object| self.put::<K>(&object))
    }
}

/// Adds what the sidecars have said in events; what they say of attachments is in those.
pub(super) async fn ask_events(client: &Client, suspects: &mut [Suspect]) {
    for suspect in suspects {
        let (_, name) = &suspect.case.object;
        let (namespace, name) = name.split_once('/').unwrap_or((DEFAULT, name));
        let reason = match suspect.operation {
            Operation::Provision => "ProvisioningFailed",
            Operation::Resize => "VolumeResizeFailed",
            Operation::Delete => "VolumeFailedDelete",
            Operation::Attach | Operation::Detach => continue,
        };
        let events: Api<Event> = Api::namespaced(client.clone(), namespace);
        let params = ListParams::default().fields(&format!("involvedObject.name={name},reason={reason}"));
        // Who may not read them is helped by the rest.
        let said = events.list(&params).await.ok().and_then(|events| last(events.items));
        suspect.case.said = said.or(suspect.case.said.take());
    }
}

fn last(events: Vec<Event>) -> Option<String> {
    let at = |event: &Event| -> Option<Timestamp> {
        let series = event
            .series
            .as_ref()
            .and_then(|series| series.last_observed_time.as_ref());
        let time = series.or(event.event_time.as_ref()).map(|time| time.0);
        event.last_timestamp.as_ref().map(|time| time.0).max(time)
    };
    events.into_iter().max_by_key(at)?.message
}

fn uses(pod: &Pod, claim: &str) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes
        .filter_map(|volume| volume.persistent_volume_claim.as_ref())
        .any(|source| source.claim_name == claim)
}

fn pod_line(pod: &Pod) -> PodLine {
    let status = pod.status.as_ref();
    let conditions = status
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten();
    let mut unscheduled =
        conditions.filter(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    PodLine {
        name: pod.name_any(),
        phase: status.and_then(|status| status.phase.clone()).unwrap_or_default(),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        unscheduled: unscheduled.next().and_then(|condition| condition.message.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_several_events_the_words_of_the_latest_are_told() {
        let event = |time: serde_json::Value, message: &str| {
            let mut event = json!({"metadata": {}, "involvedObject": {}, "message": message});
            event
                .as_object_mut()
                .expect("an object")
                .extend(time.as_object().expect("times").clone());
            serde_json::from_value::<Event>(event).expect("an event")
        };
        let events = vec![
            event(json!({"lastTimestamp": "2026-06-01T10:00:00Z"}), "first"),
            event(
                json!({"eventTime": "2026-06-01T10:00:00.000000Z",
                "series": {"count": 2, "lastObservedTime": "2026-06-01T10:09:00.000000Z"}}),
                "latest",
            ),
            event(json!({"eventTime": "2026-06-01T10:05:00.000000Z"}), "second"),
        ];

        assert_eq!(last(events).as_deref(), Some("latest"));
        assert_eq!(last(Vec::new()), None);
    }
}
