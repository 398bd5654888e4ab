// SPDX-License-Identifier: Apache-2.0
//! Checks credentials before the driver uses them, and decides which ones it may use.

use std::{collections::HashMap, sync::Arc, time::Duration};

use cinder_operator_core::{
    clouds::CloudState,
    manifests::{DriverCredentials, Place},
    problem::Problem,
    reasons::{Reason as _, Refusal, Refused},
    text::join_truncated,
};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::{
    attempt::{Attempt, CredentialDecision, refused},
    credential_source::{Candidate, CredentialSource},
    keystone::{Keystone, LOGIN_LIMIT, LoginFacts, LoginQueries},
    project_change::{Admission, InstalledCloud, ProjectChangeCheck, Usage},
    trial::{FIRST_PAUSE, RefusedContents, Trial, merge_state},
    volume_lookup::VolumeLookup,
};

/// Checks credentials and caches the results.
#[derive(Debug)]
pub struct LoginCheck {
    keystone: Arc<dyn Keystone>,
    trials: Mutex<HashMap<(String, String), Trial>>,
    lookup: VolumeLookup,
}

impl LoginCheck {
    pub fn new(keystone: Box<dyn Keystone>) -> Self {
        let keystone: Arc<dyn Keystone> = keystone.into();
        Self {
            lookup: VolumeLookup::new(Arc::clone(&keystone)),
            keystone,
            trials: Mutex::default(),
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
        self.lookup.forget(driver);
    }

    /// Returns the reason to retain a cloud that was removed from the spec. `accepted` contains the credentials of the
    /// cloud in the driver's Secret.
    pub async fn refuse_removal(
        &self,
        driver: &str,
        cloud: &str,
        accepted: &DriverCredentials,
        usage: &Usage,
        project_change: &ProjectChangeCheck<'_>,
    ) -> Option<Problem> {
        let existing = self
            .lookup
            .existing_volumes(driver, cloud, accepted, &usage.volumes)
            .await;
        project_change.refuse_removal(cloud, usage, existing.as_deref().map_err(String::as_str))
    }

    /// Decides whether the project and region of the credentials are acceptable. Returns the project and region to
    /// record; `None` for credentials that the driver already uses while their project and region remain unknown.
    async fn admit(&self, attempt: &Attempt<'_>, login: &LoginFacts) -> Result<Option<Place>, Refused> {
        let Attempt {
            project_change,
            installed,
            ..
        } = attempt;
        if !attempt.is_changed {
            if let Some(known) = installed.place.known() {
                // The driver's present credentials refer to the recorded project, even if the catalogue has changed.
                return Ok(Some(known.clone()));
            }
            if !attempt.is_fresh {
                return Ok(None);
            }
        }
        let refusal = match project_change.admit(&installed.place, &login.place).await {
            Admission::Admitted => return Ok(Some(login.place.clone())),
            Admission::Refused(reason) => reason,
            Admission::IfFound(usage, cause) => {
                match self.lookup.find_volumes(attempt, &login.place, &usage.volumes).await {
                    Ok(true) => return Ok(Some(login.place.clone())),
                    Ok(false) => {
                        let volumes: Vec<String> = usage.volumes.iter().cloned().collect();
                        format!(
                            "they belong to {}, where none of these volumes of the driver exists: {} ({cause})",
                            login.place,
                            join_truncated(&volumes)
                        )
                    }
                    Err(error) => format!(
                        "they belong to {}, and the operator cannot determine whether the volumes of the driver exist there: {error} ({cause})",
                        login.place
                    ),
                }
            }
            Admission::IfReturned(usage, reason) => {
                match self.lookup.has_returned(attempt, &login.place, &usage.volumes).await {
                    Ok(true) => return Ok(Some(login.place.clone())),
                    Ok(false) => reason,
                    Err(error) => format!("{reason}; the operator cannot determine where its volumes exist: {error}"),
                }
            }
        };
        if attempt.is_changed {
            Err(project_change.refused(attempt.source, &refusal))
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
    /// and `project_change` decides about a different project. Valid credentials are checked again every `interval`.
    pub(crate) async fn check(
        &self,
        driver: &str,
        source: &CredentialSource,
        candidate: Result<Candidate, Refused>,
        installed: InstalledCloud,
        project_change: &ProjectChangeCheck<'_>,
        interval: Duration,
    ) -> CredentialDecision {
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
            project_change,
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
        let next_check = trial.remaining_validity(interval, Instant::now()).unwrap_or(interval);
        let admitted = match &trial.result {
            Ok(login) => self.admit(&attempt, login).await,
            Err(refusal) => Err(refusal.clone()),
        };
        match admitted {
            Ok(place) => attempt.accepted(place, next_check, trial.state),
            Err(refusal) => {
                let is_changed = attempt.is_changed;
                let refusal = attempt.explain(refusal);
                refused(refusal, installed.credentials, is_changed, next_check, trial.state)
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
        let queries = LoginQueries {
            services: true,
            volumes: Vec::new(),
            default_region: known
                .and_then(|place| place.region.clone())
                .filter(|_| candidate.config.region.is_none()),
        };
        let trial = self.keystone.check_login(candidate.config.clone(), queries);
        let result = match tokio::time::timeout(LOGIN_LIMIT, trial).await {
            Ok(Ok(login)) => Ok(login),
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
                Ok(login) => merge_state(state, &login.state),
                Err(_) => state,
            },
            result,
            is_outdated: false,
            refused_contents: RefusedContents::default(),
        }
    }
}
