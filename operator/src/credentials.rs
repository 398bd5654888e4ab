// SPDX-License-Identifier: Apache-2.0
//! Checks credentials before the driver uses them.
//!
//! The operator reads the Secret that the spec names, logs in, and sends one request each to Cinder and Nova. Only
//! credentials that pass this check reach the driver's own Secret; until then the driver retains its present
//! credentials.
//!
//! The check is repeated when the content changes, after a failure with a growing pause, and once per interval. It is
//! also repeated when the state of volumes shows that the driver cannot log in.
//!
//! Valid credentials may belong to a different project or region, where the driver's volumes do not exist. With them
//! the driver would treat every volume as deleted and detached: see [`Stakes`].

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use cinder_cloud::{
    Auth, Cloud, CloudConfig, CloudError, CloudErrorKind, CloudOptions, CloudService, Volume, VolumeId, config::Proxies,
};
use cinder_operator_core::{
    clouds::{CloudFacts, CloudState},
    manifests::{DriverCredentials, Place},
    problem::Problem,
    reasons::{Reason, Refusal, Refused},
    text::join_truncated,
};
use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{debug, info, warn};

mod source;
mod stakes;

use source::cause;
pub(crate) use source::parted;
pub use source::{Candidate, Source};
use stakes::Admission;
pub use stakes::{InstalledCloud, MOVE_PROJECT, Stakes, Usage, UsageQuery};

/// Maximum duration of one login in total.
const LOGIN_LIMIT: Duration = Duration::from_secs(30);

/// Validity of the result of a volume lookup. A lookup may take long.
const LOOKUP_LIFETIME: Duration = Duration::from_mins(1);

/// Number of volumes that are requested one by one before all are listed. One existing volume is sufficient.
const INDIVIDUAL_REQUESTS: usize = 5;

/// Pause after the first failed login; it doubles up to the check interval.
const FIRST_PAUSE: Duration = Duration::from_secs(10);

/// Requests to a cloud after the login.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Questions {
    /// Whether to list objects of Cinder and Nova, to check the rights of the user.
    pub services: bool,
    /// Volumes to request. The result reports whether one of them exists.
    pub volumes: Vec<VolumeId>,
    /// The region to use if the configuration names none and the catalogue contains several.
    pub default_region: Option<String>,
}

/// Result of a successful check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// Project and region of the credentials.
    pub place: Place,
    /// Whether one of the volumes exists; `None` if none was requested.
    pub knows_volumes: Option<bool>,
    /// Zones and expiry, if the role of the user may read them.
    pub state: CloudState,
}

/// Why a check failed.
#[derive(Debug, Clone)]
pub enum TrialError {
    /// The login failed.
    Login(CloudError),
    /// The login succeeded, and a request to a service failed.
    Service(CloudService, CloudError),
}

/// Checks credentials against a cloud. Tests replace the implementation.
pub trait Keystone: Send + Sync + std::fmt::Debug {
    /// Logs in and sends the requests.
    fn try_out(&self, config: CloudConfig, questions: Questions) -> BoxFuture<'_, Result<Tried, TrialError>>;

    /// Returns the volumes that exist in the cloud, out of `volumes`.
    fn existing(
        &self,
        config: CloudConfig,
        volumes: Arc<BTreeSet<String>>,
    ) -> BoxFuture<'_, Result<Vec<VolumeId>, CloudError>>;
}

/// Sends requests to the cloud that the configuration names.
#[derive(Debug, Clone)]
pub struct RealKeystone {
    pub options: CloudOptions,
}

impl Keystone for RealKeystone {
    fn try_out(&self, config: CloudConfig, questions: Questions) -> BoxFuture<'_, Result<Tried, TrialError>> {
        let options = self.options.clone();
        Box::pin(async move {
            let mut cloud = Cloud::new(config.clone(), options.clone()).map_err(TrialError::Login)?;
            let mut login = cloud.login().await;
            if let (Err(error), Some(region)) = (&login, questions.default_region)
                && error.kind() == CloudErrorKind::RegionAmbiguous
            {
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
                let (compute, volume, credential) = tokio::join!(
                    cloud.compute_zones(),
                    cloud.volume_zones(),
                    cloud.application_credential(),
                );
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

/// The result of one check.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// Whether the present content of the Secret logs in.
    pub authenticated: bool,
    /// Why the content was rejected.
    pub(crate) refusal: Option<Refused>,
    /// The credentials for the driver: the new ones if they are valid, otherwise the last valid ones.
    pub in_use: Option<DriverCredentials>,
    /// Project and region of accepted credentials, if they are certain.
    pub place: Option<Place>,
    /// Whether the present content of the Secret differs from the driver's credentials.
    pub is_changed: bool,
    /// Delay until the next check.
    pub look_again: Duration,
    /// State of the cloud that the successful checks read.
    pub state: CloudState,
    /// Keys of the credentials without an effect, as sentences.
    pub warnings: Vec<String>,
}

/// Rejected contents of a Secret in a row. Keystone may lock a user after some failed logins.
#[derive(Debug, Clone, Copy, Default)]
struct RefusedContents {
    count: u32,
    last: Option<Instant>,
}

impl RefusedContents {
    /// The pause before the next new content is checked. The first content after a rejected one has no pause.
    fn pause(self, interval: Duration, now: Instant) -> Option<Duration> {
        let last = self.last.filter(|_| self.count > 1)?;
        remaining(self.count, interval, now.duration_since(last))
    }

    /// Counts a rejected content. The count restarts after `interval` without one.
    fn add(&mut self, interval: Duration, now: Instant) {
        let is_over = self.last.is_none_or(|last| now.duration_since(last) > interval);
        self.count = if is_over { 1 } else { self.count.saturating_add(1) };
        self.last = Some(now);
    }
}

/// The remainder of a pause that begins with [`FIRST_PAUSE`] and doubles with each failure up to `interval`.
fn remaining(failures: u32, interval: Duration, elapsed: Duration) -> Option<Duration> {
    let factor = 2_u32.saturating_pow(failures.saturating_sub(1));
    let pause = FIRST_PAUSE.saturating_mul(factor).min(interval);
    pause.checked_sub(elapsed).filter(|rest| !rest.is_zero())
}

/// The last check of one cloud of one driver.
#[derive(Debug, Clone)]
struct Trial {
    hash: String,
    /// The proxies of the connection. The hash of the credentials does not cover them.
    proxies: Proxies,
    at: Instant,
    failures: u32,
    result: Result<Tried, Refused>,
    /// Whether the check must be repeated before its result expires.
    is_outdated: bool,
    state: CloudState,
    refused_contents: RefusedContents,
}

impl Trial {
    /// Whether the check used the same credentials and proxies.
    fn is_same_login(&self, candidate: &Candidate) -> bool {
        self.hash == candidate.credentials.hash() && self.proxies == candidate.config.proxies
    }

    /// Whether Keystone rejected the login. An outage does not lock a user.
    fn is_refused(&self) -> bool {
        let refusal = self.result.as_ref().err();
        let reasons = [Refusal::CredentialsRejected, Refusal::CredentialsForbidden];
        refusal.is_some_and(|refusal| reasons.contains(&refusal.reason))
    }

    /// Remaining validity of this result.
    fn remaining_validity(&self, interval: Duration, now: Instant) -> Option<Duration> {
        if self.is_outdated {
            return None;
        }
        let elapsed = now.duration_since(self.at);
        match self.failures {
            0 => interval.checked_sub(elapsed).filter(|rest| !rest.is_zero()),
            failures => remaining(failures.max(self.refused_contents.count), interval, elapsed),
        }
    }
}

/// Checks credentials and caches the results.
#[derive(Debug)]
pub struct Checker {
    keystone: Box<dyn Keystone>,
    trials: Mutex<HashMap<(String, String), Trial>>,
    lookups: Mutex<HashMap<(String, String), Lookup>>,
}

/// The last lookup of a driver's volumes in a cloud: the existing volumes, or the failure.
#[derive(Debug, Clone)]
struct Lookup {
    hash: String,
    at: Instant,
    result: Result<Vec<VolumeId>, String>,
}

impl Checker {
    pub fn new(keystone: Box<dyn Keystone>) -> Self {
        Self {
            keystone,
            trials: Mutex::default(),
            lookups: Mutex::default(),
        }
    }

    /// Age of the newest successful check of a driver's credentials.
    pub fn age(&self, driver: &str) -> Option<Duration> {
        let trials = self.trials.lock();
        let of_driver = trials
            .iter()
            .filter(|((name, _), trial)| name == driver && trial.result.is_ok());
        of_driver.map(|(_, trial)| trial.at.elapsed()).min()
    }

    /// Marks the successful checks of a driver's credentials as outdated, so that they are repeated immediately.
    pub fn recheck(&self, driver: &str) {
        let mut trials = self.trials.lock();
        let of_driver = trials.iter_mut().filter(|((name, _), _)| name == driver);
        for (_, trial) in of_driver {
            trial.is_outdated = trial.result.is_ok();
        }
    }

    /// Removes the results of a deleted driver.
    pub fn forget(&self, driver: &str) {
        self.trials.lock().retain(|(name, _), _| name != driver);
        let mut lookups = self.lookups.lock();
        lookups.retain(|(name, _), _| name != driver);
    }

    /// Returns the reason to retain a cloud that is no longer in the spec. `accepted` contains the credentials of the cloud
    /// in the driver's Secret.
    pub async fn must_stay(
        &self,
        driver: &str,
        cloud: &str,
        accepted: &DriverCredentials,
        usage: &Usage,
        stakes: &Stakes<'_>,
    ) -> Option<Problem> {
        let key = (driver.to_owned(), cloud.to_owned());
        let existing = if let Some(existing) = self.recent_lookup(&key, accepted.hash()) {
            existing
        } else {
            let existing = match accepted.config() {
                Some(config) => self.list_existing(config, &usage.volumes).await,
                None => Err("the credentials that the driver has for it cannot be read".to_owned()),
            };
            if let Err(error) = &existing {
                warn!(
                    driver,
                    cloud, error, "a cloud that is no longer in the spec cannot be asked for volumes"
                );
            }
            self.cache_lookup(key, accepted.hash(), existing.clone());
            existing
        };
        stakes.refuse_removal(cloud, usage, existing.as_deref().map_err(String::as_str))
    }

    /// Returns the result of the last lookup with the same credentials, for [`LOOKUP_LIFETIME`].
    fn recent_lookup(&self, key: &(String, String), hash: &str) -> Option<Result<Vec<VolumeId>, String>> {
        let lookups = self.lookups.lock();
        let lookup = lookups.get(key)?;
        (lookup.hash == hash && lookup.at.elapsed() < LOOKUP_LIFETIME).then(|| lookup.result.clone())
    }

    fn cache_lookup(&self, key: (String, String), hash: &str, result: Result<Vec<VolumeId>, String>) {
        let lookup = Lookup {
            hash: hash.to_owned(),
            at: Instant::now(),
            result,
        };
        self.lookups.lock().insert(key, lookup);
    }

    /// Lists the volumes of a cloud, and returns those of the driver.
    async fn list_existing(
        &self,
        config: CloudConfig,
        volumes: &Arc<BTreeSet<String>>,
    ) -> Result<Vec<VolumeId>, String> {
        let list = self.keystone.existing(config, Arc::clone(volumes));
        let existing = tokio::time::timeout(LOGIN_LIMIT, list).await;
        existing.map_or_else(
            |_| Err("it did not answer in time".to_owned()),
            |existing| existing.map_err(|error| cause(&error)),
        )
    }

    /// Whether one of these volumes exists in the cloud of a configuration. Requests a few volumes one by one, and
    /// lists all volumes only if none of these exists.
    async fn knows_volumes(&self, config: &CloudConfig, volumes: &Arc<BTreeSet<String>>) -> Result<bool, String> {
        let questions = Questions {
            services: false,
            volumes: volumes.iter().take(INDIVIDUAL_REQUESTS).map(VolumeId::new).collect(),
            default_region: None,
        };
        let tried = self.keystone.try_out(config.clone(), questions);
        match tokio::time::timeout(LOGIN_LIMIT, tried).await {
            Err(_) => Err("it did not answer in time".to_owned()),
            Ok(Err(TrialError::Login(error) | TrialError::Service(_, error))) => Err(cause(&error)),
            Ok(Ok(tried)) if tried.knows_volumes == Some(true) => Ok(true),
            Ok(Ok(_)) if volumes.len() <= INDIVIDUAL_REQUESTS => Ok(false),
            Ok(Ok(_)) => Ok(!self.list_existing(config.clone(), volumes).await?.is_empty()),
        }
    }

    /// Whether one of these volumes exists in the cloud of the attempt. A failure or a negative result is cached for
    /// [`LOOKUP_LIFETIME`].
    async fn find_volumes(
        &self,
        attempt: &Attempt<'_>,
        place: &Place,
        volumes: &Arc<BTreeSet<String>>,
    ) -> Result<bool, String> {
        let key = (attempt.driver.to_owned(), attempt.source.cloud.clone());
        let hash = attempt.candidate.credentials.hash();
        if let Some(result) = self.recent_lookup(&key, hash) {
            return result.map(|result| !result.is_empty());
        }
        // The lookup uses the region of the login, even if the configuration names none.
        let mut config = attempt.candidate.config.clone();
        config.region = config.region.or_else(|| place.region.clone());
        let result = self.knows_volumes(&config, volumes).await;
        if result == Ok(true) {
            self.lookups.lock().remove(&key);
        } else {
            self.cache_lookup(key, hash, result.clone().map(|_| Vec::new()));
        }
        result
    }

    /// Whether the credentials return to the volumes of the driver, after a move to a project without them. A volume
    /// must exist in the new project, and none in the recorded one.
    ///
    /// Without credentials for the recorded project, all volumes must exist in the new project, and the driver must
    /// have only one cloud. A rejection is cached for [`LOOKUP_LIFETIME`].
    async fn has_returned(
        &self,
        attempt: &Attempt<'_>,
        place: &Place,
        volumes: &Arc<BTreeSet<String>>,
    ) -> Result<bool, String> {
        if !self.find_volumes(attempt, place, volumes).await? {
            return Ok(false);
        }
        let installed = attempt.installed.credentials.as_ref();
        let returned = match installed.and_then(DriverCredentials::config) {
            Some(config) => self
                .list_existing(config, volumes)
                .await
                .map(|existing| existing.is_empty()),
            None if attempt.stakes.places.len() == 1 => {
                let mut config = attempt.candidate.config.clone();
                config.region = config.region.or_else(|| place.region.clone());
                let existing = self.list_existing(config, volumes).await;
                existing.map(|existing| existing.len() == volumes.len())
            }
            None => Ok(false),
        };
        if returned != Ok(true) {
            let key = (attempt.driver.to_owned(), attempt.source.cloud.clone());
            let hash = attempt.candidate.credentials.hash();
            self.cache_lookup(key, hash, returned.clone().map(|_| Vec::new()));
        }
        returned
    }

    /// Decides whether the project and region of the credentials are acceptable. Returns the project and region to
    /// record; `None` for credentials that the driver already uses while their project and region remain unknown.
    async fn admit(&self, attempt: &Attempt<'_>, tried: &Tried) -> Result<Option<Place>, Refused> {
        let Attempt { stakes, installed, .. } = attempt;
        if !attempt.is_changed {
            if let Some(known) = installed.place.known() {
                // The driver's present credentials refer to the recorded project, even if the catalogue has changed.
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
                        "they belong to {}, where none of these volumes of the driver exists: {} ({cause})",
                        tried.place,
                        join_truncated(&volumes)
                    )
                }
                Err(error) => format!(
                    "they belong to {}, and the operator cannot determine whether the volumes of the driver exist there: {error} ({cause})",
                    tried.place
                ),
            },
            Admission::IfReturned(usage, reason) => {
                match self.has_returned(attempt, &tried.place, &usage.volumes).await {
                    Ok(true) => return Ok(Some(tried.place.clone())),
                    Ok(false) => reason,
                    Err(error) => format!("{reason}; the operator cannot determine where its volumes exist: {error}"),
                }
            }
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

    /// Checks `candidate` and decides which credentials the driver may use. `installed` is the driver's present state,
    /// and `stakes` determines the cost of a different project. Valid credentials are checked again every `interval`.
    pub(crate) async fn check(
        &self,
        driver: &str,
        source: &Source,
        candidate: Result<Candidate, Refused>,
        installed: InstalledCloud,
        stakes: &Stakes<'_>,
        interval: Duration,
    ) -> Verdict {
        let key = (driver.to_owned(), source.cloud.clone());
        let previous = self.trials.lock().get(&key).cloned();
        let state = previous.as_ref().map(|trial| trial.state.clone()).unwrap_or_default();
        let candidate = match candidate {
            Ok(candidate) => candidate,
            Err(refusal) => {
                // A watch reports a changed Secret or ConfigMap, but not that the API server responds again.
                let is_unreadable = refusal.reason == Refusal::SecretUnreadable;
                let pause = if is_unreadable {
                    FIRST_PAUSE.min(interval)
                } else {
                    interval
                };
                return refused(refusal, installed.credentials, true, pause, state);
            }
        };
        let mut refused_contents = previous
            .as_ref()
            .map(|trial| trial.refused_contents)
            .unwrap_or_default();
        let before = previous.filter(|trial| trial.is_same_login(&candidate));
        let present = installed.credentials.as_ref();
        let mut attempt = Attempt {
            driver,
            source,
            is_changed: present.is_none_or(|present| !present.is_from(&candidate.credentials)),
            is_fresh: false,
            candidate,
            installed: &installed,
            stakes,
        };
        if before.is_none()
            && let Some(pause) = refused_contents.pause(interval, Instant::now())
        {
            let refusal = source.too_many_rejections(refused_contents.count);
            return refused(refusal, installed.credentials.clone(), attempt.is_changed, pause, state);
        }
        let is_valid = |trial: &Trial| trial.remaining_validity(interval, Instant::now()).is_some();
        let trial = match before {
            Some(trial) if is_valid(&trial) => trial,
            before => {
                let is_new = before.is_none();
                let mut trial = self.try_candidate(&attempt, before, state).await;
                if is_new && trial.is_refused() {
                    refused_contents.add(interval, trial.at);
                }
                trial.refused_contents = refused_contents;
                self.trials.lock().insert(key, trial.clone());
                attempt.is_fresh = true;
                trial
            }
        };
        let look_again = trial.remaining_validity(interval, Instant::now()).unwrap_or(interval);
        let admitted = match &trial.result {
            Ok(tried) => self.admit(&attempt, tried).await,
            Err(refusal) => Err(refusal.clone()),
        };
        match admitted {
            Ok(place) => attempt.accepted(place, look_again, trial.state),
            Err(refusal) => {
                let is_changed = attempt.is_changed;
                let refusal = attempt.explain(refusal);
                refused(refusal, installed.credentials, is_changed, look_again, trial.state)
            }
        }
    }

    /// Logs in with a candidate. `before` is the last check of the same content, and `state` is the result of earlier
    /// successful checks of the cloud.
    async fn try_candidate(&self, attempt: &Attempt<'_>, before: Option<Trial>, state: CloudState) -> Trial {
        let Attempt {
            driver,
            source,
            candidate,
            ..
        } = attempt;
        let known = attempt.installed.place.known();
        let questions = Questions {
            services: true,
            volumes: Vec::new(),
            default_region: known
                .and_then(|place| place.region.clone())
                .filter(|_| candidate.config.region.is_none()),
        };
        let trial = self.keystone.try_out(candidate.config.clone(), questions);
        let result = match tokio::time::timeout(LOGIN_LIMIT, trial).await {
            Ok(Ok(tried)) => Ok(tried),
            Ok(Err(error)) => Err(source.refused(&candidate.auth_url, &error)),
            Err(_) => Err(source.no_answer(&candidate.auth_url)),
        };
        let was_refused = before.as_ref().is_none_or(|trial| trial.result.is_err());
        match &result {
            Ok(_) if was_refused => attempt.report_login(),
            Ok(_) => debug!(driver, cloud = source.cloud, "the login works still"),
            Err(refusal) => warn!(
                driver,
                cloud = source.cloud,
                reason = refusal.reason.degraded().as_str(),
                "credentials are not used: {}",
                refusal.message
            ),
        }
        // Messages with the same reason may differ in detail. The first one remains, so that the status does not
        // change.
        let result = match (result, before.as_ref().map(|trial| &trial.result)) {
            (Err(new), Some(Err(old))) if new.reason == old.reason => Err(old.clone()),
            (result, _) => result,
        };
        let failures = before.map_or(0, |trial| trial.failures).saturating_add(1);
        Trial {
            hash: candidate.credentials.hash().to_owned(),
            proxies: candidate.config.proxies.clone(),
            at: Instant::now(),
            failures: if result.is_ok() { 0 } else { failures },
            state: match &result {
                Ok(tried) => merge_state(state, &tried.state),
                Err(_) => state,
            },
            result,
            is_outdated: false,
            refused_contents: RefusedContents::default(),
        }
    }
}

/// Merges the state that a successful check read. Zones that the check could not read remain unchanged.
fn merge_state(before: CloudState, read: &CloudState) -> CloudState {
    fn newest<T: Clone>(read: &[T], before: Vec<T>) -> Vec<T> {
        if read.is_empty() { before } else { read.to_vec() }
    }
    CloudState {
        facts: CloudFacts {
            compute_zones: newest(&read.facts.compute_zones, before.facts.compute_zones),
            volume_zones: newest(&read.facts.volume_zones, before.facts.volume_zones),
        },
        ..read.clone()
    }
}

/// Credentials under evaluation.
struct Attempt<'a> {
    driver: &'a str,
    source: &'a Source,
    candidate: Candidate,
    /// Whether the driver uses different credentials now.
    is_changed: bool,
    /// Whether this attempt logged in, and did not use a cached result.
    is_fresh: bool,
    installed: &'a InstalledCloud,
    stakes: &'a Stakes<'a>,
}

impl Attempt<'_> {
    /// Logs the first successful login, and settings of the Secret without an effect.
    fn report_login(&self) {
        let (driver, cloud) = (self.driver, &self.source.cloud);
        info!(driver, cloud, "the login works");
        for warning in &self.candidate.config.warnings {
            let secret = self.source.secret();
            warn!(
                driver,
                cloud, secret, warning, "the credentials hold something without effect"
            );
        }
    }

    /// Adds the keys without an effect to the message. One of them may be the cause.
    fn explain(&self, refusal: Refused) -> Refused {
        let warnings = &self.candidate.config.warnings;
        if warnings.is_empty() {
            return refusal;
        }
        let message = format!("{}; not used: {}", refusal.message, join_truncated(warnings));
        Refused { message, ..refusal }
    }

    fn accepted(self, place: Option<Place>, look_again: Duration, state: CloudState) -> Verdict {
        let installed = self.installed.credentials.as_ref();
        let shown = place.clone().or_else(|| installed?.place().cloned());
        let credentials = self.candidate.credentials;
        let warnings = self.candidate.config.warnings;
        Verdict {
            authenticated: true,
            refusal: None,
            in_use: Some(match shown {
                Some(shown) => credentials.at(shown),
                None => credentials,
            }),
            place,
            is_changed: false,
            look_again,
            state,
            warnings,
        }
    }
}

fn refused(
    refusal: Refused,
    last_good: Option<DriverCredentials>,
    is_changed: bool,
    look_again: Duration,
    state: CloudState,
) -> Verdict {
    Verdict {
        authenticated: false,
        refusal: Some(refusal),
        in_use: last_good,
        place: None,
        is_changed,
        look_again,
        state,
        warnings: Vec::new(),
    }
}

/// The authentication method of a configuration.
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
