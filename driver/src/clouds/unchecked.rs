// SPDX-License-Identifier: Apache-2.0
//! The gate in front of every request to OpenStack.

use std::sync::Arc;

use cinder_cloud::{Cloud, CloudConfig, CloudError, Login};
use tonic::Status;

use crate::status::{self, Act};

/// A cloud with a project that has not been checked for the current call. It shows its configuration and logs in; everything else takes a
/// [`Cloud`], and only [`UncheckedCloud::check`] returns one.
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

    /// The cloud, if its credentials lead to the project of its volumes. `UNAVAILABLE` where they lead to another one, or where that
    /// cannot be determined now. A cloud without such a project, and a session with credentials from secrets, pass without a request.
    pub async fn check(&self) -> Result<Cloud, Status> {
        match self.cloud.check_project().await {
            Ok(()) => Ok(self.cloud.clone()),
            Err(CloudError::OtherProject { own, found }) => Err(status::other_project(&self.name, &own, &found)),
            Err(error) => Err(Status::unavailable(status::cloud(Act::Look, &error).message())),
        }
    }

    /// The configuration in use.
    pub fn config(&self) -> Arc<CloudConfig> {
        self.cloud.config()
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
    pub fn is(&self, other: &Self) -> bool {
        self.cloud.is(&other.cloud)
    }
}
