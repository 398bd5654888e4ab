//! What a simulator is started with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::latencies::Latencies;

/// Everything that a simulator is started with. `SimConfig::default()` is a small cloud on a free port of the loopback
/// address: one project, one zone, two volume types, no servers, every operation done at once.
#[derive(Debug, Clone)]
pub struct SimConfig {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Certificate and key: with them the simulator speaks TLS, without them plain HTTP.
    pub tls: Option<TlsIdentity>,
    /// What the catalogue and links name as the cloud's address; the listening address when absent.
    pub public_url: Option<String>,
    /// Who may log in, and to what.
    pub identity: Identity,
    /// The servers that exist at the start.
    pub servers: Vec<ServerSpec>,
    /// Names of the availability zones; the first is the default one.
    pub zones: Vec<String>,
    /// The volume types; the first is the default one.
    pub volume_types: Vec<VolumeType>,
    /// What the project may use.
    pub quota: Quota,
    /// How long the asynchronous work takes.
    pub latencies: Latencies,
    /// Cinder's `osapi_max_limit`: the largest page of a list.
    pub page_limit: usize,
    /// How many volumes one server takes.
    pub volumes_per_server: usize,
    /// How long a token is good for.
    pub token_lifetime: Duration,
    /// Whether the cloud's operator has switched Cinder's inexact filters (`name~=part`, since 3.34) on; by default they
    /// are off, as in Cinder's own `resource_filters.json`.
    pub like_filters: bool,
    /// Under which type the catalogue lists Cinder: `block-storage`, or an older alias such as `volumev3`.
    pub block_storage_type: String,
    /// A folder in which volumes are sparse files and attachments become loop devices; without it volumes hold no data.
    pub backing: Option<PathBuf>,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: None,
            public_url: None,
            identity: Identity::default(),
            servers: Vec::new(),
            zones: vec!["nova".to_owned()],
            volume_types: vec![VolumeType::new("fast"), VolumeType::new("slow")],
            quota: Quota::default(),
            latencies: Latencies::default(),
            page_limit: 1000,
            volumes_per_server: 256,
            token_lifetime: Duration::from_hours(1),
            like_filters: false,
            block_storage_type: "block-storage".to_owned(),
            backing: None,
        }
    }
}

/// A server's certificate chain and private key, both PEM.
#[derive(Clone)]
pub struct TlsIdentity {
    /// The chain, the server's own certificate first.
    pub certificate_pem: String,
    /// The private key.
    pub key_pem: String,
}

impl std::fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsIdentity").finish_non_exhaustive()
    }
}

/// The user of the simulated cloud, the user's application credential and the project that both lead to; and an
/// administrator of the same project, for what users may not do.
///
/// The simulator protects nothing: its secrets are test data, which is why they are plain strings here.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
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
            admin_id: "1c7e5a3f9b2d4860a1c3e5f7092b4d68".to_owned(),
            admin_name: "admin".to_owned(),
            admin_password: "secret-of-admin".to_owned(),
        }
    }
}

/// A Nova server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerSpec {
    /// The server's UUID.
    pub id: String,
    /// Its display name.
    pub name: String,
    /// Its availability zone.
    pub zone: String,
    /// The folder that plays `/dev/disk/by-id` of this server; links to loop devices appear there.
    pub by_id: Option<PathBuf>,
}

impl ServerSpec {
    /// A server in zone `nova` that is named after its id and has no place for device links.
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

/// A text on the command line that does not say what it should.
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

/// A Cinder volume type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeType {
    /// The type's UUID.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Whether its volumes can be attached to several servers (`multiattach="<is> True"`).
    pub multiattach: bool,
}

impl VolumeType {
    /// A type whose volumes go to one server at a time.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        let id = uuid::Uuid::new_v4().to_string();
        Self {
            id,
            name,
            multiattach: false,
        }
    }
}

/// What the project may use; -1 is without limit, as in Cinder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Quota {
    pub volumes: i64,
    pub gigabytes: i64,
    pub snapshots: i64,
    pub per_volume_gigabytes: i64,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            volumes: 10_000,
            gigabytes: 1_000_000,
            snapshots: 10_000,
            per_volume_gigabytes: -1,
        }
    }
}

impl FromStr for Quota {
    type Err = SpecError;

    /// `volumes=N,gigabytes=N,snapshots=N,per_volume_gigabytes=N`, what is not named keeps its default.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let error = |reason: String| SpecError {
            text: text.to_owned(),
            reason,
            form: "volumes=N,gigabytes=N,snapshots=N,per_volume_gigabytes=N",
        };
        let mut quota = Self::default();
        for part in text.split(',') {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| error(format!("`{part}` has no value")))?;
            let value = value.parse().map_err(|_| error(format!("`{value}` is not a number")))?;
            match name {
                "volumes" => quota.volumes = value,
                "gigabytes" => quota.gigabytes = value,
                "snapshots" => quota.snapshots = value,
                "per_volume_gigabytes" => quota.per_volume_gigabytes = value,
                _ => return Err(error(format!("`{name}` is not a quota"))),
            }
        }
        Ok(quota)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_read_from_its_id_and_its_settings() {
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
    fn a_quota_keeps_its_default_where_it_is_not_named() {
        let quota: Quota = "volumes=3".parse().expect("a quota");
        assert_eq!((quota.volumes, quota.gigabytes), (3, Quota::default().gigabytes));
        assert!("cows=3".parse::<Quota>().is_err());
    }

    #[test]
    fn keys_do_not_show_in_debug_output() {
        let identity = TlsIdentity {
            certificate_pem: "certificate".to_owned(),
            key_pem: "private".to_owned(),
        };
        assert!(!format!("{identity:?}").contains("private"));
    }
}
