// SPDX-License-Identifier: Apache-2.0
//! The clouds of all drivers: sessions with the credentials that the drivers use, and what looks through them have told.
//!
//! A look runs beside the reconciles and wakes one when it saw something new, so that a cloud that does not answer holds
//! nothing up. Looks are few: one per cloud at a time, each bounded, at a fixed interval.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cinder_cloud::{Cloud, CloudOptions, Observer, config::Proxies};
use cinder_operator_core::{
    clouds::{CloudFacts, CloudState, Trouble, trouble::TroubleKind},
    manifests::DriverCredentials,
    resolve::health::HealthSettings,
};
use tokio::{task::AbortHandle, time::Instant};
use tracing::warn;

use super::probe::look;
use crate::{metrics::Metrics, observe::Wake};

/// How long one look may take in all.
const LOOK_LIMIT: Duration = Duration::from_mins(2);

/// When a cloud is looked at again that was not found well.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// The clouds of all drivers. Clones are the same ones.
#[derive(Debug, Clone)]
pub struct Clouds {
    /// How to talk to them; nobody is talked to without.
    options: Option<CloudOptions>,
    metrics: Arc<Metrics>,
    wake: Wake,
    /// By the names of drivers and of their clouds.
    drivers: Arc<Mutex<HashMap<String, BTreeMap<String, Session>>>>,
}

#[derive(Debug)]
struct Session {
    hash: String,
    /// How it goes there, which is not in the hash.
    proxies: Proxies,
    cloud: Cloud,
    state: CloudState,
    looked_at: Option<Instant>,
    look: Option<AbortHandle>,
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(look) = &self.look {
            look.abort();
        }
    }
}

impl Session {
    /// When the next look is due.
    fn due_in(&self, interval: Duration) -> Duration {
        let pause = if self.state.troubles.is_empty() {
            interval
        } else {
            LOOK_AGAIN.min(interval)
        };
        self.looked_at
            .map_or(Duration::ZERO, |at| pause.saturating_sub(at.elapsed()))
    }
}

impl Clouds {
    /// Knows no cloud yet. A cloud that tells something new wakes its driver.
    pub(crate) fn new(options: CloudOptions, metrics: Arc<Metrics>, wake: Wake) -> Self {
        Self {
            options: Some(options),
            metrics,
            wake,
            drivers: Arc::default(),
        }
    }

    /// Clouds that nobody looks at.
    #[cfg(test)]
    pub(crate) fn blind(metrics: Arc<Metrics>) -> Self {
        Self {
            options: None,
            metrics,
            wake: crate::observe::wake_ups().0,
            drivers: Arc::default(),
        }
    }

    /// Keeps sessions with the credentials in use and starts the looks that are due. Says when the next one is.
    pub fn keep(
        &self,
        driver: &str,
        in_use: &BTreeMap<String, DriverCredentials>,
        settings: &HealthSettings,
        proxies: &Proxies,
    ) -> Duration {
        let Some(options) = &self.options else {
            return settings.quota_interval;
        };
        let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = drivers.entry(driver.to_owned()).or_default();
        known.retain(|name, _| in_use.contains_key(name));
        let mut next = settings.quota_interval;
        for (name, credentials) in in_use {
            let before = known.get(name);
            if before.is_none_or(|session| session.hash != credentials.hash() || session.proxies != *proxies) {
                // The cloud is the same one: what it told stays until it tells anew.
                let facts = before.map(|session| session.state.facts.clone()).unwrap_or_default();
                match self.open(options, credentials, proxies, facts) {
                    Ok(session) => known.insert(name.clone(), session),
                    Err(error) => {
                        warn!(driver, cloud = name, %error, "the cloud cannot be looked at");
                        continue;
                    }
                };
            }
            let Some(session) = known.get_mut(name) else {
                continue;
            };
            let is_looking = session.look.as_ref().is_some_and(|look| !look.is_finished());
            let due = session.due_in(settings.quota_interval);
            if due.is_zero() && !is_looking {
                let look = self.clone().look(driver.to_owned(), name.clone(), session);
                session.look = Some(tokio::spawn(look).abort_handle());
            }
            next = next.min(if due.is_zero() {
                // A look that is under way wakes a reconcile when it has seen something new.
                LOOK_LIMIT
            } else {
                due.max(Duration::from_secs(1))
            });
        }
        next
    }

    fn open(
        &self,
        options: &CloudOptions,
        credentials: &DriverCredentials,
        proxies: &Proxies,
        facts: CloudFacts,
    ) -> Result<Session, String> {
        let mut config = credentials.config().ok_or("its configuration cannot be read")?;
        // The driver has them in its environment, and not in its Secret.
        config.proxies = proxies.clone();
        let options = CloudOptions {
            observer: Arc::clone(&self.metrics) as Arc<dyn Observer>,
            ..options.clone()
        };
        Ok(Session {
            hash: credentials.hash().to_owned(),
            proxies: proxies.clone(),
            cloud: Cloud::new(config, options).map_err(|error| error.to_string())?,
            state: CloudState {
                facts,
                ..CloudState::default()
            },
            looked_at: None,
            look: None,
        })
    }

    fn look(self, driver: String, name: String, session: &Session) -> impl Future<Output = ()> + Send + 'static {
        let (cloud, before) = (session.cloud.clone(), session.state.clone());
        async move {
            let seen = tokio::time::timeout(LOOK_LIMIT, look(&cloud, &before)).await;
            let seen = seen.unwrap_or_else(|_| CloudState {
                is_known: true,
                troubles: vec![Trouble {
                    service: "identity",
                    kind: TroubleKind::Backend,
                    message: format!("it did not answer within {} s", LOOK_LIMIT.as_secs()),
                }],
                ..before.clone()
            });
            if self.remember(&driver, &name, &cloud, seen) {
                self.wake.driver(&driver);
            }
        }
    }

    /// Takes in what was seen; says whether that is worth a reconcile.
    fn remember(&self, driver: &str, name: &str, cloud: &Cloud, mut seen: CloudState) -> bool {
        let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        let session = drivers
            .get_mut(driver)
            .and_then(|clouds| clouds.get_mut(name))
            .filter(|session| session.cloud.is(cloud));
        let Some(session) = session else { return false };
        session.looked_at = Some(Instant::now());
        for trouble in &mut seen.troubles {
            // Of one kind of trouble the first sentence is kept: the next may differ in words only.
            let same = |old: &&Trouble| old.service == trouble.service && old.kind == trouble.kind;
            if let Some(old) = session.state.troubles.iter().find(same) {
                trouble.message.clone_from(&old.message);
            }
        }
        let before = std::mem::replace(&mut session.state, seen);
        let now = &session.state;
        (before.is_known, &before.facts, &before.troubles, &before.credential)
            != (now.is_known, &now.facts, &now.troubles, &now.credential)
    }

    /// What the clouds of a driver have told, by their names.
    pub fn states(&self, driver: &str) -> BTreeMap<String, CloudState> {
        let drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        let clouds = drivers.get(driver).into_iter().flatten();
        clouds
            .map(|(name, session)| (name.clone(), session.state.clone()))
            .collect()
    }

    /// The facts alone, of clouds that have told some.
    pub fn facts(&self, driver: &str) -> BTreeMap<String, CloudFacts> {
        let states = self.states(driver).into_iter();
        states
            .filter(|(_, state)| state.is_known)
            .map(|(name, state)| (name, state.facts))
            .collect()
    }

    /// Sessions with the clouds of a driver.
    pub fn sessions(&self, driver: &str) -> BTreeMap<String, Cloud> {
        let drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        let clouds = drivers.get(driver).into_iter().flatten();
        clouds
            .map(|(name, session)| (name.clone(), session.cloud.clone()))
            .collect()
    }

    /// Forgets a driver that is gone.
    pub fn forget(&self, driver: &str) {
        self.drivers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(driver);
    }

    /// Wakes a reconcile of the driver.
    pub(crate) fn wake(&self, driver: &str) {
        self.wake.driver(driver);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::wake_ups;

    fn mk() -> (Clouds, BTreeMap<String, DriverCredentials>) {
        // A second installation in this process changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let metrics = Arc::new(Metrics::new().expect("metrics"));
        let clouds = Clouds::new(CloudOptions::default(), metrics, wake_ups().0);
        let conf = "[Global]\nauth-url = http://127.0.0.1:9/v3\napplication-credential-id = a\n\
                    application-credential-secret = b\nregion = r\n";
        let credentials = DriverCredentials::new(conf.to_owned().into(), None);
        (clouds, BTreeMap::from([("c".to_owned(), credentials)]))
    }

    #[tokio::test]
    async fn a_look_that_is_under_way_is_no_reason_to_come_back_sooner() {
        let (clouds, in_use) = mk();
        let settings = HealthSettings {
            quota_interval: Duration::from_mins(5),
            ..HealthSettings::default()
        };
        let keep = || clouds.keep("d", &in_use, &settings, &Proxies::default());
        // Nothing else runs in between: the look is still under way when the second call comes.
        assert_eq!([keep(), keep()], [LOOK_LIMIT; 2]);
    }

    #[tokio::test]
    async fn another_way_to_a_cloud_is_taken_at_once() {
        let (clouds, in_use) = mk();
        let cloud = |https: Option<&str>| {
            let proxies = Proxies {
                https: https.map(str::to_owned),
                ..Proxies::default()
            };
            clouds.keep("d", &in_use, &HealthSettings::default(), &proxies);
            clouds.sessions("d")["c"].clone()
        };
        let (direct, again, by_proxy) = (cloud(None), cloud(None), cloud(Some("http://proxy.example.org:3128")));
        assert!(direct.is(&again) && !direct.is(&by_proxy));
    }
}
