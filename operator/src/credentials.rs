//! Credentials are tried before they are used.
//!
//! The Secret that the spec names is read, understood and logged in with. Only what logs in becomes the driver's own Secret;
//! until then the driver keeps what it was given last. A login is repeated when the content changed, after a failure with a
//! growing pause, and once per interval.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use cinder_cloud::{Cloud, CloudConfig, CloudError, CloudOptions, ConfigError};
use cinder_csi_crds::{CaBundleKind, Cloud as CloudSpec};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::{
    operands::{CA_FILE, DriverCredentials},
    resolve::Problem,
};

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
    /// When to look again.
    pub look_again: Duration,
}

/// What was tried last for one cloud of one driver.
#[derive(Debug, Clone)]
struct Trial {
    hash: String,
    at: Instant,
    failures: u32,
    refusal: Option<Problem>,
}

impl Trial {
    /// How long this result still holds.
    fn holds_for(&self, hash: &str, interval: Duration, now: Instant) -> Option<Duration> {
        if self.hash != hash {
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
    interval: Duration,
    trials: Mutex<HashMap<(String, String), Trial>>,
}

impl Checker {
    /// Tries good credentials again every `interval`.
    pub fn new(keystone: Box<dyn Keystone>, interval: Duration) -> Self {
        Self {
            keystone,
            interval,
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

    /// Judges `candidate`; `last_good` is what the driver has now.
    pub async fn check(
        &self,
        driver: &str,
        source: &Source,
        candidate: Result<Candidate, Problem>,
        last_good: Option<DriverCredentials>,
    ) -> Verdict {
        let candidate = match candidate {
            Ok(candidate) => candidate,
            // What cannot be read is found again by the watch on Secrets and ConfigMaps.
            Err(refusal) => return self.refused(refusal, last_good, self.interval),
        };
        let key = (driver.to_owned(), source.cloud.clone());
        let known = self
            .trials
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
            .cloned();
        let hash = candidate.credentials.hash().to_owned();
        let holds = known
            .as_ref()
            .and_then(|trial| trial.holds_for(&hash, self.interval, Instant::now()));
        if let (Some(left), Some(trial)) = (holds, &known) {
            return match &trial.refusal {
                None => Verdict::accepted(candidate.credentials, left),
                Some(refusal) => self.refused(refusal.clone(), last_good, left),
            };
        }
        let before = known.filter(|trial| trial.hash == hash);
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
            hash: hash.clone(),
            at: Instant::now(),
            failures,
            refusal: refusal.clone(),
        };
        let look_again = trial.holds_for(&hash, self.interval, trial.at).unwrap_or(self.interval);
        self.trials
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, trial);
        match refusal {
            None => {
                info!(
                    driver,
                    cloud = source.cloud,
                    hash = candidate.credentials.short_hash(),
                    "credentials log in"
                );
                Verdict::accepted(candidate.credentials, look_again)
            }
            Some(refusal) => self.refused(refusal, last_good, look_again),
        }
    }

    fn refused(&self, refusal: Problem, last_good: Option<DriverCredentials>, look_again: Duration) -> Verdict {
        Verdict {
            authenticated: false,
            refusal: Some(refusal),
            in_use: last_good,
            look_again: look_again.min(self.interval),
        }
    }
}

impl Verdict {
    fn accepted(credentials: DriverCredentials, look_again: Duration) -> Self {
        Self {
            authenticated: true,
            refusal: None,
            in_use: Some(credentials),
            look_again,
        }
    }
}

/// Credentials that have not been tried.
#[derive(Debug)]
pub struct Candidate {
    config: CloudConfig,
    auth_url: String,
    credentials: DriverCredentials,
}

/// Where the credentials of a cloud come from, for messages.
#[derive(Debug, Clone)]
pub struct Source {
    /// Name of the cloud in the spec.
    pub cloud: String,
    /// Namespace of the Secret.
    pub namespace: String,
    /// What the spec says.
    pub spec: CloudSpec,
}

impl Source {
    /// The source of a cloud.
    pub fn new(namespace: &str, spec: &CloudSpec) -> Self {
        Self {
            cloud: spec.name.clone(),
            namespace: namespace.to_owned(),
            spec: spec.clone(),
        }
    }

    fn secret(&self) -> String {
        format!("Secret {}/{}", self.namespace, self.spec.credentials_secret_ref.name)
    }

    fn key(&self) -> String {
        format!("key {} of {}", self.spec.credentials_secret_ref.key, self.secret())
    }

    /// Reads Secret and CA bundle. Nothing is cached: a change is seen at the next reconcile.
    pub async fn read(&self, client: &Client) -> Result<Candidate, Problem> {
        let reference = &self.spec.credentials_secret_ref;
        let secrets: Api<Secret> = Api::namespaced(client.clone(), &self.namespace);
        let secret = secrets
            .get_opt(&reference.name)
            .await
            .map_err(|error| self.unreadable(&self.secret(), &error))?;
        let Some(secret) = secret else {
            return Err(problem(
                "SecretMissing",
                format!(
                    "{} with the credentials of cloud {} does not exist; create it with the key {}, or name another one in \
                 spec.clouds",
                    self.secret(),
                    self.cloud,
                    reference.key
                ),
            ));
        };
        let data = secret.data.unwrap_or_default();
        let Some(bytes) = data.get(&reference.key) else {
            let known: Vec<&str> = data.keys().map(String::as_str).collect();
            return Err(problem(
                "SecretKeyMissing",
                format!(
                    "{} has no key {}, only: {}; add it, or name another key in spec.clouds[].credentialsSecretRef.key",
                    self.secret(),
                    reference.key,
                    if known.is_empty() {
                        "nothing".to_owned()
                    } else {
                        known.join(", ")
                    }
                ),
            ));
        };
        let text = std::str::from_utf8(&bytes.0).map_err(|_| {
            problem(
                "SecretMalformed",
                format!("{} is no text; store the file as it is", self.key()),
            )
        })?;
        let ca_pem = self.read_ca(client, &secrets).await?;
        self.understand(text, ca_pem)
    }

    async fn read_ca(&self, client: &Client, secrets: &Api<Secret>) -> Result<Option<String>, Problem> {
        let Some(reference) = &self.spec.ca_bundle_ref else {
            return Ok(None);
        };
        let (kind, name, key) = (reference.kind, &reference.name, &reference.key);
        let place = format!("{kind:?} {}/{name}", self.namespace);
        let found = match kind {
            CaBundleKind::Secret => {
                let secret = secrets
                    .get_opt(name)
                    .await
                    .map_err(|error| self.unreadable(&place, &error))?;
                secret.map(|secret| {
                    let bytes = secret.data.and_then(|mut data| data.remove(key));
                    bytes.and_then(|bytes| String::from_utf8(bytes.0).ok())
                })
            }
            CaBundleKind::ConfigMap => {
                let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &self.namespace);
                let map = maps
                    .get_opt(name)
                    .await
                    .map_err(|error| self.unreadable(&place, &error))?;
                map.map(|map| map.data.and_then(|mut data| data.remove(key)))
            }
        };
        let pem = match found {
            None => {
                let message = format!(
                    "{place} with the CA bundle of cloud {} does not exist; create it with the key {key}, or \
                    change spec.clouds[].caBundleRef",
                    self.cloud
                );
                return Err(problem("CABundleMissing", message));
            }
            Some(None) => {
                let message = format!(
                    "{place} has no text under the key {key}; add it, or name another key in \
                    spec.clouds[].caBundleRef.key"
                );
                return Err(problem("CABundleMissing", message));
            }
            Some(Some(pem)) => pem,
        };
        if !pem.contains("-----BEGIN CERTIFICATE-----") {
            let message = format!(
                "key {key} of {place} holds no certificate in PEM; it must begin with -----BEGIN CERTIFICATE-----"
            );
            return Err(problem("CABundleMalformed", message));
        }
        Ok(Some(pem))
    }

    /// Turns the text of the Secret into what the driver is given.
    fn understand(&self, text: &str, ca_pem: Option<String>) -> Result<Candidate, Problem> {
        // The CRD lets only names with these endings in.
        let is_yaml = Path::new(&self.spec.credentials_secret_ref.key)
            .extension()
            .is_some_and(|ending| ending == "yaml" || ending == "yml");
        let parsed = if is_yaml {
            CloudConfig::from_clouds_yaml(text, &self.spec.cloud_name)
        } else {
            CloudConfig::from_cloud_conf(text)
        };
        let mut config = parsed.map_err(|error| self.malformed(&error))?;
        if let Some(region) = &self.spec.region {
            config.region = Some(region.clone());
        }
        for warning in &config.warnings {
            warn!(
                cloud = self.cloud,
                secret = self.secret(),
                warning,
                "the credentials hold something without effect"
            );
        }
        if let Some(pem) = ca_pem {
            config.tls.ca_file = None;
            config.tls.ca_pem = Some(pem);
        }
        if let Some(file) = &config.tls.ca_file {
            return Err(problem(
                "CABundleMissing",
                format!(
                    "{} names the CA file {}, which the driver's pods do not have; put the certificates into a ConfigMap and name it in \
                 spec.clouds[].caBundleRef",
                    self.key(),
                    file.display()
                ),
            ));
        }
        let pem = config.tls.ca_pem.clone();
        let cloud_conf = config.to_cloud_conf(pem.as_ref().map(|_| CA_FILE));
        let credentials = DriverCredentials::new(cloud_conf.into(), pem);
        Ok(Candidate {
            auth_url: config.auth_url.clone(),
            config,
            credentials,
        })
    }

    fn malformed(&self, error: &ConfigError) -> Problem {
        match error {
            ConfigError::UnknownCloud { cloud, known, .. } => problem(
                "UnknownCloud",
                format!(
                    "{} has no cloud {cloud}; it has: {known}. Set spec.clouds[].cloudName to one of these",
                    self.key()
                ),
            ),
            error => problem("SecretMalformed", format!("{} cannot be used: {error}", self.key())),
        }
    }

    fn unreadable(&self, what: &str, error: &kube::Error) -> Problem {
        let said = match error {
            kube::Error::Api(status) => status.message.clone(),
            _ => "the API server did not answer".to_owned(),
        };
        problem(
            "SecretUnreadable",
            format!("{what}, needed for cloud {}, cannot be read: {said}", self.cloud),
        )
    }

    /// Why a login failed, without what differs from one try to the next (request ids, times).
    fn refusal(&self, auth_url: &str, error: &CloudError) -> Problem {
        let answer = |status: Option<u16>, fault: &str| match status {
            Some(status) => format!("HTTP {status}: {}", fault.trim_end_matches('.')),
            None => fault.trim_end_matches('.').to_owned(),
        };
        match error {
            // A 404 from the place where Keystone should be says nothing about the credentials.
            CloudError::Auth(failure) | CloudError::Forbidden(failure) if matches!(failure.status, Some(401 | 403)) => {
                problem(
                    "CredentialsRejected",
                    format!(
                        "Keystone at {auth_url} does not accept the credentials in {}, cloud {}: {}. Check user or application credential, \
                 project, domain and whether the credential has expired, and mend the Secret",
                        self.key(),
                        self.cloud,
                        answer(failure.status, &failure.fault)
                    ),
                )
            }
            CloudError::Unreachable { failure, .. } => problem(
                "CloudUnreachable",
                format!(
                    "Keystone at {auth_url}, named by {}, does not answer: {}. Check the auth URL, DNS, routes and firewalls between the \
                 cluster and the cloud, and the CA bundle",
                    self.key(),
                    failure.fault.trim_end_matches('.')
                ),
            ),
            CloudError::Auth(failure)
            | CloudError::Forbidden(failure)
            | CloudError::BadRequest(failure)
            | CloudError::Conflict(failure)
            | CloudError::Server(failure)
            | CloudError::Decode(failure)
            | CloudError::Throttled { failure, .. } => problem(
                "LoginFailed",
                format!(
                    "the login to Keystone at {auth_url} with {} failed: {}. If the URL is that of a Keystone v3, the cloud needs help",
                    self.key(),
                    answer(failure.status, &failure.fault)
                ),
            ),
            CloudError::NotFound { .. } => problem(
                "LoginFailed",
                format!(
                    "there is no Keystone v3 at {auth_url}, which {} names; check the auth URL",
                    self.key()
                ),
            ),
            other => problem("LoginFailed", format!("the login with {} failed: {other}", self.key())),
        }
    }

    fn no_answer(&self, auth_url: &str) -> Problem {
        problem(
            "CloudUnreachable",
            format!(
                "Keystone at {auth_url}, named by {}, did not answer within {} s. Check the auth URL, DNS, routes and firewalls between \
             the cluster and the cloud",
                self.key(),
                LOGIN_LIMIT.as_secs()
            ),
        )
    }
}

fn problem(reason: &'static str, message: String) -> Problem {
    Problem { reason, message }
}

#[cfg(test)]
mod tests;
