//! Credentials are tried before they are used.
//!
//! The Secret that the spec names is read, understood and logged in with. Only what logs in becomes the driver's own Secret;
//! until then the driver keeps what it was given last. A login is repeated when the content changed, after a failure with a
//! growing pause, and once per interval.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use cinder_cloud::{Auth, Cloud, CloudConfig, CloudError, CloudOptions, config::Proxies};
use csi_sources::Sources;
use futures::future::BoxFuture;
use secrecy::SecretString;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::{operands::DriverCredentials, resolve::Problem};

mod source;

pub use source::{Candidate, Source};
pub(crate) use source::{parted, proxies};

/// How long one login may take in all.
const LOGIN_LIMIT: Duration = Duration::from_secs(30);

/// Pause after the first failed login; it doubles up to the check interval.
const FIRST_PAUSE: Duration = Duration::from_secs(10);

/// Logs in somewhere. The seam for tests.
pub trait Keystone: Send + Sync + std::fmt::Debug {
    /// Tries the credentials.
    fn login(&self, config: CloudConfig) -> BoxFuture<'_, Result<(), CloudError>>;
}

/// Logs in to the cloud that the configuration names.
#[derive(Debug, Clone)]
pub struct RealKeystone {
    /// How to talk to it.
    pub options: CloudOptions,
}

impl Keystone for RealKeystone {
    fn login(&self, config: CloudConfig) -> BoxFuture<'_, Result<(), CloudError>> {
        let options = self.options.clone();
        Box::pin(async move { Cloud::new(config, options)?.login().await.map(drop) })
    }
}

/// The result of one check.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// Whether what the Secret holds now logs in.
    pub authenticated: bool,
    /// Why not.
    pub refusal: Option<Problem>,
    /// What the driver is to be given: the new credentials if they are good, else the last good ones.
    pub in_use: Option<DriverCredentials>,
    /// Whether what the Secret holds now is not what the driver has.
    pub is_changed: bool,
    /// Whether Keystone was asked for it.
    pub was_asked: bool,
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
    refusal: Option<Problem>,
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
}

impl Checker {
    /// Has tried nothing yet.
    pub fn new(keystone: Box<dyn Keystone>, sources: &Sources) -> Self {
        Self {
            keystone,
            salt: sources.uuid().simple().to_string().into(),
            trials: Mutex::default(),
        }
    }

    /// Forgets a driver that is gone.
    pub fn forget(&self, driver: &str) {
        self.trials
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|(name, _), _| name != driver);
    }

    /// Judges `candidate`; `last_good` is what the driver has now. Good credentials are tried again every `interval`.
    pub async fn check(
        &self,
        driver: &str,
        source: &Source,
        candidate: Result<Candidate, Problem>,
        last_good: Option<DriverCredentials>,
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
            Err(refusal) if refusal.reason == source::UNREADABLE => {
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
        let is_changed = last_good.as_ref().is_none_or(|good| good.hash() != hash);
        let holds = before
            .as_ref()
            .and_then(|trial| trial.holds_for(interval, Instant::now()));
        if let (Some(left), Some(trial)) = (holds, &before) {
            return match &trial.refusal {
                None => Verdict::accepted(candidate.credentials, left),
                Some(refusal) => refused(refusal.clone(), last_good, is_changed, left),
            };
        }
        let result = tokio::time::timeout(LOGIN_LIMIT, self.keystone.login(candidate.config)).await;
        let refusal = match result {
            Ok(Ok(())) => None,
            Ok(Err(error)) => {
                warn!(driver, cloud = source.cloud, %error, "credentials do not log in");
                Some(source.refusal(&candidate.auth_url, &error))
            }
            Err(_) => Some(source.no_answer(&candidate.auth_url)),
        };
        // Of one kind of failure the first sentence is kept: the next may differ in words only.
        let refusal = match (refusal, before.as_ref().and_then(|trial| trial.refusal.clone())) {
            (Some(new), Some(old)) if new.reason == old.reason => Some(old),
            (refusal, _) => refusal,
        };
        let failures = if refusal.is_some() {
            before.map_or(0, |trial| trial.failures).saturating_add(1)
        } else {
            0
        };
        let trial = Trial {
            hash,
            proxies,
            at: Instant::now(),
            failures,
            refusal: refusal.clone(),
        };
        let look_again = trial.holds_for(interval, trial.at).unwrap_or(interval);
        self.trials
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, trial);
        let verdict = match refusal {
            None => {
                info!(
                    driver,
                    cloud = source.cloud,
                    hash = candidate.credentials.short_hash(),
                    "credentials log in"
                );
                Verdict::accepted(candidate.credentials, look_again)
            }
            Some(refusal) => refused(refusal, last_good, is_changed, look_again.min(interval)),
        };
        Verdict {
            was_asked: true,
            ..verdict
        }
    }
}

fn refused(refusal: Problem, last_good: Option<DriverCredentials>, is_changed: bool, look_again: Duration) -> Verdict {
    Verdict {
        authenticated: false,
        refusal: Some(refusal),
        in_use: last_good,
        is_changed,
        was_asked: false,
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
            was_asked: false,
            look_again,
        }
    }
}

#[cfg(test)]
mod tests;
