// SPDX-License-Identifier: Apache-2.0
//! What a cloud tells about itself. Each of these asks anew and only reads.

use std::collections::BTreeMap;

use reqwest::Method;
use serde::de::IgnoredAny;

use super::Cloud;
use crate::api::block_storage::{BlockStorage, Quota};
use crate::api::compute::Compute;
use crate::config::{ApplicationCredential, Auth};
use crate::error::CloudError;
use crate::http::auth::CredentialFacts;
use crate::http::service::Service;
use crate::http::transport::Request;

/// A service of the cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CloudService {
    /// Cinder.
    BlockStorage,
    /// Nova.
    Compute,
}

impl CloudService {
    /// Its name in the catalogue.
    pub fn as_str(self) -> &'static str {
        self.service().name()
    }

    fn service(self) -> Service {
        match self {
            Self::BlockStorage => Service::BlockStorage,
            Self::Compute => Service::Compute,
        }
    }
}

impl Cloud {
    /// The highest microversion of a service, `3.71`; `None` for one without microversions, or where the configuration wants none
    /// used.
    pub async fn microversion(&self, service: CloudService) -> Result<Option<String>, CloudError> {
        let version = self.inner.transport.ask_version(service.service()).await?;
        Ok(version.map(|version| version.to_string()))
    }

    /// Lists one volume or one server: whether the catalogue has the service, it answers, and the role may ask it.
    pub async fn try_list(&self, service: CloudService) -> Result<(), CloudError> {
        let (operation, list) = match service {
            CloudService::BlockStorage => ("volume_list", "volumes"),
            CloudService::Compute => ("server_list", "servers"),
        };
        // As the other lists do, for which an application credential has its access rule.
        let path = [list, "detail"];
        let mut request = Request::new(service.service(), operation, Method::GET, &path, list.to_owned());
        request.query.push(("limit", "1".to_owned()));
        let answer = self.inner.transport.send(request).await?;
        answer.json::<IgnoredAny>().map(drop)
    }

    /// The availability zones of Cinder that take volumes.
    pub async fn volume_zones(&self) -> Result<Vec<String>, CloudError> {
        BlockStorage::new(&self.inner.transport).zones().await
    }

    /// The availability zones of Nova that take servers.
    pub async fn compute_zones(&self) -> Result<Vec<String>, CloudError> {
        Compute::new(&self.inner.transport).zones().await
    }

    /// The quotas of the project by name: `volumes`, `gigabytes`, `snapshots`, …, and the same with `_` and a type's name. Where the
    /// cloud keeps the quotas to itself, the project's limits, which tell less.
    pub async fn quotas(&self) -> Result<BTreeMap<String, Quota>, CloudError> {
        let cinder = BlockStorage::new(&self.inner.transport);
        let project = self.inner.transport.keystone().token().await?.project_id.clone();
        match cinder.quotas(&project).await {
            Err(CloudError::Forbidden(_) | CloudError::NotFound { .. }) => cinder.limits().await,
            answer => answer,
        }
    }

    /// The application credential that this session logs in with; `None` for other ways to log in, and where Keystone does not
    /// let its owner see it.
    pub async fn application_credential(&self) -> Result<Option<CredentialFacts>, CloudError> {
        let config = self.config();
        let Auth::ApplicationCredential { credential, .. } = &config.auth else {
            return Ok(None);
        };
        let keystone = self.inner.transport.keystone();
        let token = keystone.token().await?;
        let found = match credential {
            ApplicationCredential::Id(id) => keystone.application_credential(&token, id).await,
            ApplicationCredential::Name { name, .. } => keystone.application_credential_named(&token, name).await,
        };
        match found {
            Err(CloudError::Forbidden(_) | CloudError::NotFound { .. }) => Ok(None),
            found => found.map_err(|error| self.inner.transport.for_caller(error)),
        }
    }
}
