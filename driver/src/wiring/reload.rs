// SPDX-License-Identifier: Apache-2.0
//! Changes of `cloud.conf` and of the files that it names, taken over while calls are served.
//!
//! A changed configuration is tried by a login, cloud by cloud. What logs in replaces the old one, for what is under way too; what
//! does not leaves the old one in use, and log, metrics and readiness say why. A section that comes is served as soon as its cloud lets us in;
//! the cloud of one that goes stays.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use cinder_cloud::config::credentials_hash;
use cinder_cloud::{CloudConfig, CloudError, ConfigError, Configuration, Login};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

mod files;
mod metrics;

use files::Changes;
pub(super) use metrics::ReloadMetrics;

use super::connector::Connector;
use super::login::Logins;
use crate::clouds::Clouds;
use crate::timing::TIMING;

/// Where the configuration is read from.
#[derive(Debug, Clone)]
pub(super) struct ConfigSource {
    /// `--cloud-config`.
    pub(super) files: Vec<PathBuf>,
    /// `--cloud-name`.
    pub(super) names: Vec<String>,
}

impl ConfigSource {
    pub(super) fn load(&self) -> Result<Configuration, ConfigError> {
        Configuration::load(&self.files, &self.names)
    }
}

/// What was tried last for a cloud and did not work.
#[derive(Debug)]
struct Trial {
    hash: String,
    again: Instant,
    pause: Duration,
    why: String,
}

/// Watches the files and takes changes over.
#[derive(Debug)]
pub(super) struct Reload {
    source: ConfigSource,
    connector: Connector,
    changes: Changes,
    clouds: Clouds,
    logins: Logins,
    metrics: ReloadMetrics,
    salt: [u8; 16],
    /// By cloud, the hash of what is in use.
    in_use: BTreeMap<String, String>,
    trials: BTreeMap<String, Trial>,
    /// The warnings that were told.
    warned: BTreeSet<String>,
    /// Why the files could not be understood.
    malformed: Option<String>,
}

impl Reload {
    /// Watches from now on. `configuration` is what the clouds were made of.
    pub(super) fn new(
        source: ConfigSource,
        connector: Connector,
        configuration: &Configuration,
        clouds: Clouds,
        logins: Logins,
        metrics: ReloadMetrics,
    ) -> Self {
        let files: Vec<PathBuf> = source.files.iter().chain(&configuration.files).cloned().collect();
        let salt = *connector.options.sources.uuid().as_bytes();
        let mut reload = Self {
            source,
            connector,
            changes: Changes::watch(&files),
            clouds,
            logins,
            metrics,
            salt,
            in_use: BTreeMap::new(),
            trials: BTreeMap::new(),
            warned: BTreeSet::new(),
            malformed: None,
        };
        for (name, config) in &configuration.clouds {
            reload.in_use.insert(name.clone(), reload.hash(config));
            reload.warned.extend(config.warnings.iter().cloned());
        }
        reload.metrics.report(true);
        reload.metrics.applied(&reload.connector.options.sources);
        reload
    }

    /// Until `shutdown`.
    pub(super) async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let next = self.next();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = self.changes.happen() => tokio::time::sleep(TIMING.config_settle).await,
                () = tokio::time::sleep_until(next) => {}
            }
            let files = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                files = self.look() => files,
            };
            if let Some(files) = files {
                self.changes.follow(&files);
            }
        }
    }

    /// When to look again even where the kernel reports nothing. While the files cannot be understood nothing is tried, so what was
    /// due to be tried again is no reason to look: it would stay due, and look would follow on look without a pause.
    fn next(&self) -> Instant {
        let poll = Instant::now() + TIMING.config_poll;
        let trials = self.trials.values().map(|trial| trial.again);
        let again = trials.min().filter(|_| self.malformed.is_none());
        again.map_or(poll, |again| again.min(poll))
    }

    /// Reads the files and takes over what has changed. Gives the files that count now, where they can be understood.
    async fn look(&mut self) -> Option<Vec<PathBuf>> {
        let source = self.source.clone();
        let loaded = tokio::task::spawn_blocking(move || source.load()).await.ok()?;
        let configuration = match loaded {
            Ok(configuration) => {
                self.malformed = None;
                configuration
            }
            Err(error) => {
                let why = error.to_string();
                if self.malformed.as_ref() != Some(&why) {
                    tracing::error!(%error, "the changed configuration cannot be used; the last good one stays in use");
                }
                self.malformed = Some(why);
                self.report();
                return None;
            }
        };
        for (name, config) in &configuration.clouds {
            for warning in &config.warnings {
                if self.warned.insert(warning.clone()) {
                    tracing::warn!(cloud = name, warning, "cloud.conf");
                }
            }
        }
        let served: BTreeMap<_, _> = self.clouds.configured().into_iter().collect();
        // A section that came, was refused and went again concerns nobody any more.
        let concerns = |name: &String| served.contains_key(name) || configuration.clouds.contains_key(name);
        self.trials.retain(|name, _| concerns(name));
        for name in served.keys().filter(|name| !configuration.clouds.contains_key(*name)) {
            self.gone(name);
        }
        let mut changed = false;
        for (name, config) in &configuration.clouds {
            let hash = self.hash(config);
            if self.in_use.get(name) == Some(&hash) {
                self.trials.remove(name);
                continue;
            }
            let before = self.trials.get(name).filter(|trial| trial.hash == hash);
            if before.is_some_and(|trial| trial.again > Instant::now()) {
                continue;
            }
            let pause = before.map_or(TIMING.config_retry, |trial| (trial.pause * 2).min(TIMING.config_poll));
            let tried = match served.get(name) {
                Some(cloud) => cloud.reload(config.clone()).await,
                None => self.take_on(name, config).await,
            };
            match tried {
                Ok(login) => {
                    tracing::info!(cloud = name, "the changed configuration is in use");
                    self.logins.done(name, &login);
                    self.trials.remove(name);
                    self.in_use.insert(name.clone(), hash);
                    changed = true;
                }
                Err(error) => self.refused(name.clone(), hash, pause, &error),
            }
        }
        if changed {
            self.clouds.forget_sessions();
            self.metrics.applied(&self.connector.options.sources);
            self.metrics.changed.notify_one();
        }
        self.report();
        Some(configuration.files.into_iter().collect())
    }

    /// Serves a cloud whose section is new, once it lets us in: until then it would only make every look for a volume uncertain.
    async fn take_on(&self, name: &str, config: &CloudConfig) -> Result<Login, CloudError> {
        let cloud = self.connector.cloud(name, config)?;
        let login = cloud.login().await?;
        self.clouds.add(name, cloud);
        Ok(login)
    }

    fn refused(&mut self, name: String, hash: String, pause: Duration, error: &CloudError) {
        tracing::error!(cloud = name, %error, "the changed configuration does not log in; the last good one stays in use");
        let trial = Trial {
            hash,
            again: Instant::now()
                + if error.is_transient() {
                    pause
                } else {
                    TIMING.config_retry_refused
                },
            pause,
            why: error.to_string(),
        };
        self.trials.insert(name, trial);
    }

    /// A cloud whose section is gone stays: without it, "no such volume" would be said of the volumes there.
    fn gone(&mut self, name: &str) {
        let known = self.trials.get(name).is_some_and(|trial| trial.hash.is_empty());
        if !known {
            tracing::error!(
                cloud = name,
                "the section of this cloud is gone; it stays in use until the driver is restarted"
            );
        }
        let trial = Trial {
            hash: String::new(),
            again: Instant::now() + TIMING.config_retry_refused,
            pause: TIMING.config_poll,
            why: "its section is gone; restart the driver if that is meant".into(),
        };
        self.trials.insert(name.to_owned(), trial);
    }

    fn report(&self) {
        let refused = self.trials.iter().map(|(name, trial)| match name.as_str() {
            "" => trial.why.clone(),
            name => format!("cloud {name}: {}", trial.why),
        });
        let why: Vec<String> = self.malformed.iter().cloned().chain(refused).collect();
        let why = (!why.is_empty()).then(|| format!("the changed configuration is not in use: {}", why.join("; ")));
        self.metrics.report(why.is_none());
        self.logins.refused(why);
    }

    /// Of a configuration with the content of the files that it names.
    fn hash(&self, config: &CloudConfig) -> String {
        let text = config.to_cloud_conf(None);
        let parts: Vec<&[u8]> = [self.salt.as_slice(), text.as_bytes()]
            .into_iter()
            .chain(config.tls.contents())
            .collect();
        credentials_hash(&parts)
    }
}

#[cfg(test)]
mod tests;
