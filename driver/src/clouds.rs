// SPDX-License-Identifier: Apache-2.0
//! The clouds that one driver works on, and which of them a call is about.
//!
//! Handles are bare ids and say nothing about their cloud. What is new is made in the cloud that the call's secrets name or bring
//! credentials for, else in the one whose nodes are to use it. For what exists all clouds are asked. "Nobody has it" is an answer
//! only when every cloud gave it: one that cannot be reached may be the one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cinder_cloud::{Cloud, CloudError, CloudOptions, Source, VolumeId};
use csi_proto::csi::v1::{Topology, TopologyRequirement};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::time::Instant;
use tonic::Status;

mod sessions;

use sessions::Sessions;

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
    named: RwLock<Arc<BTreeMap<String, Cloud>>>,
    /// By cloud, the project that it is to work in.
    projects: BTreeMap<String, String>,
    sessions: Sessions,
    /// Where ids were found. An id never moves to another cloud.
    places: Mutex<HashMap<String, String>>,
    /// When an id was found with the secrets of a call, by a hash of them and the id.
    found: Mutex<HashMap<(String, String), Instant>>,
}

/// Where a new volume goes.
#[derive(Debug, Clone)]
pub struct CloudChoice {
    /// The cloud.
    pub cloud: Cloud,
    /// What of the request's requirement is about this cloud's nodes.
    pub requirement: Option<TopologyRequirement>,
}

impl Clouds {
    /// These clouds, by their names in `cloud.conf`. `options` are for the sessions with credentials from secrets.
    pub fn new(named: BTreeMap<String, Cloud>, options: CloudOptions) -> Self {
        Self::with_projects(named, options, BTreeMap::new())
    }

    /// The same, with the projects that clouds are to work in: while credentials lead to another one, calls about existing things are
    /// refused with `UNAVAILABLE`. There nothing of them exists, and they would be taken for deleted.
    pub fn with_projects(
        named: BTreeMap<String, Cloud>,
        options: CloudOptions,
        projects: BTreeMap<String, String>,
    ) -> Self {
        Self {
            inner: Arc::new(CloudsInner {
                named: RwLock::new(Arc::new(named)),
                projects,
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
        Arc::make_mut(&mut named).entry(name.to_owned()).or_insert(cloud);
    }

    /// The clouds as they are now.
    fn named(&self) -> Arc<BTreeMap<String, Cloud>> {
        Arc::clone(&self.inner.named.read())
    }

    /// The cloud that new things are made in: the one that the secrets bring credentials for or name, else the default, which is the
    /// cloud without a name or the only one. `INVALID_ARGUMENT` for a name that nobody knows and for malformed credentials; asks
    /// nobody.
    pub fn chosen(&self, secrets: &BTreeMap<String, String>) -> Result<Cloud, Status> {
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
        let whole = |cloud: Cloud| CloudChoice {
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
            Some(Source::PointInTime(id)) => self.of_snapshot(id, secrets).await?,
            Some(Source::Volume(id)) => self.of_volume(id, secrets).await?,
        };
        if let Some(cloud) = holder {
            let ours = requirement.map(|asked| marks(&cloud).only(asked));
            return Ok(CloudChoice {
                cloud,
                requirement: ours,
            });
        }
        let Some(asked) = requirement else {
            return self.chosen(secrets).map(whole);
        };
        let mut wanted: Vec<(&Cloud, Marks)> = Vec::new();
        for topology in asked.preferred.iter().chain(&asked.requisite) {
            for cloud in named.values() {
                let marks = marks(cloud);
                if marks.meet(topology) && wanted.iter().all(|(_, known)| *known != marks) {
                    wanted.push((cloud, marks));
                }
            }
        }
        let place = |(cloud, marks): &(&Cloud, Marks)| CloudChoice {
            cloud: (*cloud).clone(),
            requirement: Some(marks.only(asked)),
        };
        match wanted.as_slice() {
            [] => self.chosen(secrets).map(whole),
            [only] => Ok(place(only)),
            [first, others @ ..] => {
                let looks = others.iter().map(|other| async move {
                    let found = tokio::time::timeout(TIMING.other_clouds_timeout, other.0.volumes_named(name)).await;
                    match found {
                        Ok(Ok(volumes)) => (!volumes.is_empty()).then_some(other),
                        // The provisioner repeats an uncertain request with the same preference, so this is a precaution only, and
                        // no reason to refuse volumes while another cloud is away.
                        Ok(Err(_)) | Err(_) => None,
                    }
                });
                let found = futures::future::join_all(looks).await.into_iter().flatten().next();
                Ok(place(found.unwrap_or(first)))
            }
        }
    }

    /// The cloud that volumes for nodes of a topology are made in where no secrets say otherwise: as [`Clouds::place`], and asks
    /// nobody.
    pub fn of_topology(&self, topology: Option<&Topology>) -> Result<Cloud, Status> {
        let named = self.named();
        let several = named.values().filter(|_| named.len() > 1);
        let mut meant = several.filter(|cloud| topology.is_some_and(|topology| marks(cloud).meet(topology)));
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
        let ask = |cloud: Cloud| async move { cloud.volume(volume).await.map(|found| found.is_some()) };
        self.holder("volume", volume.as_str(), secrets, ask).await
    }

    /// The cloud that has a snapshot or a backup, as [`Clouds::of_volume`].
    pub async fn of_snapshot(
        &self,
        snapshot: &str,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Option<Cloud>, Status> {
        let ask = |cloud: Cloud| async move { cloud.point_in_time(snapshot).await.map(|found| found.is_some()) };
        self.holder("snapshot", snapshot, secrets, ask).await
    }

    /// Every cloud with its name, in the order of their names; without those of credentials in secrets.
    pub fn all(&self) -> Vec<(String, Cloud)> {
        self.named()
            .iter()
            .map(|(name, cloud)| (name.clone(), cloud.clone()))
            .collect()
    }

    /// Ends the use of sessions that were made with a cloud's options before they changed.
    pub fn forget_sessions(&self) {
        self.inner.sessions.clear();
    }

    fn default_cloud(&self) -> Option<Cloud> {
        let named = self.named();
        let only = || named.values().next().filter(|_| named.len() == 1);
        named.get(UNNAMED).or_else(only).cloned()
    }

    fn of_secrets(&self, secrets: &BTreeMap<String, String>) -> Result<Option<Cloud>, Status> {
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
            .map(|base| self.inner.sessions.session(secrets, &base))
            .transpose()?;
        Ok(session.flatten().or(named))
    }

    /// Asks the cloud that the secrets name first, then all others at once.
    async fn holder<A, F>(
        &self,
        what: &str,
        id: &str,
        secrets: &BTreeMap<String, String>,
        ask: A,
    ) -> Result<Option<Cloud>, Status>
    where
        A: Fn(Cloud) -> F,
        F: Future<Output = Result<bool, CloudError>>,
    {
        let first = self.of_secrets(secrets)?;
        let named = self.named();
        let only = || named.values().next().filter(|_| first.is_none() && named.len() == 1);
        let known = self.places().get(id).and_then(|name| named.get(name)).or_else(only);
        if let Some(known) = known {
            self.check_project(known).await?;
            return Ok(Some(known.clone()));
        }
        if let Some(first) = &first {
            self.check_project(first).await?;
            let key = (self.inner.sessions.hash(secrets), id.to_owned());
            let found = self.is_found(&key)
                || ask(first.clone())
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
            .map(|(name, cloud)| {
                let answer = ask(cloud.clone());
                let look = async move {
                    self.check_project(cloud).await?;
                    answer
                        .await
                        .map_err(|error| status::cloud_silent(what, id, name, &error))
                };
                async move { (name, look.await) }
            })
            .collect();
        let mut silent = None;
        while let Some((name, answer)) = asked.next().await {
            match answer {
                Ok(true) => {
                    self.remember(id, name);
                    return Ok(named.get(name).cloned());
                }
                Ok(false) => {}
                Err(status) => silent = Some(status),
            }
        }
        silent.map_or(Ok(None), Err)
    }

    /// Refuses a cloud of the configuration while its credentials lead to another project than its own. Sessions with credentials
    /// from secrets are where their Secret wants them.
    pub async fn check_project(&self, cloud: &Cloud) -> Result<(), Status> {
        let named = self.named();
        let name = named.iter().find(|(_, one)| one.is(cloud)).map(|(name, _)| name);
        let Some((name, own)) = name.and_then(|name| self.inner.projects.get_key_value(name)) else {
            return Ok(());
        };
        let project = cloud.project_id().await;
        let project = project.map_err(|error| status::before_making(status::cloud(Act::Look, &error)))?;
        if project == *own {
            Ok(())
        } else {
            Err(status::other_project(name, own, &project))
        }
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

fn marks(cloud: &Cloud) -> Marks {
    let config = cloud.config();
    Marks::new(&config.topology, config.region.as_deref())
}

#[cfg(test)]
mod tests;
