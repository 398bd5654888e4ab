// SPDX-License-Identifier: Apache-2.0
//! The simulator as a library.

mod administration;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use csi_sources::Sources;
use parking_lot::Mutex;
use serde::Serialize;
use thiserror::Error;
use tokio::task::JoinHandle;

use crate::backing::{Backing, BackingError};
use crate::cloud::{Cloud, Settings, lock};
use crate::config::SimConfig;
use crate::faults::{Fault, FaultError};
use crate::held::HeldRequest;
use crate::keystone::Tokens;
use crate::latencies::Latencies;
use crate::listener::{Listener, ListenerError};
use crate::log::LogEntry;
use crate::microversion::{COMPUTE, VOLUME, Version};
use crate::service::{self, NoAnswer};
use crate::state::CloudState;
use crate::store::{SavedState, Store, StoreError};
use crate::work;
use crate::world::{Rules, World};

/// A simulator did not start.
#[derive(Debug, Error)]
pub enum SimError {
    /// The address or its certificate is not usable.
    #[error(transparent)]
    Listen(#[from] ListenerError),
    /// The backing folder is not usable.
    #[error(transparent)]
    Backing(#[from] BackingError),
    /// The state of an earlier run is not usable.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Addresses and credentials of a simulator; the content of `--ready-file`.
#[derive(Debug, Clone, Serialize)]
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
    /// Returns a `cloud.conf` with user name and password in the format of the Go driver.
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

/// URL of a simulator that does not listen.
pub const NOWHERE: &str = "http://openstack.invalid";

/// An in-process client of a simulator, without a connection. Clones share the same simulator.
#[derive(Debug, Clone)]
pub struct SimClient {
    cloud: Arc<Cloud>,
    lag: Duration,
}

impl SimClient {
    /// Returns a client of an API node whose database is `lag` behind, at most [`SimConfig::longest_lag`]. Reads return
    /// old data. Writes apply to the current state, as in a multi-master database cluster.
    #[must_use]
    pub fn behind(&self, lag: Duration) -> Self {
        Self {
            cloud: Arc::clone(&self.cloud),
            lag,
        }
    }

    /// Sends a request. Fault rules, latencies and the log apply as for a request over a connection. Dropping the
    /// future disconnects the client: steps that have not run yet are cancelled.
    pub async fn send(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, NoAnswer> {
        let stopped = self.cloud.stopped.clone();
        if stopped.is_cancelled() {
            return Err(NoAnswer::Refused);
        }
        // A shutdown during the request is not a refusal, because the request may have taken effect.
        let answer = stopped
            .run_until_cancelled(service::answer(&self.cloud, request, self.lag))
            .await;
        answer.unwrap_or(Err(NoAnswer::Closed))
    }
}

/// A simulator in this process. Dropping it stops its tasks; [`Sim::shutdown`] also releases its loop devices.
#[derive(Debug)]
pub struct Sim {
    access: Access,
    cloud: Arc<Cloud>,
    tasks: Vec<JoinHandle<()>>,
}

impl Sim {
    /// Starts a simulator and returns when it listens.
    pub async fn start(config: SimConfig) -> Result<Self, SimError> {
        let listener = Listener::bind(config.listen, config.tls.as_ref(), config.client_ca_pem.as_deref()).await?;
        let mut sim = Self::build(config, &listener.url()).await?;
        let cloud = Arc::clone(&sim.cloud);
        sim.tasks
            .push(tokio::spawn(listener.serve(cloud.stopped.clone(), move |request| {
                service::handle(Arc::clone(&cloud), request)
            })));
        Ok(sim)
    }

    /// Starts a simulator that does not listen; requests use [`Sim::client`]. Its URL is `public_url`, or [`NOWHERE`].
    /// Without a backing folder, all its work runs in tasks of the current runtime, so a paused clock works.
    pub async fn direct(config: SimConfig) -> Result<Self, SimError> {
        Self::build(config, NOWHERE).await
    }

    async fn build(config: SimConfig, address: &str) -> Result<Self, SimError> {
        let base_url = config.public_url.as_deref().unwrap_or(address);
        let base_url = base_url.trim_end_matches('/').to_owned();
        let identity = &config.identity;
        let access = Access {
            auth_url: format!("{base_url}/identity/v3"),
            base_url: base_url.clone(),
            pid: std::process::id(),
            username: identity.username.clone(),
            password: identity.password.clone(),
            project_name: identity.project_name.clone(),
            project_id: identity.project_id.clone(),
            domain_name: identity.domain_name.clone(),
            region: identity.region.clone(),
            application_credential_id: identity.application_credential_id.clone(),
            application_credential_name: identity.application_credential_name.clone(),
            application_credential_secret: identity.application_credential_secret.clone(),
        };
        let mut world = World::new(
            Rules {
                zones: config.zones,
                compute_zones: config.compute_zones,
                volume_types: config.volume_types,
                group_types: config.group_types,
                pools: config.pools,
                quota: config.quota,
                volumes_per_server: config.volumes_per_server,
                clones_hold_sources: config.clones_hold_sources,
                backups: config.backups,
                copies_across_zones: config.copies_across_zones,
            },
            config.sources.clone(),
        );
        for server in config.servers {
            world.add_server(server);
        }
        world.add_volumes(config.volumes);
        let backing = config.backing.as_deref().map(Backing::open).transpose()?;
        let store = backing.as_ref().map(|backing| Store::new(backing.folder()));
        let mut tokens = Tokens::default();
        if let Some(store) = &store {
            let saved = store.load()?;
            tokens = saved.tokens;
            world.restore(saved.cloud);
        }
        tokens.set_lifetime(config.token_lifetime);
        if let Some(backing) = &backing {
            backing.release_strays(&world.state()).await?;
        }
        let settings = Settings {
            identity: config.identity,
            base_url,
            page_limit: config.page_limit,
            like_filters: config.like_filters,
            block_storage_type: config.block_storage_type,
            block_storage: VOLUME.up_to(Version(config.block_storage_version.0, config.block_storage_version.1)),
            compute: COMPUTE.up_to(Version(config.compute_version.0, config.compute_version.1)),
            pools_for_members: config.pools_for_members,
            other_regions: Arc::new(Mutex::new(config.other_regions)),
            spread: config.spread,
            longest_lag: config.longest_lag,
        };
        let cloud = Cloud::new(
            settings,
            config.sources,
            world,
            tokens,
            config.latencies,
            backing,
            store,
        );
        work::resume(&cloud).await;
        let mut tasks = Vec::new();
        if cloud.store().is_some() {
            let cloud = Arc::clone(&cloud);
            tasks.push(tokio::spawn(async move {
                if let Some(store) = cloud.store() {
                    store.write_changes(|| saved(&cloud)).await;
                }
            }));
        }
        Ok(Self { access, cloud, tasks })
    }

    /// Returns a client without a connection.
    pub fn client(&self) -> SimClient {
        SimClient {
            cloud: Arc::clone(&self.cloud),
            lag: Duration::ZERO,
        }
    }

    /// Returns the sources of time, random numbers and ids.
    pub fn sources(&self) -> &Sources {
        &self.cloud.sources
    }

    /// Returns the addresses and credentials.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Returns Keystone's URL, `http://127.0.0.1:PORT/identity/v3`.
    pub fn auth_url(&self) -> &str {
        &self.access.auth_url
    }

    /// Returns the base URL of all services, `http://127.0.0.1:PORT`. It also serves the metadata of every server:
    /// `/metadata/SERVER_ID` followed by the usual path `/openstack/latest/meta_data.json`.
    pub fn base_url(&self) -> &str {
        &self.access.base_url
    }

    /// Returns the requests so far, oldest first.
    pub fn log(&self) -> Vec<LogEntry> {
        self.cloud.log().clone()
    }

    /// Returns the number of requests of this operation.
    pub fn count(&self, operation: &str) -> usize {
        self.cloud
            .log()
            .iter()
            .filter(|entry| entry.operation == operation)
            .count()
    }

    /// Clears the request log.
    pub fn clear_log(&self) {
        self.cloud.log().clear();
    }

    /// Adds a fault rule.
    pub fn fault(&self, fault: Fault) -> Result<(), FaultError> {
        self.cloud.faults().add(fault)
    }

    /// Removes all fault rules.
    pub fn clear_faults(&self) {
        self.cloud.faults().clear();
    }

    /// Returns the requests that a [`crate::Effect::Delay`] currently delays.
    pub fn held(&self) -> Vec<HeldRequest> {
        self.cloud.held.list()
    }

    /// Sets the durations of work, including work in progress.
    pub fn set_latencies(&self, latencies: Latencies) {
        self.cloud.set_latencies(latencies);
    }

    /// Revokes all tokens: the next request with one gets a 401.
    pub fn revoke_tokens(&self) {
        self.cloud.change_tokens(Tokens::revoke_all);
    }

    /// Sets the additional regions in the catalog of new tokens.
    pub fn set_other_regions(&self, regions: &[&str]) {
        let regions = regions.iter().map(|region| (*region).to_owned()).collect();
        *lock(&self.cloud.settings.other_regions) = regions;
    }

    /// Sets the lifetime of new tokens.
    pub fn set_token_lifetime(&self, lifetime: Duration) {
        self.cloud.change_tokens(|tokens| tokens.set_lifetime(lifetime));
    }

    /// Returns the current state of the cloud.
    pub fn state(&self) -> CloudState {
        self.cloud.read(World::state)
    }

    /// Waits until no asynchronous work is in progress. Returns false at `limit`.
    pub async fn settled(&self, limit: Duration) -> bool {
        self.cloud.settled(limit).await
    }

    /// Waits until `is_so` returns true for the state. Returns false at `limit`.
    pub async fn wait_until(&self, limit: Duration, is_so: impl Fn(&CloudState) -> bool) -> bool {
        self.cloud.wait_until(limit, |world| is_so(&world.state())).await
    }

    /// Stops the simulator, releases its loop devices and deletes their links. The backing folder retains the volumes,
    /// and the next start restores the attachments.
    pub async fn shutdown(mut self) -> Result<(), SimError> {
        self.cloud.stopped.cancel();
        for task in self.tasks.drain(..) {
            task.abort();
            // Waits until the task has ended or was aborted.
            drop(task.await);
        }
        // Interrupted work retains its transitional state, which the next start continues.
        self.cloud.settled(Duration::from_secs(10)).await;
        if let Some(store) = self.cloud.store() {
            store.write(&saved(&self.cloud))?;
        }
        if let Some(backing) = &self.cloud.backing {
            backing.release_all(&self.state()).await?;
        }
        Ok(())
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.cloud.stopped.cancel();
        for task in &self.tasks {
            task.abort();
        }
    }
}

fn saved(cloud: &Cloud) -> SavedState {
    SavedState {
        cloud: cloud.read(World::state),
        tokens: cloud.tokens().clone(),
    }
}

/// Releases the loop devices and links of a killed simulator with this backing folder; does not delete volumes.
pub async fn clean(folder: &std::path::Path) -> Result<(), SimError> {
    let backing = Backing::open(folder)?;
    let state = Store::new(backing.folder()).load()?.cloud;
    Ok(backing.release_all(&state).await?)
}
