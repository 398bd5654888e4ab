// SPDX-License-Identifier: Apache-2.0
//! The clouds that one driver works on, and which of them a call is about.
//!
//! Handles are bare ids and say nothing about their cloud. What is new is made in the cloud that the call's secrets name or bring
//! credentials for, else in the one whose nodes are to use it. For what exists all clouds are asked. "Nobody has it" is an answer
//! only when every cloud gave it: one that cannot be reached may be the one.
//!
//! No request of a call goes out before [`UncheckedCloud::check`] has found the cloud in the project of its volumes. Elsewhere nothing
//! of them exists: they would count as deleted and detached, and new ones would be lost there.

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
use crate::status::{self, Act};
use crate::timing::TIMING;
use crate::topology::Marks;

/// The cloud without a name.
const UNNAMED: &str = "";
/// How many ids are remembered with their clouds; then the memory starts anew.
const PLACES: usize = 20_000;

/// All clouds of the process, by name. Cheap to clone; clones share sessions and memory. Clouds may come, and none ever goes: one that
/// vanished would turn its volumes into deleted ones.
#[derive(Debug, Clone)]
pub struct Clouds {
    inner: Arc<CloudsInner>,
}

#[derive(Debug)]
struct CloudsInner {
    named: RwLock<Arc<BTreeMap<String, UncheckedCloud>>>,
    sessions: Sessions,
    /// Where ids were found. An id never moves to another cloud.
    places: Mutex<HashMap<String, String>>,
    /// When an id was found with the secrets of a call, by a hash of them and the id.
    found: Mutex<HashMap<(String, String), Instant>>,
}

/// Where a new volume goes.
#[derive(Debug, Clone)]
pub struct CloudChoice {
    pub cloud: UncheckedCloud,
    /// What of the request's requirement is about this cloud's nodes.
    pub requirement: Option<TopologyRequirement>,
}

impl Clouds {
    /// These clouds, by their names in `cloud.conf`. `options` are for the sessions with credentials from secrets.
    pub fn new(named: BTreeMap<String, Cloud>, options: CloudOptions) -> Self {
        let named = named.into_iter().map(|(name, cloud)| {
            let unchecked = UncheckedCloud::new(name.as_str(), cloud);
            (name, unchecked)
        });
        Self {
            inner: Arc::new(CloudsInner {
                named: RwLock::new(Arc::new(named.collect())),
                sessions: Sessions::new(options),
                places: Mutex::default(),
                found: Mutex::default(),
            }),
        }
    }

    /// One cloud without a name.
    pub fn one(cloud: Cloud) -> Self {
        Self::new(BTreeMap::from([(UNNAMED.to_owned(), cloud)]), CloudOptions::default())
    }

    /// Takes on one more cloud, for all clones. A name that is known keeps its cloud.
    pub fn add(&self, name: &str, cloud: Cloud) {
        let mut named = self.inner.named.write();
        Arc::make_mut(&mut named)
            .entry(name.to_owned())
            .or_insert_with(|| UncheckedCloud::new(name, cloud));
    }

    /// The clouds as they are now.
    fn named(&self) -> Arc<BTreeMap<String, UncheckedCloud>> {
        Arc::clone(&self.inner.named.read())
    }

    /// The cloud that new things are made in: the one that the secrets bring credentials for or name, else the default, which is the
    /// cloud without a name or the only one. `INVALID_ARGUMENT` for a name that nobody knows and for malformed credentials; asks
    /// nobody.
    pub fn chosen(&self, secrets: &BTreeMap<String, String>) -> Result<UncheckedCloud, Status> {
        match self.of_secrets(secrets)? {
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

    /// The cloud for a new volume of this name: as [`Clouds::chosen`], and where the secrets say nothing, the cloud whose nodes are
    /// asked for, preferred ones first. A cloud that has the volume already goes before: a repeated request may prefer another one.
    /// A volume with a source is made where the source is.
    pub async fn place(
        &self,
        secrets: &BTreeMap<String, String>,
        requirement: Option<&TopologyRequirement>,
        source: Option<&Source>,
        name: &str,
    ) -> Result<CloudChoice, Status> {
        let whole = |cloud: UncheckedCloud| CloudChoice {
            cloud,
            requirement: requirement.cloned(),
        };
        if let Some(cloud) = self.of_secrets(secrets)? {
            return Ok(whole(cloud));
        }
        let named = self.named();
        if named.len() == 1 {
            return self.chosen(secrets).map(whole);
        }
        let holder = match source {
            None => None,
            Some(Source::PointInTime(id)) => self.holder(CloudObject::Snapshot(id), secrets).await?,
            Some(Source::Volume(id)) => self.holder(CloudObject::Volume(id), secrets).await?,
        };
        let holder = match (source, holder) {
            // The source was deleted after an earlier attempt created the volume.
            (Some(_), None) => self.holder(CloudObject::VolumeName(name), secrets).await?,
            (_, holder) => holder,
        };
        if let Some(cloud) = holder {
            let marks = marks(&cloud.config());
            let ours = requirement.map(|asked| marks.only(asked));
            let is_unreachable = |asked: &TopologyRequirement, ours: &TopologyRequirement| {
                !asked.requisite.is_empty() && ours.requisite.is_empty()
            };
            if requirement
                .zip(ours.as_ref())
                .is_some_and(|(asked, ours)| is_unreachable(asked, ours))
            {
                return Err(status::zone_impossible(format_args!(
                    "the source of volume {name} is in a cloud ({marks}) that none of the requested nodes can reach; run the pod on \
                     nodes of that cloud, or use a source in the cloud of the nodes"
                )));
            }
            return Ok(CloudChoice {
                cloud,
                requirement: ours,
            });
        }
        let Some(asked) = requirement else {
            return self.chosen(secrets).map(whole);
        };
        let mut wanted: Vec<(&UncheckedCloud, Marks)> = Vec::new();
        for topology in asked.preferred.iter().chain(&asked.requisite) {
            for cloud in named.values() {
                let marks = marks(&cloud.config());
                if marks.meet(topology) && wanted.iter().all(|(_, known)| *known != marks) {
                    wanted.push((cloud, marks));
                }
            }
        }
        let place = |(cloud, marks): &(&UncheckedCloud, Marks)| CloudChoice {
            cloud: (*cloud).clone(),
            requirement: Some(marks.only(asked)),
        };
        match wanted.as_slice() {
            [] => self.chosen(secrets).map(whole),
            [only] => Ok(place(only)),
            [first, others @ ..] => {
                let looks = others.iter().map(|other| async move {
                    let volumes = async { other.0.check().await.ok()?.volumes_named(name).await.ok() };
                    let found = tokio::time::timeout(TIMING.other_clouds_timeout, volumes).await;
                    // The provisioner repeats an uncertain request with the same preference, so this is a precaution only, and no
                    // reason to refuse volumes while another cloud is unavailable.
                    let is_there = found.ok().flatten().is_some_and(|volumes| !volumes.is_empty());
                    is_there.then_some(other)
                });
                let found = futures::future::join_all(looks).await.into_iter().flatten().next();
                Ok(place(found.unwrap_or(first)))
            }
        }
    }

    /// The cloud that volumes for nodes of a topology are made in where no secrets say otherwise: as [`Clouds::place`], and asks
    /// nobody.
    pub fn of_topology(&self, topology: Option<&Topology>) -> Result<UncheckedCloud, Status> {
        let named = self.named();
        let several = named.values().filter(|_| named.len() > 1);
        let mut meant = several.filter(|cloud| topology.is_some_and(|topology| marks(&cloud.config()).meet(topology)));
        let meant = meant.next();
        meant.map_or_else(|| self.chosen(&BTreeMap::new()), |cloud| Ok(cloud.clone()))
    }

    /// The cloud that has a volume; `None` when none has. A single cloud is not asked: the call that follows asks it. `UNAVAILABLE`
    /// when it was not found and a cloud did not answer.
    pub async fn of_volume(
        &self,
        volume: &VolumeId,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Option<Cloud>, Status> {
        check_holder(self.holder(CloudObject::Volume(volume), secrets).await?).await
    }

    /// The cloud that has a snapshot or a backup, as [`Clouds::of_volume`].
    pub async fn of_snapshot(
        &self,
        snapshot: &str,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Option<Cloud>, Status> {
        check_holder(self.holder(CloudObject::Snapshot(snapshot), secrets).await?).await
    }

    /// The cloud that has a group snapshot, as [`Clouds::of_volume`].
    pub async fn of_group_snapshot(
        &self,
        group_snapshot: &GroupSnapshotId,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Option<Cloud>, Status> {
        check_holder(self.holder(CloudObject::GroupSnapshot(group_snapshot), secrets).await?).await
    }

    /// Every cloud with its name, in the order of their names; without those of credentials in secrets. Fails where one fails its
    /// check: what is missing in a list counts as detached or deleted.
    pub async fn all(&self) -> Result<Vec<(String, Cloud)>, Status> {
        let clouds = self.configured();
        let checks = (clouds.iter()).map(async |(name, cloud)| Ok((name.clone(), cloud.check().await?)));
        futures::future::try_join_all(checks).await
    }

    /// The same without a check.
    pub fn configured(&self) -> Vec<(String, UncheckedCloud)> {
        self.named()
            .iter()
            .map(|(name, cloud)| (name.clone(), cloud.clone()))
            .collect()
    }

    /// Ends the use of sessions that were made with a cloud's options before they changed.
    pub fn forget_sessions(&self) {
        self.inner.sessions.clear();
    }

    fn default_cloud(&self) -> Option<UncheckedCloud> {
        let named = self.named();
        let only = || named.values().next().filter(|_| named.len() == 1);
        named.get(UNNAMED).or_else(only).cloned()
    }

    fn of_secrets(&self, secrets: &BTreeMap<String, String>) -> Result<Option<UncheckedCloud>, Status> {
        let known = self.named();
        let named = match secrets.get(SECRET_CLOUD).map_or(UNNAMED, String::as_str) {
            UNNAMED => None,
            // Without its value: what comes as a secret goes into no message.
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

    /// Queries the cloud that the secrets name first, then all others at once.
    async fn holder(
        &self,
        object: CloudObject<'_>,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Option<UncheckedCloud>, Status> {
        let first = self.of_secrets(secrets)?;
        let named = self.named();
        let only = || named.values().next().filter(|_| first.is_none() && named.len() == 1);
        let known = self
            .places()
            .get(object.id())
            .and_then(|name| named.get(name))
            .or_else(only);
        if let Some(known) = known {
            return Ok(Some(known.clone()));
        }
        if let Some(first) = &first {
            let cloud = first.check().await?;
            let key = (self.inner.sessions.hash(secrets), object.id().to_owned());
            let found = self.is_found(&key)
                || object
                    .is_in(&cloud)
                    .await
                    .map_err(|error| status::cloud(Act::Look, &error))?;
            if found {
                self.remember_found(key);
                return Ok(Some(first.clone()));
            }
        }
        let mut asked: FuturesUnordered<_> = named
            .iter()
            .filter(|(_, cloud)| first.as_ref().is_none_or(|first| !first.is(cloud)))
            .map(|(name, cloud)| async move {
                let look = async {
                    let found = object.is_in(&cloud.check().await?).await;
                    found.map_err(|error| status::cloud_silent(object.kind(), object.id(), name, &error))
                };
                (name, look.await)
            })
            .collect();
        let mut silent = None;
        while let Some((name, answer)) = asked.next().await {
            match answer {
                Ok(true) => {
                    if !matches!(object, CloudObject::VolumeName(_)) {
                        self.remember(object.id(), name);
                    }
                    return Ok(named.get(name).cloned());
                }
                Ok(false) => {}
                Err(status) => silent = Some(status),
            }
        }
        silent.map_or(Ok(None), Err)
    }

    fn is_found(&self, key: &(String, String)) -> bool {
        let found = self.inner.found.lock();
        found.get(key).is_some_and(|at| at.elapsed() < TIMING.found_cloud_ttl)
    }

    /// Keeps the moment of the first look: what the credentials may see can change.
    fn remember_found(&self, key: (String, String)) {
        let mut found = self.inner.found.lock();
        if found.len() >= PLACES {
            found.clear();
        }
        let at = found.entry(key).or_insert_with(Instant::now);
        if at.elapsed() >= TIMING.found_cloud_ttl {
            *at = Instant::now();
        }
    }

    fn remember(&self, id: &str, name: &str) {
        let mut places = self.places();
        if places.len() >= PLACES {
            places.clear();
        }
        places.insert(id.to_owned(), name.to_owned());
    }

    fn places(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.inner.places.lock()
    }
}

/// An existing thing whose cloud is to be found.
#[derive(Debug, Clone, Copy)]
enum CloudObject<'a> {
    Volume(&'a VolumeId),
    /// A snapshot or a backup.
    Snapshot(&'a str),
    GroupSnapshot(&'a GroupSnapshotId),
    /// A volume by its name, which is not remembered.
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

    async fn is_in(&self, cloud: &Cloud) -> Result<bool, CloudError> {
        if cloud.has_new(self.id()) {
            return Ok(true);
        }
        match self {
            Self::Volume(id) => cloud.volume(id).await.map(|found| found.is_some()),
            Self::Snapshot(id) => cloud.point_in_time(id).await.map(|found| found.is_some()),
            Self::GroupSnapshot(id) => cloud.group_snapshot(id).await.map(|found| found.is_some()),
            Self::VolumeName(name) => cloud.volumes_named(name).await.map(|found| !found.is_empty()),
        }
    }
}

async fn check_holder(cloud: Option<UncheckedCloud>) -> Result<Option<Cloud>, Status> {
    match cloud {
        Some(cloud) => cloud.check().await.map(Some),
        None => Ok(None),
    }
}

fn marks(config: &CloudConfig) -> Marks {
    Marks::new(&config.topology, config.region.as_deref())
}

#[cfg(test)]
mod tests;
