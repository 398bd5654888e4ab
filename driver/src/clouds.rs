// SPDX-License-Identifier: Apache-2.0
//! Selects the cloud of each call.
//!
//! Volume handles are bare ids and do not contain their cloud. The secrets of a call may select the cloud of a new
//! object, by a name or by credentials. Otherwise the requested nodes select it. For an existing object, all clouds are
//! queried. The driver reports it as missing only if every cloud responded, because an unreachable cloud may have it.
//!
//! Before each call, [`UncheckedCloud::check`] verifies that the credentials belong to the project of the cloud's
//! volumes. In another project, existing volumes would count as deleted and detached, and new volumes would be lost.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cinder_cloud::{Cloud, CloudConfig, CloudError, CloudOptions, GroupSnapshotId, Source, VolumeId};
use csi_proto::csi::v1::{Topology, TopologyRequirement};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::time::Instant;
use tonic::Status;

mod sessions;
mod unchecked;

use sessions::Sessions;
pub use unchecked::UncheckedCloud;

use crate::parameters::SECRET_CLOUD;
use crate::status::{self, CloudAction};
use crate::timing::TIMING;
use crate::topology::CloudSegments;

/// The name of the cloud without a name.
const UNNAMED: &str = "";
/// The maximum number of ids with a cached cloud. The cache is cleared when it is full.
const MAX_CACHED_IDS: usize = 20_000;

/// All clouds of the process, by name. Cheap to clone; clones share sessions and caches.
///
/// Clouds may be added but are never removed, because volumes of a removed cloud would count as deleted.
#[derive(Debug, Clone)]
pub struct Clouds {
    inner: Arc<CloudsInner>,
}

#[derive(Debug)]
struct CloudsInner {
    named: RwLock<Arc<BTreeMap<String, UncheckedCloud>>>,
    sessions: Sessions,
    /// The clouds of ids. An id never moves to another cloud.
    cloud_of_id: Mutex<HashMap<String, String>>,
    /// The time at which an id was found with the secrets of a call, by a hash of the secrets and the id.
    found_with_secrets: Mutex<HashMap<(String, String), Instant>>,
}

/// The cloud of a new volume.
#[derive(Debug, Clone)]
pub struct CloudChoice {
    pub cloud: UncheckedCloud,
    /// The part of the requested topology that concerns the nodes of this cloud.
    pub requirement: Option<TopologyRequirement>,
}

impl Clouds {
    /// Creates the clouds, by their names in `cloud.conf`. `options` are for sessions with credentials from secrets.
    pub fn new(named: BTreeMap<String, Cloud>, options: CloudOptions) -> Self {
        let named = named.into_iter().map(|(name, cloud)| {
            let unchecked = UncheckedCloud::new(name.as_str(), cloud);
            (name, unchecked)
        });
        Self {
            inner: Arc::new(CloudsInner {
                named: RwLock::new(Arc::new(named.collect())),
                sessions: Sessions::new(options),
                cloud_of_id: Mutex::default(),
                found_with_secrets: Mutex::default(),
            }),
        }
    }

    /// Creates a single cloud without a name.
    pub fn single(cloud: Cloud) -> Self {
        Self::new(BTreeMap::from([(UNNAMED.to_owned(), cloud)]), CloudOptions::default())
    }

    /// Adds a cloud for all clones. If the name is known, its existing cloud is retained.
    pub fn add(&self, name: &str, cloud: Cloud) {
        let mut named = self.inner.named.write();
        Arc::make_mut(&mut named)
            .entry(name.to_owned())
            .or_insert_with(|| UncheckedCloud::new(name, cloud));
    }

    fn named(&self) -> Arc<BTreeMap<String, UncheckedCloud>> {
        Arc::clone(&self.inner.named.read())
    }

    /// Returns the cloud for new objects: the cloud that the secrets have credentials for or name, else the default.
    ///
    /// The default is the cloud without a name, or the only one. `INVALID_ARGUMENT` for an unknown name and for
    /// malformed credentials. Sends no request.
    pub fn choose(&self, secrets: &BTreeMap<String, String>) -> Result<UncheckedCloud, Status> {
        match self.select_by_secrets(secrets)? {
            Some(cloud) => Ok(cloud),
            None => self.default_cloud().ok_or_else(|| {
                status::invalid(
                    "secrets",
                    format_args!(
                        "this driver serves several clouds; name one under {SECRET_CLOUD} in the Secret of the class, or distinguish \
                         them by topology"
                    ),
                )
            }),
        }
    }

    /// Returns the clouds in which a new volume may be created, in order of preference. Sends no request.
    ///
    /// * The secrets decide first, as in [`Clouds::choose`].
    /// * A volume with a source may be created in each cloud that the requested nodes can reach.
    /// * Otherwise the requested nodes decide.
    pub fn candidates(
        &self,
        secrets: &BTreeMap<String, String>,
        requirement: Option<&TopologyRequirement>,
        source: Option<&Source>,
    ) -> Result<Vec<CloudChoice>, Status> {
        let whole = |cloud: UncheckedCloud| CloudChoice {
            cloud,
            requirement: requirement.cloned(),
        };
        let named = self.named();
        if let Some(cloud) = self.select_by_secrets(secrets)? {
            return Ok(vec![whole(cloud)]);
        }
        if source.is_some() && named.len() > 1 {
            let choices = named.values().map(|cloud| choice_within(cloud, requirement));
            return Ok(choices.filter_map(Result::ok).collect());
        }
        let mut candidates: Vec<(CloudSegments, CloudChoice)> = Vec::new();
        let several = requirement.filter(|_| named.len() > 1);
        for topology in several
            .iter()
            .flat_map(|requested| requested.preferred.iter().chain(&requested.requisite))
        {
            for cloud in named.values() {
                let segments = segments(&cloud.config());
                if segments.matches(topology) && candidates.iter().all(|(known, _)| *known != segments) {
                    let requirement = several.map(|requested| segments.restrict(requested));
                    let cloud = cloud.clone();
                    candidates.push((segments, CloudChoice { cloud, requirement }));
                }
            }
        }
        if candidates.is_empty() {
            return Ok(vec![whole(self.choose(secrets)?)]);
        }
        Ok(candidates.into_iter().map(|(_, choice)| choice).collect())
    }

    /// Returns the cloud for a new volume of this name, among the [candidates](Clouds::candidates).
    ///
    /// * A volume with a source is created in the cloud of the source.
    /// * A cloud that already has a volume of this name has precedence over the preferred one, because a repeated
    ///   request may prefer another cloud.
    pub async fn choose_for_volume(
        &self,
        secrets: &BTreeMap<String, String>,
        requirement: Option<&TopologyRequirement>,
        source: Option<&Source>,
        name: &str,
    ) -> Result<CloudChoice, Status> {
        let is_settled = self.named().len() == 1 || self.select_by_secrets(secrets)?.is_some();
        if let Some(source) = source.filter(|_| !is_settled) {
            let object = match source {
                Source::PointInTime(id) => CloudObject::Snapshot(id),
                Source::Volume(id) => CloudObject::Volume(id),
            };
            let holder = match self.find_holder(object, secrets).await? {
                // The source was deleted after an earlier attempt created the volume.
                None => self.find_holder(CloudObject::VolumeName(name), secrets).await?,
                holder => holder,
            };
            if let Some(cloud) = holder {
                return choice_within(&cloud, requirement).map_err(|segments| {
                    status::zone_impossible(format_args!(
                        "the source of volume {name} is in a cloud ({segments}) that none of the requested nodes can reach; run the \
                         pod on nodes of that cloud, or use a source in the cloud of the nodes"
                    ))
                });
            }
        }
        let mut candidates = self.candidates(secrets, requirement, None)?.into_iter();
        let Some(first) = candidates.next() else {
            return Err(status::invalid("secrets", "the driver has no cloud"));
        };
        let queries = candidates.map(|other| async move {
            let volumes = async { other.cloud.check().await.ok()?.volumes_named(name).await.ok() };
            let answer = tokio::time::timeout(TIMING.other_clouds_timeout, volumes).await;
            // The provisioner repeats an uncertain request with the same preference. This query is therefore a
            // precaution, and ignores an unavailable cloud.
            let has_volume = answer.ok().flatten().is_some_and(|volumes| !volumes.is_empty());
            has_volume.then_some(other)
        });
        let existing = futures::future::join_all(queries).await.into_iter().flatten().next();
        Ok(existing.unwrap_or(first))
    }

    /// Returns the cloud for volumes of nodes with a topology, for calls without secrets. Sends no request.
    pub fn choose_for_topology(&self, topology: Option<&Topology>) -> Result<UncheckedCloud, Status> {
        let named = self.named();
        let several = named.values().filter(|_| named.len() > 1);
        let mut matching =
            several.filter(|cloud| topology.is_some_and(|topology| segments(&cloud.config()).matches(topology)));
        let matching = matching.next();
        matching.map_or_else(|| self.choose(&BTreeMap::new()), |cloud| Ok(cloud.clone()))
    }

    /// Returns the cloud that has a volume; `None` if no cloud has it.
    ///
    /// A single cloud is returned without a query, because the following call queries it. `UNAVAILABLE` if the volume
    /// was not found and a cloud did not respond.
    pub async fn cloud_of_volume(
        &self,
        volume: &VolumeId,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Option<Cloud>, Status> {
        check_holder(self.find_holder(CloudObject::Volume(volume), secrets).await?).await
    }

    /// Returns the cloud that has a snapshot or a backup, like [`Clouds::cloud_of_volume`].
    pub async fn cloud_of_snapshot(
        &self,
        snapshot: &str,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Option<Cloud>, Status> {
        check_holder(self.find_holder(CloudObject::Snapshot(snapshot), secrets).await?).await
    }

    /// Returns the cloud that has a group snapshot, like [`Clouds::cloud_of_volume`].
    pub async fn cloud_of_group_snapshot(
        &self,
        group_snapshot: &GroupSnapshotId,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Option<Cloud>, Status> {
        check_holder(
            self.find_holder(CloudObject::GroupSnapshot(group_snapshot), secrets)
                .await?,
        )
        .await
    }

    /// Returns the cloud that has an object, like [`Clouds::cloud_of_volume`]. `None` proves that no cloud has it.
    ///
    /// A 404 of an API node with a lagging database proves nothing. The clouds are therefore queried again when each of
    /// them must know the object. Calls that succeed without the object use this function.
    pub async fn confirmed_cloud(
        &self,
        object: CloudObject<'_>,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Option<Cloud>, Status> {
        // Before the queries, because a response at the end of the lag may show the state before it.
        let session = self.select_by_secrets(secrets)?;
        let clouds = self.configured().into_iter().map(|(_, cloud)| cloud).chain(session);
        let unknown = clouds.filter_map(|cloud| cloud.unknown_for(object.id())).max();
        let holder = match (self.find_holder(object, secrets).await?, unknown) {
            (None, Some(remaining)) => {
                tokio::time::sleep(remaining).await;
                self.find_holder(object, secrets).await?
            }
            (holder, _) => holder,
        };
        check_holder(holder).await
    }

    /// Returns all configured clouds, ordered by name.
    ///
    /// Fails if the check of one cloud fails, because entries that are missing in a list count as detached or deleted.
    pub async fn all(&self) -> Result<Vec<(String, Cloud)>, Status> {
        let clouds = self.configured();
        let checks = (clouds.iter()).map(async |(name, cloud)| Ok((name.clone(), cloud.check().await?)));
        futures::future::try_join_all(checks).await
    }

    /// Like [`Clouds::all`], without the check.
    pub fn configured(&self) -> Vec<(String, UncheckedCloud)> {
        self.named()
            .iter()
            .map(|(name, cloud)| (name.clone(), cloud.clone()))
            .collect()
    }

    /// Drops the sessions that use earlier options of a cloud.
    pub fn forget_sessions(&self) {
        self.inner.sessions.clear();
    }

    fn default_cloud(&self) -> Option<UncheckedCloud> {
        let named = self.named();
        let only = || named.values().next().filter(|_| named.len() == 1);
        named.get(UNNAMED).or_else(only).cloned()
    }

    fn select_by_secrets(&self, secrets: &BTreeMap<String, String>) -> Result<Option<UncheckedCloud>, Status> {
        let known = self.named();
        let named = match secrets.get(SECRET_CLOUD).map_or(UNNAMED, String::as_str) {
            UNNAMED => None,
            // The message omits the name, because values of secrets must not appear in messages.
            name => Some(known.get(name).cloned().ok_or_else(|| {
                status::invalid(
                    "secrets",
                    format_args!("the cloud that {SECRET_CLOUD} names is not known to this driver"),
                )
            })?),
        };
        let base = named.clone().or_else(|| self.default_cloud());
        let base = base.or_else(|| known.values().next().cloned());
        let session = base
            .map(|base| self.inner.sessions.session(secrets, &base.config()))
            .transpose()?;
        let session = session.flatten().map(|session| UncheckedCloud::new(UNNAMED, session));
        Ok(session.or(named))
    }

    /// Queries the cloud of the secrets first, then all others in parallel.
    async fn find_holder(
        &self,
        object: CloudObject<'_>,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Option<UncheckedCloud>, Status> {
        let first = self.select_by_secrets(secrets)?;
        let named = self.named();
        let only = || named.values().next().filter(|_| first.is_none() && named.len() == 1);
        let known = self
            .cloud_of_id()
            .get(object.id())
            .and_then(|name| named.get(name))
            .or_else(only);
        if let Some(known) = known {
            return Ok(Some(known.clone()));
        }
        if let Some(first) = &first {
            let cloud = first.check().await?;
            let key = (self.inner.sessions.hash(secrets), object.id().to_owned());
            let exists = self.is_cached(&key)
                || object
                    .exists_in(&cloud)
                    .await
                    .map_err(|error| status::from_cloud(CloudAction::Look, &error))?;
            if exists {
                self.cache_found(key);
                return Ok(Some(first.clone()));
            }
        }
        let mut pending: FuturesUnordered<_> = named
            .iter()
            .filter(|(_, cloud)| first.as_ref().is_none_or(|first| !first.is_same(cloud)))
            .map(|(name, cloud)| async move {
                let query = async {
                    let exists = object.exists_in(&cloud.check().await?).await;
                    exists.map_err(|error| status::cloud_unresponsive(object.kind(), object.id(), name, &error))
                };
                (name, query.await)
            })
            .collect();
        let mut silent = None;
        while let Some((name, answer)) = pending.next().await {
            match answer {
                Ok(true) => {
                    if !matches!(object, CloudObject::VolumeName(_)) {
                        self.cache_cloud(object.id(), name);
                    }
                    return Ok(named.get(name).cloned());
                }
                Ok(false) => {}
                Err(status) => silent = Some(status),
            }
        }
        silent.map_or(Ok(None), Err)
    }

    fn is_cached(&self, key: &(String, String)) -> bool {
        let found = self.inner.found_with_secrets.lock();
        found.get(key).is_some_and(|at| at.elapsed() < TIMING.found_cloud_ttl)
    }

    /// Records the time of the first query, not of the last, because the permissions of the credentials can change.
    fn cache_found(&self, key: (String, String)) {
        let mut found = self.inner.found_with_secrets.lock();
        if found.len() >= MAX_CACHED_IDS {
            found.clear();
        }
        let at = found.entry(key).or_insert_with(Instant::now);
        if at.elapsed() >= TIMING.found_cloud_ttl {
            *at = Instant::now();
        }
    }

    fn cache_cloud(&self, id: &str, name: &str) {
        let mut cloud_of_id = self.cloud_of_id();
        if cloud_of_id.len() >= MAX_CACHED_IDS {
            cloud_of_id.clear();
        }
        cloud_of_id.insert(id.to_owned(), name.to_owned());
    }

    fn cloud_of_id(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.inner.cloud_of_id.lock()
    }
}

/// An existing object in an unknown cloud.
#[derive(Debug, Clone, Copy)]
pub enum CloudObject<'a> {
    Volume(&'a VolumeId),
    /// A snapshot or a backup.
    Snapshot(&'a str),
    GroupSnapshot(&'a GroupSnapshotId),
    /// A volume by its name. Its cloud is not cached.
    VolumeName(&'a str),
}

impl CloudObject<'_> {
    fn kind(&self) -> &'static str {
        match self {
            Self::Volume(_) | Self::VolumeName(_) => "volume",
            Self::Snapshot(_) => "snapshot",
            Self::GroupSnapshot(_) => "group snapshot",
        }
    }

    fn id(&self) -> &str {
        match self {
            Self::Volume(id) => id.as_str(),
            Self::Snapshot(id) | Self::VolumeName(id) => id,
            Self::GroupSnapshot(id) => id.as_str(),
        }
    }

    async fn exists_in(&self, cloud: &Cloud) -> Result<bool, CloudError> {
        if cloud.has_new(self.id()) {
            return Ok(true);
        }
        match self {
            Self::Volume(id) => cloud.volume(id).await.map(|object| object.is_some()),
            Self::Snapshot(id) => cloud.point_in_time(id).await.map(|object| object.is_some()),
            Self::GroupSnapshot(id) => cloud.group_snapshot(id).await.map(|object| object.is_some()),
            Self::VolumeName(name) => cloud.volumes_named(name).await.map(|object| !object.is_empty()),
        }
    }
}

async fn check_holder(cloud: Option<UncheckedCloud>) -> Result<Option<Cloud>, Status> {
    match cloud {
        Some(cloud) => cloud.check().await.map(Some),
        None => Ok(None),
    }
}

/// Returns the part of a requirement that concerns the nodes of a cloud. Fails with the segments of the cloud if none of
/// the required nodes can reach it.
fn choice_within(
    cloud: &UncheckedCloud,
    requirement: Option<&TopologyRequirement>,
) -> Result<CloudChoice, CloudSegments> {
    let segments = segments(&cloud.config());
    let ours = requirement.map(|requested| segments.restrict(requested));
    let is_unreachable = requirement
        .zip(ours.as_ref())
        .is_some_and(|(requested, ours)| !requested.requisite.is_empty() && ours.requisite.is_empty());
    if is_unreachable {
        return Err(segments);
    }
    Ok(CloudChoice {
        cloud: cloud.clone(),
        requirement: ours,
    })
}

fn segments(config: &CloudConfig) -> CloudSegments {
    CloudSegments::new(&config.topology, config.region.as_deref())
}

#[cfg(test)]
mod tests;
