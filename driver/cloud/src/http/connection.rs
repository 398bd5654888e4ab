// SPDX-License-Identifier: Apache-2.0
//! The state that a reload of the configuration replaces: credentials, TLS, endpoints and microversions.

use std::sync::{Arc, OnceLock};

use openstack::ErrorKind;
use openstack::session::Session;
use parking_lot::Mutex;
use reqwest::Url;
use tokio::sync::OnceCell;

use crate::config::CloudConfig;
use crate::error::CloudError;
use crate::http::auth::{Keystone, SessionAuth, Token};
use crate::http::catalog::{self, Region, SeveralRegions};
use crate::http::client::Http;
use crate::http::directory::Directory;
use crate::http::options::CloudOptions;
use crate::http::service::{MicroVersion, Service};

/// One configuration in use. A request that started with a connection ends with it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) http: Http,
    keystone: Arc<Keystone>,
    /// Finds endpoints in the catalog of one token, with the generation of that token.
    session: Mutex<Option<(u64, Session)>>,
    /// Empty until the first login where the configuration has no region. It does not change afterwards, although the
    /// catalog may.
    region: OnceLock<Region>,
    directory: Directory,
    /// Whether to reject endpoints without TLS.
    requires_https: bool,
    plain_block_storage: bool,
    block_storage_version: OnceCell<Option<MicroVersion>>,
    compute_version: OnceCell<Option<MicroVersion>>,
}

impl Connection {
    /// Prepares a connection without sending a request. Reads the certificate files.
    pub(crate) fn new(config: &CloudConfig, options: &CloudOptions) -> Result<Self, CloudError> {
        let http = Http::connect(config, options)?;
        let keystone = Keystone::new(config, http.clone(), options)?;
        Ok(Self {
            http,
            keystone: Arc::new(keystone),
            session: Mutex::default(),
            region: config
                .region
                .clone()
                .map(Region::Configured)
                .map_or_else(OnceLock::new, OnceLock::from),
            directory: Directory::new(config),
            requires_https: config.uses_https() && !config.allow_http_endpoints,
            plain_block_storage: config.block_storage.ignore_volume_microversion,
            block_storage_version: OnceCell::new(),
            compute_version: OnceCell::new(),
        })
    }

    pub(crate) fn keystone(&self) -> &Arc<Keystone> {
        &self.keystone
    }

    /// The region in use; `None` before the first login where the configuration has no region.
    pub(crate) fn known_region(&self) -> Option<&Region> {
        self.region.get()
    }

    /// Uses this region unless the configuration has one.
    pub(crate) fn default_region(&self, region: &Region) {
        self.region.get_or_init(|| region.clone());
    }

    /// The region in use: the configured one, else the only one of the catalog. `None` where the catalog has no
    /// endpoint.
    pub(crate) fn region(&self, token: &Token) -> Result<Option<&Region>, CloudError> {
        if let Some(region) = self.region.get() {
            return Ok(Some(region));
        }
        let only = self.directory.only_region(&token.catalog, &token.project_id);
        let only =
            only.map_err(|(interface, SeveralRegions(regions))| CloudError::RegionAmbiguous { interface, regions })?;
        Ok(only.map(|region| self.region.get_or_init(|| region)))
    }

    /// The cell for the highest microversion of a service; `None` for a service that the configuration uses without
    /// microversions.
    pub(crate) fn version_cell(&self, service: Service) -> Option<&OnceCell<Option<MicroVersion>>> {
        match service {
            Service::BlockStorage if self.plain_block_storage => None,
            Service::BlockStorage => Some(&self.block_storage_version),
            Service::Compute => Some(&self.compute_version),
        }
    }

    /// Starts a session for one token. A session stores the endpoints that it finds, and the catalog may differ
    /// between tokens.
    async fn start_session(&self, region: Option<&Region>) -> Result<Session, CloudError> {
        let auth = SessionAuth {
            keystone: Arc::clone(&self.keystone),
            directory: self.directory.in_region(region),
        };
        // The session sends no request: it does no discovery (`service.rs`), and its token comes from `Keystone`. Its
        // client never opens a connection, and trusts no root certificate.
        let idle = reqwest::Client::builder()
            .tls_built_in_root_certs(false)
            .no_proxy()
            .build();
        let idle = idle.map_err(|error| CloudError::Setup(error.to_string()))?;
        Session::new_with_client(idle, auth)
            .await
            .map_err(|error| CloudError::Setup(error.to_string()))
    }

    /// The URL of `path` at a service.
    pub(crate) async fn endpoint(&self, service: Service, path: &[&str], token: &Token) -> Result<Url, CloudError> {
        let region = self.region(token)?;
        let missing = || {
            let interface = self.directory.interface(service);
            let region = self.directory.own_region(service).or_else(|| region.cloned());
            let (problem, known) = catalog::explain_missing(&token.catalog, service.name(), interface, region.as_ref());
            CloudError::NoEndpoint {
                service: service.name(),
                region: region.as_ref().and_then(Region::name).map(str::to_owned),
                interface,
                known,
                problem,
            }
        };
        if region.is_none() && !self.directory.is_independent(service) {
            return Err(missing());
        }
        let current = self.session.lock().clone();
        let session = match current {
            Some((generation, session)) if generation == token.generation => session,
            _ => {
                let session = self.start_session(region).await?;
                *self.session.lock() = Some((token.generation, session.clone()));
                session
            }
        };
        let url = session
            .get_endpoint(service, path)
            .await
            .map_err(|error| match error.kind() {
                ErrorKind::EndpointNotFound => missing(),
                _ => CloudError::Setup(error.to_string()),
            })?;
        if self.requires_https && url.scheme() != "https" {
            let service = service.name();
            return Err(CloudError::InsecureEndpoint { service });
        }
        Ok(url)
    }
}
