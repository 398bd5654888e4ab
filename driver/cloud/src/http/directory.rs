// SPDX-License-Identifier: Apache-2.0
//! The endpoints of the services: from the configuration, else from the catalog.

use reqwest::Url;

use crate::config::{CloudConfig, Interface, ServiceAccess, Services};
use crate::http::catalog::{self, CatalogEntry, Region, SeveralRegions};
use crate::http::service::Service;

/// The rules that select an endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Directory {
    interface: Interface,
    services: Services,
    /// The region of the cloud, if it is known.
    region: Option<Region>,
}

impl Directory {
    pub(crate) fn new(config: &CloudConfig) -> Self {
        Self {
            interface: config.interface,
            services: config.services.clone(),
            region: None,
        }
    }

    /// The same rules for a region.
    pub(crate) fn in_region(&self, region: Option<&Region>) -> Self {
        Self {
            region: region.cloned(),
            ..self.clone()
        }
    }

    fn access(&self, service: Service) -> &ServiceAccess {
        match service {
            Service::BlockStorage => &self.services.block_storage,
            Service::Compute => &self.services.compute,
        }
    }

    pub(crate) fn interface(&self, service: Service) -> &'static str {
        self.access(service).interface.unwrap_or(self.interface).as_str()
    }

    /// The only region of the catalog that has endpoints of the services in use.
    pub(crate) fn only_region(
        &self,
        catalog: &[CatalogEntry],
        project: &str,
    ) -> Result<Option<Region>, (&'static str, SeveralRegions)> {
        let used = [Service::BlockStorage, Service::Compute].into_iter().filter(|service| {
            let access = self.access(*service);
            access.endpoint.is_none() && access.region.is_none()
        });
        let used: Vec<(&str, &str)> = used.map(|service| (service.name(), self.interface(service))).collect();
        let only = catalog::only_region(catalog, &used, project);
        only.map_err(|several| (self.interface.as_str(), several))
    }

    /// The URL of a service, by its name in the catalog.
    pub(crate) fn find(&self, name: &str, catalog: &[CatalogEntry], project: &str) -> Option<Url> {
        let service = [Service::BlockStorage, Service::Compute]
            .into_iter()
            .find(|service| service.name() == name)?;
        let access = self.access(service);
        if let Some(endpoint) = &access.endpoint {
            return catalog::parse_endpoint(endpoint, name, project);
        }
        let region = self.own_region(service).or_else(|| self.region.clone())?;
        catalog::find_endpoint(catalog, name, self.interface(service), &region, project)
    }

    /// The region that the configuration has for this service alone.
    pub(crate) fn own_region(&self, service: Service) -> Option<Region> {
        self.access(service).region.clone().map(Region::Configured)
    }

    /// Whether the service needs no region of the cloud.
    pub(crate) fn is_independent(&self, service: Service) -> bool {
        let access = self.access(service);
        access.endpoint.is_some() || access.region.is_some()
    }
}
