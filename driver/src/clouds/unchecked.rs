// SPDX-License-Identifier: Apache-2.0
//! Clouds with a project that has not been verified yet.

use std::sync::Arc;
use std::time::Duration;

use cinder_cloud::{Cloud, CloudConfig, CloudError, Login};
use tonic::Status;

use crate::status::{self, CloudAction};

/// A cloud with a project that has not been verified for the current call.
///
/// It exposes its configuration and can log in. All other requests need a [`Cloud`], which only
/// [`UncheckedCloud::check`] returns.
#[derive(Debug, Clone)]
pub struct UncheckedCloud {
    name: String,
    cloud: Cloud,
}

impl UncheckedCloud {
    pub(super) fn new(name: impl Into<String>, cloud: Cloud) -> Self {
        Self {
            name: name.into(),
            cloud,
        }
    }

    /// Returns the cloud if its credentials belong to the project of its volumes.
    ///
    /// `UNAVAILABLE` if they belong to another project, or if the project cannot be determined. A cloud without a
    /// configured project, and a session with credentials from secrets, pass without a request.
    pub async fn check(&self) -> Result<Cloud, Status> {
        match self.cloud.check_project().await {
            Ok(()) => Ok(self.cloud.clone()),
            Err(CloudError::OtherProject { own, found }) => Err(status::other_project(&self.name, &own, &found)),
            Err(error) => Err(Status::unavailable(
                status::from_cloud(CloudAction::Look, &error).message(),
            )),
        }
    }

    /// Returns the current configuration.
    pub fn config(&self) -> Arc<CloudConfig> {
        self.cloud.config()
    }

    /// See [`Cloud::unknown_for`].
    pub(super) fn unknown_for(&self, id: &str) -> Option<Duration> {
        self.cloud.unknown_for(id)
    }

    /// See [`Cloud::login`].
    pub async fn login(&self) -> Result<Login, CloudError> {
        self.cloud.login().await
    }

    /// See [`Cloud::reload`].
    pub async fn reload(&self, config: CloudConfig) -> Result<Login, CloudError> {
        self.cloud.reload(config).await
    }

    /// Whether both are handles of one session.
    pub fn is_same(&self, other: &Self) -> bool {
        self.cloud.is_same(&other.cloud)
    }
}
