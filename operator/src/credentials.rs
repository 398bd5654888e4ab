// SPDX-License-Identifier: Apache-2.0
//! Credentials are tried before they are used.
//!
//! The operator reads the Secret that the spec names, logs in, and requests one answer of Cinder and Nova each. Only what passes becomes
//! the driver's own Secret; until then the driver keeps what it was given last. The check is repeated when the content changed, after a
//! failure with a growing pause, once per interval, and when volumes show that the driver's login fails.
//!
//! Credentials that are good may still be of another project or region. There the driver's volumes do not exist, so that it would
//! take every one for deleted and detached: see [`Stakes`].

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cinder_cloud::{
    Auth, Cloud, CloudConfig, CloudError, CloudOptions, CloudService, Volume, VolumeId, VolumeType, config::Proxies,
};
use cinder_operator_core::{
    clouds::{CloudFacts, CloudState, VolumeTypeFact},
    manifests::{DriverCredentials, Place},
    problem::Problem,
    reasons::{Reason, Refusal, Refused},
    text::join_truncated,
};
use futures::future::{BoxFuture, join_all};
use tokio::time::Instant;
use tracing::{debug, info, warn};

mod source;
mod stakes;

pub(crate) use source::parted;
pub use source::{Candidate, Source};
use stakes::Admission;
pub use stakes::{InstalledCloud, MOVE_PROJECT, Stakes, Usage, UsageQuery};

/// How long one login may take in all.
const LOGIN_LIMIT: Duration = Duration::from_secs(30);

/// Lifetime of a list of volumes and of a lookup without a result: both may take long.
const LEFT_HOLDS: Duration = Duration::from_mins(1);

/// Number of volumes that are got one by one before all are listed. One that exists is enough.
const LOOKED_UP: usize = 5;

/// The age of a check up to which an overdue operation alone does not repeat it.
const FRESH: Duration = Duration::from_mins(1);

/// Pause after the first failed login; it doubles up to the check interval.
const FIRST_PAUSE: Duration = Duration::from_secs(10);

/// What is asked of a cloud beyond the login.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Questions {
    /// Whether Cinder and Nova let the user list what there is.
    pub services: bool,
    /// Whether one of these volumes exists there.
    pub volumes: Vec<VolumeId>,
    /// The region to use where the configuration names none and the catalogue has several.
    pub default_region: Option<String>,
}

/// What a trial showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// Where the credentials lead to.
    pub place: Place,
    /// Whether one of the volumes exists there; `None` when it was not asked for.
    pub knows_volumes: Option<bool>,
    /// Zones and expiry, where the role may read them.
    pub state: CloudState,
}

/// Why a trial failed.
#[derive(Debug, Clone)]
pub enum TrialError {
    /// The login.
    Login(CloudError),
    /// The login works, and a service does not.
    Service(CloudService, CloudError),
}

/// Tries credentials somewhere. The seam for tests.
pub trait Keystone: Send + Sync + std::fmt::Debug {
    /// Logs in and asks.
    fn try_out(&self, config: CloudConfig, questions: Questions) -> BoxFuture<'_, Result<Tried, TrialError>>;

    /// Which of these volumes exist there.
    fn existing(
        &self,
        config: CloudConfig,
        volumes: Arc<BTreeSet<String>>,
    ) -> BoxFuture<'_, Result<Vec<VolumeId>, CloudError>>;
}

/// Asks the cloud that the configuration names.
#[derive(Debug, Clone)]
pub struct RealKeystone {
    /// How to talk to it.
    pub options: CloudOptions,
}

impl Keystone for RealKeystone {
    fn try_out(&self, config: CloudConfig, questions: Questions) -> BoxFuture<'_, Result<Tried, TrialError>> {
        let options = self.options.clone();
        Box::pin(async move {
            let mut cloud = Cloud::new(config.clone(), options.clone()).map_err(TrialError::Login)?;
            let mut login = cloud.login().await;
            if let (Err(CloudError::RegionAmbiguous { .. }), Some(region)) = (&login, questions.default_region) {
                let region = Some(region);
                cloud = Cloud::new(CloudConfig { region, ..config }, options).map_err(TrialError::Login)?;
                login = cloud.login().await;
            }
            let login = login.map_err(TrialError::Login)?;
            let services = [CloudService::BlockStorage, CloudService::Compute];
            for service in services.into_iter().filter(|_| questions.services) {
                let listed = cloud.try_list(service).await;
                listed.map_err(|error| TrialError::Service(service, error))?;
            }
            let mut state = CloudState {
                token_ends: Some(login.expires_at),
                ..CloudState::default()
            };
            if questions.services {
                let (compute, volume, types, credential) = tokio::join!(
                    cloud.compute_zones(),
                    cloud.volume_zones(),
                    cloud.volume_types(),
                    cloud.application_credential(),
                );
                state.facts.volume_types = sorted(types.iter().flatten().map(type_fact).collect());
                state.facts.compute_zones = sorted(compute.unwrap_or_default());
                state.facts.volume_zones = sorted(volume.unwrap_or_default());
                let credential = credential.ok().flatten();
                state.credential = credential.map(|facts| (facts.name, facts.expires_at));
            }
            let looks = join_all(questions.volumes.iter().map(|volume| cloud.volume(volume))).await;
            let mut is_known = false;
            for look in looks {
                let look = look.map_err(|error| TrialError::Service(CloudService::BlockStorage, error))?;
                is_known |= look.is_some();
            }
            Ok(Tried {
                place: Place {
                    project: login.project_id,
                    region: login.region,
                },
                knows_volumes: (!questions.volumes.is_empty()).then_some(is_known),
                state,
            })
        })
    }

    fn existing(
        &self,
        config: CloudConfig,
        volumes: Arc<BTreeSet<String>>,
    ) -> BoxFuture<'_, Result<Vec<VolumeId>, CloudError>> {
        let options = self.options.clone();
        Box::pin(async move {
            let cloud = Cloud::new(config, options)?;
            let known = |volume: Volume| volumes.contains(volume.id.as_str()).then_some(volume.id);
            cloud.map_volumes(known).await
        })
    }
}

fn sorted<T: Ord>(mut all: Vec<T>) -> Vec<T> {
    all.sort();
    all.dedup();
    all
}

fn type_fact(volume_type: &VolumeType) -> VolumeTypeFact {
    VolumeTypeFact {
        name: volume_type.name.clone(),
        id: volume_type.id.clone(),
        multiattach: volume_type.multiattach(),
        description: volume_type.description.clone().filter(|text| !text.is_empty()),
    }
}

/// The result of one check.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// Whether what the Secret holds now logs in.
    pub authenticated: bool,
    /// Why not.
    pub(crate) refusal: Option<Refused>,
    /// What the driver is to be given: the new credentials if they are good, else the last good ones.
    pub in_use: Option<DriverCredentials>,
    /// Project and region of accepted credentials, where they are certain.
    pub place: Option<Place>,
    /// Whether what the Secret holds now is not what the driver has.
    pub is_changed: bool,
    /// When to look again.
    pub look_again: Duration,
    /// What the successful checks read.
    pub state: CloudState,
}

/// What was tried last for one cloud of one driver.
#[derive(Debug, Clone)]
struct Trial {
    hash: String,
    /// The way that was taken, which is not in the hash.
    proxies: Proxies,
    at: Instant,
    failures: u32,
    result: Result<Tried, Refused>,
    /// Whether it must be repeated before its time.
    is_outdated: bool,
    state: CloudState,
}

impl Trial {
    /// How long this result still holds.
    fn holds_for(&self, interval: Duration, now: Instant) -> Option<Duration> {
        if self.is_outdated {
            return None;
        }
        let pause = match self.failures {
            0 => interval,
            failures => FIRST_PAUSE
                .saturating_mul(2_u32.saturating_pow(failures - 1))
                .min(interval),
        };
        pause
            .checked_sub(now.duration_since(self.at))
            .filter(|left| !left.is_zero())
    }
}

/// Checks credentials and remembers the results.
#[derive(Debug)]
pub struct Checker {
    keystone: Box<dyn Keystone>,
    trials: Mutex<HashMap<(String, String), Trial>>,
    left: Mutex<HashMap<(String, String), Left>>,
    lookups: Mutex<HashMap<(String, String), Lookup>>,
}

/// What was found last in a cloud that is no longer in the spec.
#[derive(Debug, Clone)]
struct Left {
    hash: String,
    at: Instant,
    found: Result<Vec<VolumeId>, String>,
}

/// A lookup of volumes that failed or found none.
#[derive(Debug, Clone)]
struct Lookup {
    hash: String,
    at: Instant,
    failure: Option<String>,
}

impl Checker {
    /// Has tried nothing yet.
    pub fn new(keystone: Box<dyn Keystone>) -> Self {
        Self {
            keystone,
            trials: Mutex::default(),
            left: Mutex::default(),
            lookups: Mutex::default(),
        }
    }

    /// Whether the credentials of a driver were checked within the last minute.
    pub fn is_fresh(&self, driver: &str) -> bool {
        let trials = self.trials.lock().unwrap_or_else(PoisonError::into_inner);
        let mut of_driver = trials.iter().filter(|((name, _), _)| name == driver);
        of_driver.any(|(_, trial)| trial.at.elapsed() < FRESH)
    }

    /// Has the successful checks of a driver's credentials repeated at once.
    pub fn recheck(&self, driver: &str) {
        let mut trials = self.trials.lock().unwrap_or_else(PoisonError::into_inner);
        let of_driver = trials.iter_mut().filter(|((name, _), _)| name == driver);
        for (_, trial) in of_driver {
            trial.is_outdated = trial.result.is_ok();
        }
    }

    /// Forgets a driver that is gone.
    pub fn forget(&self, driver: &str) {
        self.trials
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|(name, _), _| name != driver);
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.retain(|(name, _), _| name != driver);
        let mut lookups = self.lookups.lock().unwrap_or_else(PoisonError::into_inner);
        lookups.retain(|(name, _), _| name != driver);
    }

    /// Returns the reason to retain a cloud that is no longer in the spec. `has` are its credentials in the driver's Secret. The list of
    /// volumes is used again for [`LEFT_HOLDS`].
    pub async fn must_stay(
        &self,
        driver: &str,
        cloud: &str,
        has: &DriverCredentials,
        usage: &Usage,
        stakes: &Stakes<'_>,
    ) -> Option<Problem> {
        let key = (driver.to_owned(), cloud.to_owned());
        let known = self
            .left
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
            .cloned();
        let known = known.filter(|known| known.hash == has.hash() && known.at.elapsed() < LEFT_HOLDS);
        let found = if let Some(known) = known {
            known.found
        } else {
            let found = match has.config() {
                Some(config) => self.list_existing(config, &usage.volumes).await,
                None => Err("the credentials that the driver has for it cannot be read".to_owned()),
            };
            if let Err(error) = &found {
                warn!(
                    driver,
                    cloud, error, "a cloud that is no longer in the spec cannot be asked for volumes"
                );
            }
            let left = Left {
                hash: has.hash().to_owned(),
                at: Instant::now(),
                found: found.clone(),
            };
            let mut known = self.left.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(key, left);
            found
        };
        stakes.cloud_left(cloud, usage, found.as_deref().map_err(String::as_str))
    }

    /// Lists the volumes of a cloud, and returns those of the driver.
    async fn list_existing(
        &self,
        config: CloudConfig,
        volumes: &Arc<BTreeSet<String>>,
    ) -> Result<Vec<VolumeId>, String> {
        let list = self.keystone.existing(config, Arc::clone(volumes));
        let found = tokio::time::timeout(LOGIN_LIMIT, list).await;
        found.map_or_else(
            |_| Err("it did not answer in time".to_owned()),
            |found| found.map_err(|error| error.to_string()),
        )
    }

    /// Whether one of these volumes exists in the cloud of a configuration: a few are got one by one, and only then all are listed.
    async fn knows_volumes(&self, config: &CloudConfig, volumes: &Arc<BTreeSet<String>>) -> Result<bool, String> {
        let questions = Questions {
            services: false,
            volumes: volumes.iter().take(LOOKED_UP).map(VolumeId::new).collect(),
            default_region: None,
        };
        let tried = self.keystone.try_out(config.clone(), questions);
        match tokio::time::timeout(LOGIN_LIMIT, tried).await {
            Err(_) => Err("it did not answer in time".to_owned()),
            Ok(Err(TrialError::Login(error) | TrialError::Service(_, error))) => Err(error.to_string()),
            Ok(Ok(tried)) if tried.knows_volumes == Some(true) => Ok(true),
            Ok(Ok(_)) if volumes.len() <= LOOKED_UP => Ok(false),
            Ok(Ok(_)) => Ok(!self.list_existing(config.clone(), volumes).await?.is_empty()),
        }
    }

    /// The same. A failure, or that none exists, is used again for [`LEFT_HOLDS`].
    async fn find_volumes(
        &self,
        attempt: &Attempt<'_>,
        place: &Place,
        volumes: &Arc<BTreeSet<String>>,
    ) -> Result<bool, String> {
        let key = (attempt.driver.to_owned(), attempt.source.cloud.clone());
        let known = self
            .lookups
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
            .filter(|known| known.hash == attempt.credentials.hash() && known.at.elapsed() < LEFT_HOLDS)
            .cloned();
        if let Some(known) = known {
            return known.failure.map_or(Ok(false), Err);
        }
        // In the region of the login, also where the configuration names none.
        let mut config = attempt.config.clone();
        config.region = config.region.or_else(|| place.region.clone());
        let found = self.knows_volumes(&config, volumes).await;
        let mut lookups = self.lookups.lock().unwrap_or_else(PoisonError::into_inner);
        if found == Ok(true) {
            lookups.remove(&key);
        } else {
            let lookup = Lookup {
                hash: attempt.credentials.hash().to_owned(),
                at: Instant::now(),
                failure: found.clone().err(),
            };
            lookups.insert(key, lookup);
        }
        found
    }

    /// Judges the project and region of credentials that log in. Returns them as they are to be recorded; `None` for credentials that
    /// the driver has already, while their project and region remain unknown.
    async fn admit(&self, attempt: &Attempt<'_>, tried: &Tried) -> Result<Option<Place>, Refused> {
        let Attempt { stakes, installed, .. } = attempt;
        if !attempt.is_changed {
            if let Some(known) = installed.place.known() {
                // What the driver has leads where it led, whatever the catalogue calls that now.
                return Ok(Some(known.clone()));
            }
            if !attempt.is_fresh {
                return Ok(None);
            }
        }
        let refusal = match stakes.admit(&installed.place, &tried.place).await {
            Admission::Admitted => return Ok(Some(tried.place.clone())),
            Admission::Refused(reason) => reason,
            Admission::IfFound(usage, cause) => match self.find_volumes(attempt, &tried.place, &usage.volumes).await {
                Ok(true) => return Ok(Some(tried.place.clone())),
                Ok(false) => {
                    let volumes: Vec<String> = usage.volumes.iter().cloned().collect();
                    format!(
                        "they lead to {}, where none of these volumes of the driver exists: {} ({cause})",
                        tried.place,
                        join_truncated(&volumes)
                    )
                }
                Err(error) => format!(
                    "they lead to {}, and the operator cannot determine whether the volumes of the driver exist there: {error} ({cause})",
                    tried.place
                ),
            },
        };
        if attempt.is_changed {
            Err(stakes.refused(attempt.source, &refusal))
        } else {
            warn!(
                driver = attempt.driver,
                cloud = attempt.source.cloud,
                "the project of the driver's own credentials cannot be recorded: {refusal}"
            );
            Ok(None)
        }
    }

    /// Judges `candidate`; `installed` is what the driver has now, and `stakes` what is lost with another project. Good credentials are
    /// tried again every `interval`.
    pub(crate) async fn check(
        &self,
        driver: &str,
        source: &Source,
        candidate: Result<Candidate, Refused>,
        installed: InstalledCloud,
        stakes: &Stakes<'_>,
        interval: Duration,
    ) -> Verdict {
        let verdict = self.judge(driver, source, candidate, installed, stakes, interval).await;
        let trials = self.trials.lock().unwrap_or_else(PoisonError::into_inner);
        let trial = trials.get(&(driver.to_owned(), source.cloud.clone()));
        Verdict {
            state: trial.map(|trial| trial.state.clone()).unwrap_or_default(),
            ..verdict
        }
    }

    async fn judge(
        &self,
        driver: &str,
        source: &Source,
        candidate: Result<Candidate, Refused>,
        installed: InstalledCloud,
        stakes: &Stakes<'_>,
        interval: Duration,
    ) -> Verdict {
        let last_good = installed.credentials.clone();
        let Candidate {
            credentials,
            config,
            auth_url,
        } = match candidate {
            Ok(candidate) => candidate,
            // No watch tells when the API server answers again.
            Err(refusal) if refusal.reason == Refusal::SecretUnreadable => {
                return refused(refusal, last_good, true, FIRST_PAUSE.min(interval));
            }
            // What is missing or wrong is found again by the watch on Secrets and ConfigMaps.
            Err(refusal) => return refused(refusal, last_good, true, interval),
        };
        let key = (driver.to_owned(), source.cloud.clone());
        let hash = credentials.hash().to_owned();
        let proxies = config.proxies.clone();
        let previous = self
            .trials
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
            .cloned();
        let state = previous.as_ref().map(|trial| trial.state.clone()).unwrap_or_default();
        let before = previous.filter(|trial| trial.hash == hash && trial.proxies == proxies);
        let is_changed = last_good.as_ref().is_none_or(|good| !good.is_from(&credentials));
        let mut attempt = Attempt {
            driver,
            source,
            credentials,
            config,
            is_changed,
            is_fresh: false,
            installed: &installed,
            stakes,
        };
        let holds = before
            .as_ref()
            .and_then(|trial| trial.holds_for(interval, Instant::now()));
        if let (Some(left), Some(trial)) = (holds, &before) {
            let admitted = match &trial.result {
                Ok(tried) => self.admit(&attempt, tried).await,
                Err(refusal) => Err(refusal.clone()),
            };
            return match admitted {
                Ok(place) => attempt.accepted(place, left),
                Err(refusal) => refused(refusal, last_good, is_changed, left),
            };
        }
        attempt.is_fresh = true;
        let questions = Questions {
            services: true,
            volumes: Vec::new(),
            default_region: installed
                .place
                .known()
                .and_then(|place| place.region.clone())
                .filter(|_| attempt.config.region.is_none()),
        };
        let warnings = attempt.config.warnings.clone();
        let trial = self.keystone.try_out(attempt.config.clone(), questions);
        let result = match tokio::time::timeout(LOGIN_LIMIT, trial).await {
            Ok(Ok(tried)) => Ok(tried),
            Ok(Err(error)) => {
                let refusal = source.refused(&auth_url, &error);
                warn!(
                    driver,
                    cloud = source.cloud,
                    reason = refusal.reason.degraded().as_str(),
                    "credentials are not used: {}",
                    refusal.message
                );
                Err(refusal)
            }
            Err(_) => Err(source.no_answer(&auth_url)),
        };
        // Of one kind of failure the first sentence is kept: the next may differ in words only.
        let result = match (result, before.as_ref().map(|trial| &trial.result)) {
            (Err(new), Some(Err(old))) if new.reason == old.reason => Err(old.clone()),
            (result, _) => result,
        };
        let failures = match &result {
            Ok(_) => 0,
            Err(_) => before.as_ref().map_or(0, |trial| trial.failures).saturating_add(1),
        };
        let trial = Trial {
            hash,
            proxies,
            at: Instant::now(),
            failures,
            state: match &result {
                Ok(tried) => updated(state, &tried.state),
                Err(_) => state,
            },
            result: result.clone(),
            is_outdated: false,
        };
        let look_again = trial.holds_for(interval, trial.at).unwrap_or(interval);
        self.trials
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, trial);
        let is_news = before.is_none_or(|trial| trial.result.is_err());
        let admitted = match &result {
            Ok(tried) => self.admit(&attempt, tried).await,
            Err(refusal) => Err(refusal.clone()),
        };
        match admitted {
            Ok(place) => {
                if is_news {
                    info!(driver, cloud = source.cloud, "the login works");
                    for warning in warnings {
                        let secret = source.secret();
                        warn!(
                            driver,
                            cloud = source.cloud,
                            secret,
                            warning,
                            "the credentials hold something without effect"
                        );
                    }
                } else {
                    debug!(driver, cloud = source.cloud, "the login works still");
                }
                attempt.accepted(place, look_again)
            }
            Err(refusal) => refused(refusal, last_good, is_changed, look_again.min(interval)),
        }
    }
}

/// What a successful check read. Zones that it could not read stay as they were.
fn updated(before: CloudState, read: &CloudState) -> CloudState {
    fn newest<T: Clone>(read: &[T], before: Vec<T>) -> Vec<T> {
        if read.is_empty() { before } else { read.to_vec() }
    }
    CloudState {
        facts: CloudFacts {
            compute_zones: newest(&read.facts.compute_zones, before.facts.compute_zones),
            volume_zones: newest(&read.facts.volume_zones, before.facts.volume_zones),
            volume_types: newest(&read.facts.volume_types, before.facts.volume_types),
        },
        ..read.clone()
    }
}

/// Credentials that are being judged.
struct Attempt<'a> {
    driver: &'a str,
    source: &'a Source,
    credentials: DriverCredentials,
    config: CloudConfig,
    /// Whether the driver has other credentials now.
    is_changed: bool,
    /// Whether they were tried now.
    is_fresh: bool,
    installed: &'a InstalledCloud,
    stakes: &'a Stakes<'a>,
}

impl Attempt<'_> {
    fn accepted(self, place: Option<Place>, look_again: Duration) -> Verdict {
        let installed = self.installed.credentials.as_ref();
        let shown = place.clone().or_else(|| installed?.place().cloned());
        Verdict {
            authenticated: true,
            refusal: None,
            in_use: Some(match shown {
                Some(shown) => self.credentials.at(shown),
                None => self.credentials,
            }),
            place,
            is_changed: false,
            look_again,
            state: CloudState::default(),
        }
    }
}

fn refused(refusal: Refused, last_good: Option<DriverCredentials>, is_changed: bool, look_again: Duration) -> Verdict {
    Verdict {
        authenticated: false,
        refusal: Some(refusal),
        in_use: last_good,
        place: None,
        is_changed,
        look_again,
        state: CloudState::default(),
    }
}

/// How a configuration logs in, in one word.
pub fn auth_method(config: &CloudConfig) -> &'static str {
    match config.auth {
        Auth::ApplicationCredential { .. } => "ApplicationCredential",
        Auth::Password { .. } => "Password",
        Auth::Trust { .. } => "Trust",
        Auth::Token { .. } => "Token",
    }
}

#[cfg(test)]
mod tests;
