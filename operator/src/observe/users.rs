// SPDX-License-Identifier: Apache-2.0
//! Finds the objects that need the driver: volumes, attachments, claims and contents of snapshots.

use std::fmt::Debug;

use cinder_operator_core::cluster::{
    AttachmentObject, Blockers, ClaimObject, ContentsList, Indexed, Owned, SnapshotContents, VolumeObject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
use kube::{
    Client, Resource,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Request},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    error::{MOST_PAGES, ObserveError, PAGE},
    pages::paged,
};
use crate::kubernetes::GuardedApi;

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
