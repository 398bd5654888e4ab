// SPDX-License-Identifier: Apache-2.0
//! The configuration of one cloud.

use std::collections::BTreeMap;
use std::time::Duration;

use secrecy::SecretString;

use super::services::Interface;
use super::services::Services;
use super::tls::Tls;

/// Everything about one cloud. Its `Debug` shows no secret.
#[derive(Debug, Clone)]
pub struct CloudConfig {
    /// Keystone, with or without `/v3`.
    pub auth_url: String,
    pub auth: Auth,
    /// The region in the catalogue; any when `None`.
    pub region: Option<String>,
    /// Which of a service's endpoints to use.
    pub interface: Interface,
    /// Where Cinder and Nova are, if the catalogue does not decide it.
    pub services: Services,
    /// How the services prove who they are.
    pub tls: Tls,
    /// Whether a Keystone with https may send the driver to services without it: `allow-http-endpoints`.
    pub allow_http_endpoints: bool,
    /// Section `[BlockStorage]`.
    pub block_storage: BlockStorageOptions,
    /// Section `[Topology]`.
    pub topology: TopologyOptions,
    /// Section `[Metadata]`.
    pub metadata: MetadataOptions,
    /// The proxies on the way to the cloud, besides those of the environment. Not in any file: whoever embeds the client sets them.
    pub proxies: Proxies,
    /// What was read and has no effect: unknown sections and keys. For the log.
    pub warnings: Vec<String>,
}

/// Proxies on the way to a cloud. Without any, those that the environment of the process names are used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    /// URL of the proxy for http endpoints.
    pub http: Option<String>,
    /// URL of the proxy for https endpoints.
    pub https: Option<String>,
    /// What is reached without them: hosts, domains and networks, by commas.
    pub direct: String,
}

#[derive(Debug, Clone)]
pub enum Auth {
    /// A user with a password.
    Password {
        user: User,
        password: SecretString,
        /// The project to work in.
        project: Project,
    },
    /// A user with a password on whose behalf a trust was made: it works in the trustor's project, with the trustor's roles.
    Trust {
        user: User,
        password: SecretString,
        trust: String,
    },
    /// A token that somebody else fetched. It ends with its own life: nothing here can renew it.
    Token {
        token: SecretString,
        /// The project to work in.
        project: Project,
    },
    /// An application credential; it belongs to one project.
    ApplicationCredential {
        /// Which one.
        credential: ApplicationCredential,
        secret: SecretString,
    },
}

/// How an application credential is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplicationCredential {
    /// By its id.
    Id(String),
    /// By name, which is unique for one user only.
    Name {
        name: String,
        /// The user that it belongs to.
        user: User,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum User {
    /// By id, unique in Keystone.
    Id(String),
    /// By name, unique in one domain.
    Name { name: String, domain: Domain },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Project {
    /// By id, unique in Keystone.
    Id(String),
    /// By name, unique in one domain.
    Name { name: String, domain: Domain },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Domain {
    /// By id.
    Id(String),
    /// By name.
    Name(String),
}

/// Section `[Topology]`, our own: where a cloud's volumes can be used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopologyOptions {
    /// Segments that the nodes of this cloud bear (`--additional-topology`) and by which the cloud is chosen where several are
    /// served: key `segment`, `KEY=VALUE`, repeatable.
    pub segments: BTreeMap<String, String>,
    /// Nova's zones whose servers use Cinder's zones under other names: key `zone-map`, `NOVA=CINDER`, repeatable. Zones that are
    /// not named have the same name in both.
    pub zone_map: BTreeMap<String, String>,
}

/// Section `[BlockStorage]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlockStorageOptions {
    /// How many volumes a node may have; the driver's own rule when `None`.
    pub node_volume_attach_limit: Option<u32>,
    /// Whether the node rescans a device after it grew.
    pub rescan_on_resize: bool,
    /// Whether the zone that Cinder gives a volume is of no interest: zones of compute and storage have different names.
    pub ignore_volume_az: bool,
    /// Whether to do without microversions of Cinder.
    pub ignore_volume_microversion: bool,
}

/// Section `[Metadata]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataOptions {
    /// Where to look for the instance's identity, in this order: `configDrive`, `metadataService`,
    /// `cloudInit`, `dmi`. The last two are asked after the others anyway.
    pub search_order: Vec<String>,
    /// How long one request to the metadata service may take; the caller's own limit when `None`.
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
