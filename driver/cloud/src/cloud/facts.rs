// SPDX-License-Identifier: Apache-2.0
//! Facts about a cloud: versions, zones, quotas, credentials. Each call sends a new request and changes nothing.

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
use crate::operations::capacity::quotas_or_limits;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CloudService {
    BlockStorage,
    Compute,
}

impl CloudService {
    /// The name of the service in the catalogue.
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
    /// The highest microversion of a service, for instance `3.71`. `None` if the service has no microversions, or if
    /// the configuration disables them.
    pub async fn microversion(&self, service: CloudService) -> Result<Option<String>, CloudError> {
        let version = self.inner.transport.ask_version(service.service()).await?;
        Ok(version.map(|version| version.to_string()))
    }

    /// Lists one volume or one server. This checks that the catalogue has the service, that it answers, and that the
    /// role may use it.
    pub async fn try_list(&self, service: CloudService) -> Result<(), CloudError> {
        let (operation, list) = match service {
            CloudService::BlockStorage => ("volume_list", "volumes"),
            CloudService::Compute => ("server_list", "servers"),
        };
        // Like all other lists of the driver. The access rules of an application credential name this path.
        let path = [list, "detail"];
        let mut request = Request::new(service.service(), operation, Method::GET, &path, list.to_owned());
        request.query.push(("limit", "1".to_owned()));
        let answer = self.inner.transport.send(request).await?;
        answer.json::<IgnoredAny>().map(drop)
    }

    /// The availability zones of Cinder that accept volumes.
    pub async fn volume_zones(&self) -> Result<Vec<String>, CloudError> {
        BlockStorage::new(&self.inner.transport).zones().await
    }

    /// The availability zones of Nova that accept servers.
    pub async fn compute_zones(&self) -> Result<Vec<String>, CloudError> {
        Compute::new(&self.inner.transport).zones().await
    }

    /// The quotas of the project by name: `volumes`, `gigabytes`, `snapshots`, …, and the same with `_` and the name of
    /// a type. If the project may not read its quotas (403 or 404), the result contains the project's limits, which
    /// have fewer entries.
    pub async fn quotas(&self) -> Result<BTreeMap<String, Quota>, CloudError> {
        quotas_or_limits(&self.inner).await
    }

    /// The application credential of this session. `None` for other login methods, and if Keystone does not show it to
    /// its owner (403 or 404).
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
            Err(error) if error.is_not_offered() => Ok(None),
            found => found.map_err(|error| self.inner.transport.for_caller(error)),
        }
    }
}
