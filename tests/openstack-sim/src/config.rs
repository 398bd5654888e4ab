// SPDX-License-Identifier: Apache-2.0
//! Configuration of a simulator.

mod cinder;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use csi_sources::Sources;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::latencies::Latencies;
use crate::microversion::{COMPUTE, VOLUME};
use crate::state::GroupType;
pub use cinder::{Pool, Quota, TypeQuota, VolumeType};

/// Configuration of a simulator. The default is a small cloud on a free port of the loopback address: one project, one
/// zone, two volume types, no servers, and no latencies.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches that a cloud's operator sets, each for itself"
)]
pub struct SimConfig {
    /// Address to listen on; port 0 selects a free one.
    pub listen: SocketAddr,
    /// Certificate and key for TLS; plain HTTP without them.
    pub tls: Option<TlsIdentity>,
    /// PEM of the CA of client certificates. If set, clients without such a certificate are disconnected.
    pub client_ca_pem: Option<String>,
    /// Address of the cloud in the catalog and in links; defaults to the listening address.
    pub public_url: Option<String>,
    /// Users, credentials and project.
    pub identity: Identity,
    /// Servers at the start.
    pub servers: Vec<ServerSpec>,
    /// Number of volumes of 1 GiB at the start, of the default type, with a CSI driver's metadata, regardless of the
    /// quota.
    pub volumes: usize,
    /// Names of Cinder's availability zones; the first is the default.
    pub zones: Vec<String>,
    /// Names of Nova's availability zones; defaults to those of the servers.
    pub compute_zones: Vec<String>,
    /// Additional regions in the catalog besides `identity.region`, whose services do not work.
    pub other_regions: Vec<String>,
    /// Volume types; the first is the default.
    pub volume_types: Vec<VolumeType>,
    /// Quota of the project.
    pub quota: Quota,
    /// Capacities of the backends; other backends are practically unlimited.
    pub pools: Vec<Pool>,
    /// Whether members may list the pools; by default, only administrators may.
    pub pools_for_members: bool,
    pub group_types: Vec<GroupType>,
    /// Whether volumes and snapshots with clones cannot be deleted, as with Ceph: the deletion is accepted, and they
    /// become `available` again. By default, clones are independent copies.
    pub clones_hold_sources: bool,
    /// Whether the cloud has a backup service.
    pub backups: bool,
    /// Durations of asynchronous work.
    pub latencies: Latencies,
    /// Maximum random factor for the latency of each piece of work (minimum 0); 0 disables randomness.
    pub spread: u16,
    /// Maximum replication lag of an API node's database, see [`crate::SimClient::behind`].
    pub longest_lag: Duration,
    /// Cinder's `osapi_max_limit`: the maximum page size of a list.
    pub page_limit: usize,
    /// Maximum number of volumes per server.
    pub volumes_per_server: usize,
    /// Lifetime of a token.
    pub token_lifetime: Duration,
    /// Whether Cinder's inexact filters (`name~=part`, 3.34) are enabled; disabled by default, as in Cinder's own
    /// `resource_filters.json`.
    pub like_filters: bool,
    /// Highest microversion of Cinder's API, `(3, 71)` by default; lower for an older cloud.
    pub block_storage_version: (u32, u32),
    /// Highest microversion of Nova's API, `(2, 90)` by default.
    pub compute_version: (u32, u32),
    /// Whether a copy may be in another zone than its source (`cloned_volume_same_az = False`).
    pub copies_across_zones: bool,
    /// Service type of Cinder in the catalog: `block-storage`, or an older alias such as `volumev3`.
    pub block_storage_type: String,
    /// Folder in which volumes are sparse files and attachments become loop devices; without it, volumes have no data.
    pub backing: Option<PathBuf>,
    /// Sources of wall time, random numbers and ids.
    pub sources: Sources,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: None,
            client_ca_pem: None,
            public_url: None,
            identity: Identity::default(),
            servers: Vec::new(),
            volumes: 0,
            zones: vec!["nova".to_owned()],
            compute_zones: Vec::new(),
            other_regions: Vec::new(),
            volume_types: vec![VolumeType::new("fast"), VolumeType::new("slow")],
            quota: Quota::default(),
            pools: Vec::new(),
            pools_for_members: false,
            group_types: vec![GroupType::consistent("consistent"), GroupType::new("loose")],
            clones_hold_sources: false,
            backups: true,
            latencies: Latencies::default(),
            spread: 0,
            longest_lag: Duration::ZERO,
            page_limit: 1000,
            volumes_per_server: 256,
            token_lifetime: Duration::from_hours(1),
            like_filters: false,
            block_storage_version: (VOLUME.highest.0, VOLUME.highest.1),
            compute_version: (COMPUTE.highest.0, COMPUTE.highest.1),
            copies_across_zones: false,
            block_storage_type: "block-storage".to_owned(),
            backing: None,
            sources: Sources::system(),
        }
    }
}

/// A certificate chain and a private key in PEM.
#[derive(Clone)]
pub struct TlsIdentity {
    /// The chain, starting with the certificate of the server.
    pub certificate_pem: String,
    /// The private key.
    pub key_pem: String,
}

impl std::fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsIdentity").finish_non_exhaustive()
    }
}

/// Identities of the cloud: a user, the user's application credential, their project, and an administrator of that
/// project for operations that the user may not do.
///
/// The secrets are test data without any protection, so they are plain strings.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Identity {
    pub user_id: String,
    pub username: String,
    pub password: String,
    pub project_id: String,
    pub project_name: String,
    pub domain_id: String,
    pub domain_name: String,
    pub region: String,
    pub application_credential_id: String,
    pub application_credential_name: String,
    pub application_credential_secret: String,
    /// Time from which the application credential is refused.
    pub application_credential_expires_at: Option<Timestamp>,
    /// A trust from the user to the administrator's account, which then acts as the user.
    pub trust_id: String,
    pub admin_id: String,
    pub admin_name: String,
    pub admin_password: String,
}

impl Default for Identity {
    fn default() -> Self {
        Self {
            user_id: "8f3d1c5a0b7e4d2f9c6a1e5b3d7f0a42".to_owned(),
            username: "csi".to_owned(),
            password: "secret-of-csi".to_owned(),
            project_id: "5b1f0d6c2a9e4c7f8d3b6e1a4c7f0d92".to_owned(),
            project_name: "cluster".to_owned(),
            domain_id: "default".to_owned(),
            domain_name: "Default".to_owned(),
            region: "RegionOne".to_owned(),
            application_credential_id: "c1d2e3f4a5b60718293a4b5c6d7e8f90".to_owned(),
            application_credential_name: "csi-credential".to_owned(),
            application_credential_secret: "secret-of-the-csi-credential".to_owned(),
            application_credential_expires_at: None,
            trust_id: "7e57000000004000800000000000007e".to_owned(),
            admin_id: "1c7e5a3f9b2d4860a1c3e5f7092b4d68".to_owned(),
            admin_name: "admin".to_owned(),
            admin_password: "secret-of-admin".to_owned(),
        }
    }
}

/// A Nova server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerSpec {
    /// UUID of the server.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Availability zone.
    pub zone: String,
    /// Folder that acts as `/dev/disk/by-id` of this server; links to loop devices are created there.
    pub by_id: Option<PathBuf>,
}

impl ServerSpec {
    /// Creates a server in zone `nova` whose name is its id, without a folder for device links.
    pub fn new(id: impl Into<String>) -> Self {
        let id = id.into();
        Self {
            name: format!("server-{id}"),
            id,
            zone: "nova".to_owned(),
            by_id: None,
        }
    }
}

/// A command-line value is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{text}`: {reason}; write {form}")]
pub struct SpecError {
    pub(crate) text: String,
    pub(crate) reason: String,
    pub(crate) form: &'static str,
}

impl FromStr for ServerSpec {
    type Err = SpecError;

    /// `ID[,name=NAME][,zone=ZONE][,by-id=DIR]`
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let error = |reason: String| SpecError {
            text: text.to_owned(),
            reason,
            form: "ID[,name=NAME][,zone=ZONE][,by-id=DIR]",
        };
        let mut parts = text.split(',');
        let id = parts.next().unwrap_or_default();
        if uuid::Uuid::parse_str(id).is_err() {
            return Err(error(format!("`{id}` is not a UUID")));
        }
        let mut server = Self::new(id);
        for part in parts {
            match part.split_once('=') {
                Some(("name", name)) => name.clone_into(&mut server.name),
                Some(("zone", zone)) => zone.clone_into(&mut server.zone),
                Some(("by-id", folder)) => server.by_id = Some(PathBuf::from(folder)),
                _ => return Err(error(format!("`{part}` is not known"))),
            }
        }
        Ok(server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_server_id_and_settings() {
        let text = "7c0d4f5e-1b2a-4c3d-8e9f-0a1b2c3d4e5f,name=one,zone=far,by-id=/tmp/x";
        let server: ServerSpec = text.parse().expect("the text is a server");
        assert_eq!((server.name.as_str(), server.zone.as_str()), ("one", "far"));
        assert_eq!(server.by_id, Some(PathBuf::from("/tmp/x")));
        let wrong = "one,name=one".parse::<ServerSpec>().expect_err("the id is none");
        assert_eq!(
            wrong.to_string(),
            "`one,name=one`: `one` is not a UUID; write ID[,name=NAME][,zone=ZONE][,by-id=DIR]"
        );
    }

    #[test]
    fn debug_output_hides_keys() {
        let identity = TlsIdentity {
            certificate_pem: "certificate".to_owned(),
            key_pem: "private".to_owned(),
        };
        assert!(!format!("{identity:?}").contains("private"));
    }
}
