//! A running simulator.
#![allow(clippy::todo, unused_variables, clippy::unused_async)]

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use thiserror::Error;

use crate::config::{Latencies, ServerSpec, SimConfig};
use crate::faults::{Fault, FaultError};
use crate::log::LogEntry;
use crate::snapshot::{CloudState, VolumeStatus};

/// Why a simulator did not start.
#[derive(Debug, Error)]
pub enum SimError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose a free port")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
}

/// How to reach and log in to a simulator; what `--ready-file` holds.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct Access {
    pub auth_url: String,
    pub base_url: String,
    pub pid: u32,
    pub username: String,
    pub password: String,
    pub project_name: String,
    pub project_id: String,
    pub domain_name: String,
    pub region: String,
    pub application_credential_id: String,
    pub application_credential_name: String,
    pub application_credential_secret: String,
}

impl Access {
    /// A `cloud.conf` with user name and password, as the Go driver reads it.
    pub fn cloud_conf(&self) -> String {
        let mut text = String::from("[Global]\n");
        for (key, value) in [
            ("auth-url", &self.auth_url),
            ("username", &self.username),
            ("password", &self.password),
            ("tenant-name", &self.project_name),
            ("domain-name", &self.domain_name),
            ("region", &self.region),
        ] {
            let _ = writeln!(text, "{key} = \"{value}\"");
        }
        text
    }
}

/// A simulator that runs in this process. Dropping it ends its tasks; [`Sim::shutdown`] also releases its loop devices.
#[derive(Debug)]
pub struct Sim {
    access: Access,
}

impl Sim {
    /// Starts a simulator; when this returns it listens.
    pub async fn start(config: SimConfig) -> Result<Self, SimError> {
        todo!()
    }

    /// How to reach it and log in.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Keystone's address, `http://127.0.0.1:PORT/v3`.
    pub fn auth_url(&self) -> &str {
        &self.access.auth_url
    }

    /// The address before the services' paths, `http://127.0.0.1:PORT`. The metadata service of the first server is
    /// below it too, at `/metadata/SERVER_ID` followed by the usual path `/openstack/latest/meta_data.json`.
    pub fn base_url(&self) -> &str {
        &self.access.base_url
    }

    /// The requests so far, oldest first.
    pub fn log(&self) -> Vec<LogEntry> {
        todo!()
    }

    /// How many requests of this operation there were.
    pub fn count(&self, operation: &str) -> usize {
        self.log().iter().filter(|entry| entry.operation == operation).count()
    }

    /// Forgets the requests so far.
    pub fn clear_log(&self) {
        todo!()
    }

    /// Adds a rule that makes requests fail.
    pub fn fault(&self, fault: Fault) -> Result<(), FaultError> {
        todo!()
    }

    /// Removes all rules.
    pub fn clear_faults(&self) {
        todo!()
    }

    /// Changes how long work takes, from now on.
    pub fn set_latencies(&self, latencies: Latencies) {
        todo!()
    }

    /// Revokes all tokens: the next request with one is answered with 401.
    pub fn revoke_tokens(&self) {
        todo!()
    }

    /// How long new tokens are good for.
    pub fn set_token_lifetime(&self, lifetime: Duration) {
        todo!()
    }

    /// What the cloud holds now.
    pub fn state(&self) -> CloudState {
        todo!()
    }

    /// Adds a server.
    pub fn add_server(&self, server: ServerSpec) {
        todo!()
    }

    /// Takes a server away as an administrator's force-delete does: it is gone, and Cinder's records of its attachments
    /// stay behind when `leave_attachments` is set.
    pub fn remove_server(&self, id: &str, leave_attachments: bool) {
        todo!()
    }

    /// Sets a server's `vm_state` and `task_state`, for instance `("active", Some("rebooting"))`.
    pub fn set_server_state(&self, id: &str, vm_state: &str, task_state: Option<&str>) {
        todo!()
    }

    /// Sets a volume's status as an administrator's `os-reset_status` does; false when there is no such volume.
    pub fn set_volume_status(&self, id: &str, status: VolumeStatus) -> bool {
        todo!()
    }

    /// Waits until no asynchronous work is under way, at most `limit`; false when the limit came first.
    pub async fn settled(&self, limit: Duration) -> bool {
        todo!()
    }

    /// Stops it, releases its loop devices and removes their links.
    pub async fn shutdown(self) {
        todo!()
    }
}
