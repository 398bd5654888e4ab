// SPDX-License-Identifier: Apache-2.0
//! Lookups of the driver's volumes in a cloud, for decisions about its project and region.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use cinder_cloud::{CloudConfig, VolumeId};
use cinder_operator_core::manifests::{DriverCredentials, Place};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::warn;

use super::{
    attempt::Attempt,
    keystone::{Keystone, LOGIN_LIMIT, LoginQueries, TrialError},
    refusals::cause,
};

/// Validity of the result of a lookup. A lookup may take long.
pub(super) const LOOKUP_LIFETIME: Duration = Duration::from_mins(1);

/// Number of volumes that are requested one by one before all are listed. One existing volume is sufficient.
const INDIVIDUAL_REQUESTS: usize = 5;

/// Searches clouds for volumes, and caches the results.
#[derive(Debug)]
pub(super) struct VolumeLookup {
    keystone: Arc<dyn Keystone>,
    results: Mutex<HashMap<(String, String), LookupResult>>,
}

/// The last lookup of a driver's volumes in a cloud: the existing volumes, or the failure.
#[derive(Debug, Clone)]
struct LookupResult {
    hash: String,
    at: Instant,
    result: Result<Vec<VolumeId>, String>,
}

impl VolumeLookup {
    pub(super) fn new(keystone: Arc<dyn Keystone>) -> Self {
        Self {
            keystone,
            results: Mutex::default(),
        }
    }

    /// Removes the results of a deleted driver.
    pub(super) fn forget(&self, driver: &str) {
        self.results.lock().retain(|(name, _), _| name != driver);
    }

    /// Returns the volumes of the driver that exist in a cloud that was removed from the spec. `accepted` contains the
    /// credentials of the cloud in the driver's Secret.
    pub(super) async fn existing_volumes(
        &self,
        driver: &str,
        cloud: &str,
        accepted: &DriverCredentials,
        volumes: &Arc<BTreeSet<String>>,
    ) -> Result<Vec<VolumeId>, String> {
        let key = (driver.to_owned(), cloud.to_owned());
        if let Some(existing) = self.recent_result(&key, accepted.hash()) {
            return existing;
        }
        let existing = match accepted.config() {
            Some(config) => self.list_existing(config, volumes).await,
            None => Err("the credentials that the driver has for it cannot be read".to_owned()),
        };
        if let Err(error) = &existing {
            warn!(
                driver,
                cloud, error, "a cloud that is no longer in the spec cannot be asked for volumes"
            );
        }
        self.cache_result(key, accepted.hash(), existing.clone());
        existing
    }

    /// Returns the result of the last lookup with the same credentials, for [`LOOKUP_LIFETIME`].
    fn recent_result(&self, key: &(String, String), hash: &str) -> Option<Result<Vec<VolumeId>, String>> {
        let results = self.results.lock();
        let lookup = results.get(key)?;
        (lookup.hash == hash && lookup.at.elapsed() < LOOKUP_LIFETIME).then(|| lookup.result.clone())
    }

    fn cache_result(&self, key: (String, String), hash: &str, result: Result<Vec<VolumeId>, String>) {
        let lookup = LookupResult {
            hash: hash.to_owned(),
            at: Instant::now(),
            result,
        };
        self.results.lock().insert(key, lookup);
    }

    /// Lists the volumes of a cloud, and returns the ones that the driver uses.
    async fn list_existing(
        &self,
        config: CloudConfig,
        volumes: &Arc<BTreeSet<String>>,
    ) -> Result<Vec<VolumeId>, String> {
        let list = self.keystone.list_existing(config, Arc::clone(volumes));
        let existing = tokio::time::timeout(LOGIN_LIMIT, list).await;
        existing.map_or_else(
            |_| Err("it did not answer in time".to_owned()),
            |existing| existing.map_err(|error| cause(&error)),
        )
    }

    /// Whether one of these volumes exists in the cloud of a configuration. Requests a few volumes one by one, and
    /// lists all volumes only if none of these exists.
    async fn knows_volumes(&self, config: &CloudConfig, volumes: &Arc<BTreeSet<String>>) -> Result<bool, String> {
        let queries = LoginQueries {
            services: false,
            volumes: volumes.iter().take(INDIVIDUAL_REQUESTS).map(VolumeId::new).collect(),
            default_region: None,
        };
        let login = self.keystone.check_login(config.clone(), queries);
        match tokio::time::timeout(LOGIN_LIMIT, login).await {
            Err(_) => Err("it did not answer in time".to_owned()),
            Ok(Err(TrialError::Login(error) | TrialError::Service(_, error))) => Err(cause(&error)),
            Ok(Ok(login)) if login.knows_volumes == Some(true) => Ok(true),
            Ok(Ok(_)) if volumes.len() <= INDIVIDUAL_REQUESTS => Ok(false),
            Ok(Ok(_)) => Ok(!self.list_existing(config.clone(), volumes).await?.is_empty()),
        }
    }

    /// Whether one of these volumes exists in the cloud of the attempt. A failure or a negative result is cached for
    /// [`LOOKUP_LIFETIME`].
    pub(super) async fn find_volumes(
        &self,
        attempt: &Attempt<'_>,
        place: &Place,
        volumes: &Arc<BTreeSet<String>>,
    ) -> Result<bool, String> {
        let key = (attempt.driver.to_owned(), attempt.source.cloud.clone());
        let hash = attempt.candidate.credentials.hash();
        if let Some(result) = self.recent_result(&key, hash) {
            return result.map(|result| !result.is_empty());
        }
        // The lookup uses the region of the login, even if the configuration names none.
        let mut config = attempt.candidate.config.clone();
        config.region = config.region.or_else(|| place.region.clone());
        let result = self.knows_volumes(&config, volumes).await;
        if result == Ok(true) {
            self.results.lock().remove(&key);
        } else {
            self.cache_result(key, hash, result.clone().map(|_| Vec::new()));
        }
        result
    }

    /// Whether the credentials return to the volumes of the driver, after a move to a project without them. A volume
    /// must exist in the new project, and none in the recorded one.
    ///
    /// Without credentials for the recorded project, all volumes must exist in the new project, and the driver must
    /// have only one cloud. A rejection is cached for [`LOOKUP_LIFETIME`].
    pub(super) async fn has_returned(
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
            None if attempt.project_change.places.len() == 1 => {
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
            self.cache_result(key, hash, returned.clone().map(|_| Vec::new()));
        }
        returned
    }
}
