// SPDX-License-Identifier: Apache-2.0
//! The configuration of one cloud.

use std::collections::BTreeMap;
use std::time::Duration;

use secrecy::SecretString;

use super::services::Interface;
use super::services::Services;
use super::tls::Tls;

/// The configuration of one cloud. Its `Debug` shows no secret.
#[derive(Debug, Clone)]
pub struct CloudConfig {
    /// The URL of Keystone, with or without `/v3`.
    pub auth_url: String,
    pub auth: Auth,
    /// The region in the catalog; when `None`, the catalog must have only one.
    pub region: Option<String>,
    /// The interface of the endpoints in use.
    pub interface: Interface,
    /// Endpoints, regions and interfaces of Cinder and Nova that differ from the catalog's.
    pub services: Services,
    /// The trusted certificates and the client certificate.
    pub tls: Tls,
    /// Whether the catalog of a Keystone with https may list endpoints without TLS: `allow-http-endpoints`.
    pub allow_http_endpoints: bool,
    pub block_storage: BlockStorageOptions,
    pub topology: TopologyOptions,
    pub metadata: MetadataOptions,
    /// The proxies for the cloud, in addition to those of the environment. No file has them: callers of this crate
    /// set them.
    pub proxies: Proxies,
    /// Unknown sections and keys, which have no effect. For the log.
    pub warnings: Vec<String>,
}

/// Proxies for a cloud. Without any, the proxies in the environment of the process are used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    /// URL of the proxy for http endpoints.
    pub http: Option<String>,
    /// URL of the proxy for https endpoints.
    pub https: Option<String>,
    /// Hosts, domains and networks without a proxy, separated by commas.
    pub direct: String,
}

#[derive(Debug, Clone)]
pub enum Auth {
    /// A user with a password.
    Password {
        user: User,
        password: SecretString,
        project: Project,
    },
    /// A user with a password to whom a trust was delegated: it works in the trustor's project, with the trustor's
    /// roles.
    Trust {
        user: User,
        password: SecretString,
        trust: String,
    },
    /// A token from another program. The driver cannot renew it, so it works until it expires.
    Token { token: SecretString, project: Project },
    /// An application credential, which belongs to one project.
    ApplicationCredential {
        credential: ApplicationCredential,
        secret: SecretString,
    },
}

/// The identification of an application credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplicationCredential {
    Id(String),
    /// A name, which is unique for one user only.
    Name {
        name: String,
        /// The user to whom the credential belongs.
        user: User,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum User {
    /// An id, unique in Keystone.
    Id(String),
    /// A name, unique in one domain.
    Name { name: String, domain: Domain },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Project {
    /// An id, unique in Keystone.
    Id(String),
    /// A name, unique in one domain.
    Name { name: String, domain: Domain },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Domain {
    Id(String),
    Name(String),
}

/// Section `[Topology]`, an extension of this driver: where a cloud's volumes can be used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopologyOptions {
    /// The topology segments of this cloud's nodes (`--additional-topology`), by which the driver selects a cloud
    /// where it serves several. Key `segment`, `KEY=VALUE`, repeatable.
    pub segments: BTreeMap<String, String>,
    /// Nova's zones whose servers use Cinder's zones under other names: key `zone-map`, `NOVA=CINDER`, repeatable. A
    /// zone that is not listed has the same name in both services.
    pub zone_map: BTreeMap<String, String>,
}

/// Section `[BlockStorage]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlockStorageOptions {
    /// The maximum number of volumes on a node; the driver's own rule when `None`.
    pub node_volume_attach_limit: Option<u32>,
    /// Whether the node rescans a device after an expansion.
    pub rescan_on_resize: bool,
    /// Whether to ignore the availability zone of volumes, because zones of compute and storage have different names.
    pub ignore_volume_az: bool,
    /// Whether to use Cinder without microversions.
    pub ignore_volume_microversion: bool,
}

/// Section `[Metadata]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataOptions {
    /// The sources of the instance's identity, in this order: `configDrive`, `metadataService`, `cloudInit`, `dmi`.
    /// The driver always reads the last two after the others.
    pub search_order: Vec<String>,
    /// The time limit of one request to the metadata service; the caller's own limit when `None`.
    pub request_timeout: Option<Duration>,
}

impl Default for MetadataOptions {
    fn default() -> Self {
        Self {
            search_order: vec!["configDrive".to_owned(), "metadataService".to_owned()],
            request_timeout: None,
        }
    }
}
