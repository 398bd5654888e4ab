// SPDX-License-Identifier: Apache-2.0
//! Credentials are tried before they are used.
//!
//! The Secret that the spec names is read, understood and logged in with, and where it is not what the driver has, Cinder and Nova are
//! asked for a list. Only what passes becomes the driver's own Secret; until then the driver keeps what it was given last. A login
//! is repeated when the content changed, after a failure with a growing pause, and once per interval.
//!
//! Credentials that are good may still be of another project or region. There the driver's volumes do not exist, so that it would
//! take every one for deleted and detached: see [`Stakes`].

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cinder_cloud::{
    Auth, Cloud, CloudConfig, CloudError, CloudOptions, CloudService, Volume, VolumeId, config::Proxies,
};
use cinder_operator_core::{
    manifests::{DriverCredentials, Place},
    problem::Problem,
    reasons::{Reason, Refusal, Refused},
};
use csi_sources::Sources;
use futures::future::{BoxFuture, join_all};
use secrecy::SecretString;
use tokio::time::Instant;
use tracing::{debug, info, warn};

mod source;
mod stakes;

pub use source::{Candidate, Source};
pub(crate) use source::{parted, proxies};
pub use stakes::{MOVE_PROJECT, Stakes};

/// How long one login may take in all.
const LOGIN_LIMIT: Duration = Duration::from_secs(30);

/// How long it holds what was found in a cloud that is no longer in the spec: its list may be long.
const LEFT_HOLDS: Duration = Duration::from_mins(1);

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

/// The result of one check.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// Whether what the Secret holds now logs in.
    pub authenticated: bool,
    /// Why not.
    pub(crate) refusal: Option<Refused>,
    /// What the driver is to be given: the new credentials if they are good, else the last good ones.
    pub in_use: Option<DriverCredentials>,
    /// Whether what the Secret holds now is not what the driver has.
    pub is_changed: bool,
    /// When to look again.
    pub look_again: Duration,
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
}

impl Trial {
    /// How long this result still holds.
    fn holds_for(&self, interval: Duration, now: Instant) -> Option<Duration> {
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
    /// For drivers whose Secret does not hold a salt yet.
    salt: SecretString,
    trials: Mutex<HashMap<(String, String), Trial>>,
    left: Mutex<HashMap<(String, String), Left>>,
}

/// What was found last in a cloud that is no longer in the spec.
#[derive(Debug, Clone)]
struct Left {
    hash: String,
    at: Instant,
    refusal: Option<Problem>,
}

impl Checker {
    /// Has tried nothing yet.
    pub fn new(keystone: Box<dyn Keystone>, sources: &Sources) -> Self {
        Self {
            keystone,
            salt: sources.uuid().simple().to_string().into(),
            trials: Mutex::default(),
            left: Mutex::default(),
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
    }

    /// Why a cloud that is no longer in the spec must stay with the driver: volumes of it exist there, or that cannot be told. `has` are the
    /// credentials for it that the driver has. What was found holds for [`LEFT_HOLDS`].
    pub async fn must_stay(
        &self,
        driver: &str,
        cloud: &str,
        has: &DriverCredentials,
        volumes: &Arc<BTreeSet<String>>,
        stakes: &Stakes,
    ) -> Option<Problem> {
        let key = (driver.to_owned(), cloud.to_owned());
        let known = self
            .left
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
            .cloned();
        if let Some(known) = known.filter(|known| known.hash == has.hash() && known.at.elapsed() < LEFT_HOLDS) {
            return known.refusal;
        }
        let found = match has.config() {
            Some(config) => {
                let look = self.keystone.existing(config, Arc::clone(volumes));
                let found = tokio::time::timeout(LOGIN_LIMIT, look).await;
                found.map_or_else(
                    |_| Err("it did not answer in time".to_owned()),
                    |found| found.map_err(|error| error.to_string()),
                )
            }
            None => Err("the credentials that the driver has for it cannot be read".to_owned()),
        };
        if let Err(error) = &found {
            warn!(
                driver,
                cloud, error, "a cloud that is no longer in the spec cannot be asked for volumes"
            );
        }
        let refusal = stakes.cloud_left(cloud, found.as_deref().map_err(String::as_str));
        let left = Left {
            hash: has.hash().to_owned(),
            at: Instant::now(),
            refusal: refusal.clone(),
        };
        self.left
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, left);
        refusal
    }

    /// Judges `candidate`; `last_good` is what the driver has now, and `stakes` what is lost with another project. Good credentials are
    /// tried again every `interval`.
    pub(crate) async fn check(
        &self,
        driver: &str,
        source: &Source,
        candidate: Result<Candidate, Refused>,
        last_good: Option<DriverCredentials>,
        stakes: &Stakes,
        interval: Duration,
    ) -> Verdict {
        let salt = last_good
            .as_ref()
            .and_then(DriverCredentials::salt)
            .unwrap_or(&self.salt);
        let candidate = match candidate {
            Ok(candidate) => Candidate {
                credentials: candidate.credentials.salted(salt.clone()),
                ..candidate
            },
            // No watch tells when the API server answers again.
            Err(refusal) if refusal.reason == Refusal::SecretUnreadable => {
                return refused(refusal, last_good, true, FIRST_PAUSE.min(interval));
            }
            // What is missing or wrong is found again by the watch on Secrets and ConfigMaps.
            Err(refusal) => return refused(refusal, last_good, true, interval),
        };
        let key = (driver.to_owned(), source.cloud.clone());
        let hash = candidate.credentials.hash().to_owned();
        let proxies = candidate.config.proxies.clone();
        let before = self
            .trials
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
            .filter(|trial| trial.hash == hash && trial.proxies == proxies)
            .cloned();
        let is_changed = last_good
            .as_ref()
            .is_none_or(|good| !good.is_from(&candidate.credentials));
        let holds = before
            .as_ref()
            .and_then(|trial| trial.holds_for(interval, Instant::now()));
        let before_it = last_good.as_ref().and_then(DriverCredentials::place).cloned();
        let names_region = candidate.config.region.is_some();
        let accept = |credentials: DriverCredentials, tried: &Tried| {
            if !is_changed {
                // What the driver has leads where it led, whatever the catalogue calls that now.
                return Ok(credentials.at(before_it.clone().unwrap_or_else(|| tried.place.clone())));
            }
            let refusal = stakes.refusal(source, tried, before_it.as_ref());
            refusal.map_or_else(|| Ok(credentials.at(tried.place.clone())), Err)
        };
        if let (Some(left), Some(trial)) = (holds, &before) {
            return match trial
                .result
                .clone()
                .and_then(|tried| accept(candidate.credentials, &tried))
            {
                Ok(credentials) => Verdict::accepted(credentials, left),
                Err(refusal) => refused(refusal, last_good, is_changed, left),
            };
        }
        let questions = Questions {
            // What the driver uses is looked at all the time.
            services: is_changed,
            volumes: if is_changed {
                stakes.to_look_for(last_good.as_ref())
            } else {
                Vec::new()
            },
            default_region: before_it
                .as_ref()
                .and_then(|place| place.region.clone())
                .filter(|_| !names_region),
        };
        let warnings = candidate.config.warnings.clone();
        let tried = tokio::time::timeout(LOGIN_LIMIT, self.keystone.try_out(candidate.config, questions)).await;
        let result = match tried {
            Ok(Ok(tried)) => Ok(tried),
            Ok(Err(error)) => {
                let refusal = source.refused(&candidate.auth_url, &error);
                warn!(
                    driver,
                    cloud = source.cloud,
                    reason = refusal.reason.degraded().as_str(),
                    "credentials are not used: {}",
                    refusal.message
                );
                Err(refusal)
            }
            Err(_) => Err(source.no_answer(&candidate.auth_url)),
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
            result: result.clone(),
        };
        let look_again = trial.holds_for(interval, trial.at).unwrap_or(interval);
        self.trials
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, trial);
        let is_news = before.is_none_or(|trial| trial.result.is_err());
        let short_hash = candidate.credentials.short_hash().to_owned();
        match result.and_then(|tried| accept(candidate.credentials, &tried)) {
            Ok(credentials) => {
                if is_news {
                    info!(driver, cloud = source.cloud, hash = short_hash, "the login works");
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
                    debug!(driver, cloud = source.cloud, hash = short_hash, "the login works still");
                }
                Verdict::accepted(credentials, look_again)
            }
            Err(refusal) => refused(refusal, last_good, is_changed, look_again.min(interval)),
        }
    }
}

fn refused(refusal: Refused, last_good: Option<DriverCredentials>, is_changed: bool, look_again: Duration) -> Verdict {
    Verdict {
        authenticated: false,
        refusal: Some(refusal),
        in_use: last_good,
        is_changed,
        look_again,
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

impl Verdict {
    fn accepted(credentials: DriverCredentials, look_again: Duration) -> Self {
        Self {
            authenticated: true,
            refusal: None,
            in_use: Some(credentials),
            is_changed: false,
            look_again,
        }
    }
}

#[cfg(test)]
mod tests;
