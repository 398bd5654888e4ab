// SPDX-License-Identifier: Apache-2.0
//! The requests with which a check of credentials uses a cloud.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use cinder_cloud::{Cloud, CloudConfig, CloudError, CloudErrorKind, CloudOptions, CloudService, Volume, VolumeId};
use cinder_operator_core::{clouds::CloudState, manifests::Place};
use futures::future::{BoxFuture, join_all};

/// Maximum duration of one login in total.
pub(super) const LOGIN_LIMIT: Duration = Duration::from_secs(30);

/// Requests to a cloud after the login.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoginQueries {
    /// Whether to list objects of Cinder and Nova, to check the rights of the user.
    pub services: bool,
    /// Volumes to request. The result reports whether one of them exists.
    pub volumes: Vec<VolumeId>,
    /// The region to use if the configuration names none and the catalogue contains several.
    pub default_region: Option<String>,
}

/// Result of a successful check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginFacts {
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
    fn check_login(&self, config: CloudConfig, queries: LoginQueries) -> BoxFuture<'_, Result<LoginFacts, TrialError>>;

    /// Returns the volumes that exist in the cloud, out of `volumes`.
    fn list_existing(
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
    fn check_login(&self, config: CloudConfig, queries: LoginQueries) -> BoxFuture<'_, Result<LoginFacts, TrialError>> {
        let options = self.options.clone();
        Box::pin(async move {
            let mut cloud = Cloud::new(config.clone(), options.clone()).map_err(TrialError::Login)?;
            let mut login = cloud.login().await;
            if let (Err(error), Some(region)) = (&login, queries.default_region)
                && error.kind() == CloudErrorKind::RegionAmbiguous
            {
                let region = Some(region);
                cloud = Cloud::new(CloudConfig { region, ..config }, options).map_err(TrialError::Login)?;
                login = cloud.login().await;
            }
            let login = login.map_err(TrialError::Login)?;
            let services = [CloudService::BlockStorage, CloudService::Compute];
            for service in services.into_iter().filter(|_| queries.services) {
                let listed = cloud.try_list(service).await;
                listed.map_err(|error| TrialError::Service(service, error))?;
            }
            let mut state = CloudState {
                token_ends: Some(login.expires_at),
                ..CloudState::default()
            };
            if queries.services {
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
            let responses = join_all(queries.volumes.iter().map(|volume| cloud.volume(volume))).await;
            let mut is_known = false;
            for response in responses {
                let volume = response.map_err(|error| TrialError::Service(CloudService::BlockStorage, error))?;
                is_known |= volume.is_some();
            }
            Ok(LoginFacts {
                place: Place {
                    project: login.project_id,
                    region: login.region,
                },
                knows_volumes: (!queries.volumes.is_empty()).then_some(is_known),
                state,
            })
        })
    }

    fn list_existing(
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
