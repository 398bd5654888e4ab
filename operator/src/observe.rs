// SPDX-License-Identifier: Apache-2.0
//! Reads the cluster: with watches for most objects ([`Cluster`]), and with requests where the result must be exact.

#[cfg(test)]
mod accepted_tests;
mod adoption_check;
mod apis;
mod class_parameters;
mod crd;
mod elsewhere;
mod gaps;
mod installation;
mod leases;
mod old_pods;
mod references;
mod revisions;
pub(crate) mod snapshot_controller;
mod wake;
mod watch_loop;
mod watches;
mod workloads;

use std::{collections::BTreeMap, fmt::Debug, ops::ControlFlow};

use cinder_operator_core::cluster::{
    AttachmentObject, Blockers, ClaimObject, ContentsList, GuardedObject, Indexed, KINDS, Key, Kind, OptionalApis,
    Owned, Owner, SnapshotContents, VolumeObject, is_applied, is_copy, key_of, unknown_object,
};
use k8s_openapi::{api::core::v1::PodSpec, apimachinery::pkg::apis::meta::v1::APIGroup};
use kube::{
    Client, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Request, TypeMeta},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

use cinder_csi_crds::INSTANCE_LABEL;

pub(crate) use adoption_check::{Successor, adoption_check};
pub use apis::discover;
pub(crate) use apis::watch_operands;
pub(crate) use elsewhere::installations_elsewhere;
pub use installation::{installation, leases_have_ended, pods_of, running_node_pods};
pub use leases::LeaseRenewals;
pub use old_pods::OldPods;
pub(crate) use references::review_secrets;
pub use revisions::{current_revision, newest_template};
pub(crate) use wake::{ChangeReceiver, ChangeSender, Changes, change_channel};
pub(crate) use watch_loop::{WatchHealth, WatchLoop};
pub use watches::Cluster;
pub(crate) use watches::hear;

use crate::kubernetes::{ApplyError, GuardedApi, answer, api_for, remedy, undecodable_error};

/// Number of objects per page of a long list.
const PAGE: u32 = 500;

/// Maximum number of pages of one list: ten times the volumes of the largest clusters for which Kubernetes is tested.
const MOST_PAGES: usize = 2_000;

/// Why a read of the cluster failed.
#[derive(Debug, Error)]
pub enum ObserveError {
    #[error("cannot list {plural}: {}{}", answer(source), remedy(source))]
    List {
        /// Plural name of the kind.
        plural: String,
        /// Response of the API server.
        source: Box<kube::Error>,
    },
    #[error("cannot read {key}: {}{}", answer(source), remedy(source))]
    Get {
        key: Key,
        /// Response of the API server.
        source: Box<kube::Error>,
    },
    /// The kind is not among the kinds that the operator creates.
    #[error(transparent)]
    Kind(#[from] ApplyError),
    #[error("cannot decode an object: {0}")]
    Decode(#[from] serde_json::Error),
    #[error("cannot determine which versions of {group} the API server has: {source}")]
    Group {
        group: String,
        /// Response of the API server.
        source: Box<kube::Error>,
    },
    /// An API group is served without a kind that may have objects of the driver.
    #[error(
        "the API server has the group {group} and not its kind {kind}, so it is unknown whether objects of it exist: apply its \
         CustomResourceDefinition again, or delete the other ones of the group"
    )]
    Missing { group: String, kind: String },
    /// The list exceeds the maximum number of pages.
    #[error("the list of {plural} does not end: more than {MOST_PAGES} pages of {PAGE}")]
    Endless {
        /// Plural name of the kind.
        plural: String,
    },
}

/// Lists the existing objects of this instance, by their label. Copies that other clients created are excluded, because
/// the operator may delete the returned objects when it does not need them. Kinds whose API is not served have no
/// objects.
pub async fn live(
    client: &Client,
    owner: &Owner,
    namespace: &str,
    apis: OptionalApis,
) -> Result<BTreeMap<Key, Value>, ObserveError> {
    let mut live = BTreeMap::new();
    for kind in KINDS.iter().filter(|kind| kind.is_served(apis)) {
        live.extend(live_of(client, owner, namespace, kind).await?);
    }
    Ok(live)
}

/// Lists the existing objects of this instance, and tolerates failed lists of optional kinds. Returns their errors by
/// kind.
///
/// The content of such a kind is unknown. The driver works without it, and all other objects are maintained.
pub async fn live_parts(
    client: &Client,
    owner: &Owner,
    namespace: &str,
    apis: OptionalApis,
) -> Result<(BTreeMap<Key, Value>, BTreeMap<&'static str, ObserveError>), ObserveError> {
    let (mut live, mut unlisted) = (BTreeMap::new(), BTreeMap::new());
    for kind in KINDS.iter().filter(|kind| kind.is_served(apis)) {
        match live_of(client, owner, namespace, kind).await {
            Ok(objects) => live.extend(objects),
            Err(error) if kind.optional.is_some() => drop(unlisted.insert(kind.kind, error)),
            Err(error) => return Err(error),
        }
    }
    Ok((live, unlisted))
}

async fn live_of(
    client: &Client,
    owner: &Owner,
    namespace: &str,
    kind: &'static Kind,
) -> Result<BTreeMap<Key, Value>, ObserveError> {
    let params = ListParams::default().labels(&format!("{INSTANCE_LABEL}={}", owner.name));
    let resource = kind.api_resource();
    let api: GuardedApi<DynamicObject> = if kind.namespaced {
        GuardedApi::namespaced_with(client.clone(), namespace, &resource)
    } else {
        GuardedApi::all_with(client.clone(), &resource)
    };
    let failed = |source| ObserveError::List {
        plural: kind.plural.to_owned(),
        source: Box::new(source),
    };
    let mut live = BTreeMap::new();
    for mut object in api.list(&params).await.map_err(failed)? {
        // Items of a list have no type.
        object.types = Some(TypeMeta {
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
        });
        let key = Key::new(kind.kind, object.metadata.namespace.as_deref(), &object.name_any());
        let object = serde_json::to_value(&object)?;
        if is_applied(&object) && !is_copy(&object) {
            live.insert(key, object);
        }
    }
    Ok(live)
}

/// Adds the objects of these names that exist without the label. They belong to another client, or have lost the label.
pub async fn complete(client: &Client, live: &mut BTreeMap<Key, Value>, desired: &[Key]) -> Result<(), ObserveError> {
    for key in desired {
        if live.contains_key(key) {
            continue;
        }
        let failed = |source| ObserveError::Get {
            key: key.clone(),
            source: Box::new(source),
        };
        if let Some(object) = api_for(client, key)?.get_opt(&key.name).await.map_err(failed)? {
            live.insert(key.clone(), serde_json::to_value(&object)?);
        }
    }
    Ok(())
}

/// Determines from the API server itself whether anything needs the driver, for irreversible decisions. It stops at the
/// first page with a result. `ignore_retained` excludes volumes with reclaim policy Retain.
///
/// Snapshots come first. No watch covers them, so they are listed repeatedly while nothing else blocks the removal.
pub async fn blockers(client: &Client, driver: &str, ignore_retained: bool) -> Result<Blockers, ObserveError> {
    let mut blockers = snapshots(client, driver).await?;
    if blockers.is_empty() {
        let counts = |volume: &VolumeObject| !(ignore_retained && volume.is_retained());
        blockers.volumes = names_of(client, driver, counts).await?;
    }
    if blockers.is_empty() {
        blockers.attachments = names_of(client, driver, |_: &AttachmentObject| true).await?;
    }
    if blockers.is_empty() {
        let claims: GuardedApi<ClaimObject> = GuardedApi::all(client.clone());
        let waits = |claim: &ClaimObject| claim.waits_for_volume_of(driver);
        blockers.claims = paged(&claims, "persistentvolumeclaims", waits).await?;
    }
    Ok(blockers)
}

/// Lists snapshots and group snapshots of the driver, which no watch covers. It stops at the first page with a result.
pub async fn snapshots(client: &Client, driver: &str) -> Result<Blockers, ObserveError> {
    let mut blockers = Blockers {
        snapshots: contents_of(client, driver, SNAPSHOTS).await?.unwrap_or_default(),
        ..Blockers::default()
    };
    if blockers.is_empty() {
        blockers.group_snapshots = contents_of(client, driver, GROUP_SNAPSHOTS).await?.unwrap_or_default();
    }
    Ok(blockers)
}

/// Lists the contents of both kinds, each up to the first page with contents of the driver.
pub(crate) async fn snapshot_contents(client: &Client, driver: &str) -> SnapshotContents {
    let list = async |kind| match contents_of(client, driver, kind).await {
        Ok(None) => ContentsList::Unconfirmed,
        Ok(Some(names)) if names.is_empty() => ContentsList::Empty,
        Ok(Some(names)) => ContentsList::Exist(names),
        Err(error) => ContentsList::Failed(error.to_string()),
    };
    SnapshotContents {
        snapshots: list(SNAPSHOTS).await,
        groups: list(GROUP_SNAPSHOTS).await,
        ..SnapshotContents::default()
    }
}

/// Group and kind of the contents of snapshots.
const SNAPSHOTS: (&str, &str) = ("snapshot.storage.k8s.io", "VolumeSnapshotContent");

/// Group and kind of the contents of group snapshots.
const GROUP_SNAPSHOTS: (&str, &str) = ("groupsnapshot.storage.k8s.io", "VolumeGroupSnapshotContent");

/// Lists contents of snapshots of the driver in every served version; `None` if the API server does not serve the
/// group. Earlier results of discovery are not sufficient. A group without the kind proves nothing: its
/// CustomResourceDefinition was deleted, and the snapshots remain in Cinder.
async fn contents_of(
    client: &Client,
    driver: &str,
    (group, kind): (&str, &str),
) -> Result<Option<Vec<String>>, ObserveError> {
    let is_ours = |object: &DynamicObject| object.data["spec"]["driver"] == driver;
    let list = async |version: &str| {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: GuardedApi<DynamicObject> = GuardedApi::all_with(client.clone(), &resource);
        match paged(&api, &resource.plural, is_ours).await {
            Err(ObserveError::List { source, .. }) if matches!(&*source, kube::Error::Api(status) if status.code == 404) => {
                Ok(None)
            }
            other => other.map(Some),
        }
    };
    if let Some(contents) = list("v1").await? {
        return Ok(Some(contents));
    }
    let failed = |source| ObserveError::Group {
        group: group.to_owned(),
        source: Box::new(source),
    };
    let request = http::Request::get(format!("/apis/{group}")).body(Vec::new());
    let request = request.map_err(|error| failed(kube::Error::HttpError(error)))?;
    let versions = match client.request::<APIGroup>(request).await {
        Ok(served) => served.versions,
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    for version in versions.iter().map(|version| version.version.as_str()) {
        if version != "v1"
            && let Some(contents) = list(version).await?
        {
            return Ok(Some(contents));
        }
    }
    Err(ObserveError::Missing {
        group: group.to_owned(),
        kind: kind.to_owned(),
    })
}

/// Lists the volumes that are attached, or will be attached, by a driver, each with its node. An attachment without a
/// driver counts as an attachment of this driver. An attachment without a node counts as on a node without a name.
///
/// The items are read as JSON, so that an undecodable item does not hide the others.
pub async fn attached_volumes(client: &Client, driver: &str) -> Result<Vec<(String, String)>, ObserveError> {
    let failed = |source| ObserveError::List {
        plural: "volumeattachments".to_owned(),
        source: Box::new(source),
    };
    let request = Request::new("/apis/storage.k8s.io/v1/volumeattachments");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut attached = Vec::new();
    let mut params = ListParams::default().limit(PAGE);
    for _ in 0..MOST_PAGES {
        let page = request
            .list(&params)
            .map_err(|error| failed(kube::Error::BuildRequest(error)))?;
        let page: Value = client.request(page).await.map_err(failed)?;
        let items = page["items"].as_array().into_iter().flatten();
        let is_ours = |item: &&Value| {
            item["spec"]["attacher"]
                .as_str()
                .is_none_or(|attacher| attacher == driver)
        };
        attached.extend(items.filter(is_ours).map(|item| {
            let volume = &item["spec"]["source"]["persistentVolumeName"];
            let volume = if volume.is_string() {
                volume
            } else {
                &item["metadata"]["name"]
            };
            (text(&item["spec"]["nodeName"]), text(volume))
        }));
        match page["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(token),
            None => return Ok(attached),
        }
    }
    Err(ObserveError::Endless {
        plural: "volumeattachments".to_owned(),
    })
}

async fn names_of<K>(client: &Client, driver: &str, counts: impl Fn(&K) -> bool) -> Result<Vec<String>, ObserveError>
where
    K: Indexed + Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    K::Kept: Owned,
{
    let api: GuardedApi<K> = GuardedApi::all_with(client.clone(), &());
    let is_ours = |object: &K| object.keep().is_some_and(|kept| kept.driver() == driver) && counts(object);
    paged(&api, &K::plural(&()), is_ours).await
}

/// Returns the sorted names of matching objects on the first page with a match, each with its namespace if it has one.
/// An undecodable object counts as a match, because it may be one.
pub(crate) async fn paged<K>(
    api: &GuardedApi<K>,
    plural: &str,
    is_match: impl Fn(&K) -> bool,
) -> Result<Vec<String>, ObserveError>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let mut names = Vec::new();
    pages(api, plural, |page| {
        names.extend(page.iter().filter_map(|object| match &object.0 {
            Ok(object) => is_match(object).then(|| key_of(object.meta())),
            Err(undecodable) => Some(unknown_object(&undecodable.key())),
        }));
        if names.is_empty() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })
    .await?;
    names.sort();
    Ok(names)
}

/// Passes all objects of a kind to `take`, page by page, until `take` breaks.
async fn pages<K>(
    api: &GuardedApi<K>,
    plural: &str,
    take: impl FnMut(Vec<GuardedObject<K>>) -> ControlFlow<()>,
) -> Result<(), ObserveError>
where
    K: Clone + Debug + DeserializeOwned,
{
    matching_pages(api, plural, ListParams::default(), take).await
}

/// Lists the objects that match the parameters.
async fn list_matching<K>(
    api: &GuardedApi<K>,
    plural: &str,
    params: ListParams,
) -> Result<Vec<GuardedObject<K>>, ObserveError>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut items = Vec::new();
    matching_pages(api, plural, params, |page| {
        items.extend(page);
        ControlFlow::Continue(())
    })
    .await?;
    Ok(items)
}

async fn matching_pages<K>(
    api: &GuardedApi<K>,
    plural: &str,
    params: ListParams,
    mut take: impl FnMut(Vec<GuardedObject<K>>) -> ControlFlow<()>,
) -> Result<(), ObserveError>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut params = params.limit(PAGE);
    for _ in 0..MOST_PAGES {
        let failed = |source| ObserveError::List {
            plural: plural.to_owned(),
            source: Box::new(source),
        };
        let page = api.list_guarded(&params).await.map_err(failed)?;
        let next = page.metadata.continue_.filter(|token| !token.is_empty());
        match (take(page.items), next) {
            (ControlFlow::Continue(()), Some(token)) => params = params.continue_token(&token),
            _ => return Ok(()),
        }
    }
    Err(ObserveError::Endless {
        plural: plural.to_owned(),
    })
}

/// Returns the objects of a page. An undecodable object is an error.
fn decoded<K>(page: Vec<GuardedObject<K>>, plural: &str) -> Result<Vec<K>, ObserveError> {
    let decoded = page.into_iter().map(|object| object.0);
    decoded
        .collect::<Result<_, _>>()
        .map_err(|undecodable| ObserveError::List {
            plural: plural.to_owned(),
            source: Box::new(undecodable_error(&undecodable)),
        })
}

/// The pod spec in the template of a Deployment or DaemonSet.
pub fn pod_template(workload: &Value) -> Option<PodSpec> {
    serde_json::from_value(workload.pointer("/spec/template/spec")?.clone()).ok()
}
