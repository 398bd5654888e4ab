// SPDX-License-Identifier: Apache-2.0
//! Applies changes of `cloud.conf`, and of the files that it refers to, while calls are served.
//!
//! The driver tries a changed configuration by a login, cloud by cloud. If the login succeeds, the new configuration
//! replaces the old one, for running operations as well. If it fails, the old configuration stays in use, and log,
//! metrics and readiness report the reason. A new section is served after the first login to its cloud. The cloud of a
//! removed section stays in use.

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

/// The flags that select the configuration.
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

/// The last failed attempt to apply the configuration of a cloud.
#[derive(Debug)]
struct FailedAttempt {
    hash: String,
    retry_at: Instant,
    pause: Duration,
    why: String,
}

/// Watches the files and applies changes.
#[derive(Debug)]
pub(super) struct Reload {
    source: ConfigSource,
    connector: Connector,
    changes: Changes,
    clouds: Clouds,
    logins: Logins,
    metrics: ReloadMetrics,
    salt: [u8; 16],
    /// The hash of the configuration in use, by cloud.
    in_use: BTreeMap<String, String>,
    attempts: BTreeMap<String, FailedAttempt>,
    /// The warnings that were logged.
    warned: BTreeSet<String>,
    /// The reason why the files could not be parsed.
    malformed: Option<String>,
}

impl Reload {
    /// Starts to watch the files. `configuration` is the configuration of the existing clouds.
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
            attempts: BTreeMap::new(),
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

    /// Applies changes until `shutdown`.
    pub(super) async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let next = self.next_check();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = self.changes.wait_for_change() => tokio::time::sleep(TIMING.config_settle).await,
                () = tokio::time::sleep_until(next) => {}
            }
            let files = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                files = self.apply_changes() => files,
            };
            if let Some(files) = files {
                self.changes.watch_more(&files);
            }
        }
    }

    /// Returns the time of the next check without an event.
    ///
    /// While the files are malformed, no login is attempted, so a pending retry does not count. It would remain due,
    /// and the checks would repeat without a pause.
    fn next_check(&self) -> Instant {
        let poll = Instant::now() + TIMING.config_poll;
        let attempts = self.attempts.values().map(|attempt| attempt.retry_at);
        let retry_at = attempts.min().filter(|_| self.malformed.is_none());
        retry_at.map_or(poll, |retry_at| retry_at.min(poll))
    }

    /// Reads the files and applies changes. Returns the files to watch, or `None` if they cannot be parsed.
    async fn apply_changes(&mut self) -> Option<Vec<PathBuf>> {
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
        // Drops the refused attempts of sections that were removed again.
        let concerns = |name: &String| served.contains_key(name) || configuration.clouds.contains_key(name);
        self.attempts.retain(|name, _| concerns(name));
        for name in served.keys().filter(|name| !configuration.clouds.contains_key(*name)) {
            self.retain_removed(name);
        }
        let mut changed = false;
        for (name, config) in &configuration.clouds {
            let hash = self.hash(config);
            if self.in_use.get(name) == Some(&hash) {
                self.attempts.remove(name);
                continue;
            }
            let previous = self.attempts.get(name).filter(|attempt| attempt.hash == hash);
            if previous.is_some_and(|attempt| attempt.retry_at > Instant::now()) {
                continue;
            }
            let pause = previous.map_or(TIMING.config_retry, |attempt| {
                (attempt.pause * 2).min(TIMING.config_poll)
            });
            let tried = match served.get(name) {
                Some(cloud) => cloud.reload(config.clone()).await,
                None => self.add_cloud(name, config).await,
            };
            match tried {
                Ok(login) => {
                    tracing::info!(cloud = name, "the changed configuration is in use");
                    self.logins.record_login(name, &login);
                    self.attempts.remove(name);
                    self.in_use.insert(name.clone(), hash);
                    changed = true;
                }
                Err(error) => self.record_refusal(name.clone(), hash, pause, &error),
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

    /// Adds the cloud of a new section after a login. Before that, every search for a volume would be uncertain.
    async fn add_cloud(&self, name: &str, config: &CloudConfig) -> Result<Login, CloudError> {
        let cloud = self.connector.cloud(name, config)?;
        let login = cloud.login().await?;
        self.clouds.add(name, cloud);
        Ok(login)
    }

    fn record_refusal(&mut self, name: String, hash: String, pause: Duration, error: &CloudError) {
        tracing::error!(cloud = name, %error, "the changed configuration does not log in; the last good one stays in use");
        let attempt = FailedAttempt {
            hash,
            retry_at: Instant::now()
                + if error.is_transient() {
                    pause
                } else {
                    TIMING.config_retry_refused
                },
            pause,
            why: error.to_string(),
        };
        self.attempts.insert(name, attempt);
    }

    /// Retains the cloud of a removed section, because its volumes would otherwise be reported as missing.
    fn retain_removed(&mut self, name: &str) {
        let is_logged = self.attempts.get(name).is_some_and(|attempt| attempt.hash.is_empty());
        if !is_logged {
            tracing::error!(
                cloud = name,
                "the section of this cloud is gone; it stays in use until the driver is restarted"
            );
        }
        let attempt = FailedAttempt {
            hash: String::new(),
            retry_at: Instant::now() + TIMING.config_retry_refused,
            pause: TIMING.config_poll,
            why: "its section is gone; restart the driver if that is meant".into(),
        };
        self.attempts.insert(name.to_owned(), attempt);
    }

    fn report(&self) {
        let refused = self.attempts.iter().map(|(name, attempt)| match name.as_str() {
            "" => attempt.why.clone(),
            name => format!("cloud {name}: {}", attempt.why),
        });
        let why: Vec<String> = self.malformed.iter().cloned().chain(refused).collect();
        let why = (!why.is_empty()).then(|| format!("the changed configuration is not in use: {}", why.join("; ")));
        self.metrics.report(why.is_none());
        self.logins.set_reload_problem(why);
    }

    /// Returns the hash of a configuration and of the files that it refers to.
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
