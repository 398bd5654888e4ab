// SPDX-License-Identifier: Apache-2.0
//! A running simulator.

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
use crate::store::{Saved, Store, StoreError};
use crate::work;
use crate::world::{Rules, World};

/// Why a simulator did not start.
#[derive(Debug, Error)]
pub enum SimError {
    /// The address or its certificate cannot be used.
    #[error(transparent)]
    Listen(#[from] ListenerError),
    /// The backing folder cannot be used.
    #[error(transparent)]
    Backing(#[from] BackingError),
    /// What an earlier run left cannot be taken up.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How to reach and log in to a simulator; what `--ready-file` holds.
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

/// The address of a simulator that does not listen.
pub const NOWHERE: &str = "http://openstack.invalid";

/// Asks a simulator in the same process, by a call and not over a connection. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SimClient {
    cloud: Arc<Cloud>,
    lag: Duration,
}

impl SimClient {
    /// The same cloud by an API node whose database is `lag` behind, [`SimConfig::longest_lag`] at most: what it shows is that
    /// old. What it changes it changes now, as in a cluster of databases that all take writes.
    #[must_use]
    pub fn behind(&self, lag: Duration) -> Self {
        Self {
            cloud: Arc::clone(&self.cloud),
            lag,
        }
    }

    /// The answer to a request. Fault rules, latencies and the log are as for a request that comes over a connection. Dropping
    /// the future is the client's end of the connection: what has not been done yet is not done.
    pub async fn send(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, NoAnswer> {
        let stopped = self.cloud.stopped.clone();
        if stopped.is_cancelled() {
            return Err(NoAnswer::Refused);
        }
        // An end in the middle is no refusal: the request may have been carried out.
        let answer = stopped
            .run_until_cancelled(service::answer(&self.cloud, request, self.lag))
            .await;
        answer.unwrap_or(Err(NoAnswer::Closed))
    }
}

/// A simulator that runs in this process. Dropping it ends its tasks; [`Sim::shutdown`] also releases its loop devices.
#[derive(Debug)]
pub struct Sim {
    access: Access,
    cloud: Arc<Cloud>,
    tasks: Vec<JoinHandle<()>>,
}

impl Sim {
    /// Starts a simulator; when this returns it listens.
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

    /// Starts a simulator that does not listen: it is asked through [`Sim::client`] alone. Its address is `public_url`, or
    /// [`NOWHERE`]. Without a backing folder all that it does is done by tasks of the runtime that this is called in, so that it
    /// also works on a paused clock.
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

    /// Asks it without a connection.
    pub fn client(&self) -> SimClient {
        SimClient {
            cloud: Arc::clone(&self.cloud),
            lag: Duration::ZERO,
        }
    }

    /// Where its time, random numbers and ids come from.
    pub fn sources(&self) -> &Sources {
        &self.cloud.sources
    }

    /// How to reach it and log in.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Keystone's address, `http://127.0.0.1:PORT/identity/v3`.
    pub fn auth_url(&self) -> &str {
        &self.access.auth_url
    }

    /// The address before the services' paths, `http://127.0.0.1:PORT`. The metadata service of every server is below it
    /// too: `/metadata/SERVER_ID` followed by the usual path `/openstack/latest/meta_data.json`.
    pub fn base_url(&self) -> &str {
        &self.access.base_url
    }

    /// The requests so far, oldest first.
    pub fn log(&self) -> Vec<LogEntry> {
        self.cloud.log().clone()
    }

    /// How many requests of this operation there were.
    pub fn count(&self, operation: &str) -> usize {
        self.cloud
            .log()
            .iter()
            .filter(|entry| entry.operation == operation)
            .count()
    }

    /// Forgets the requests so far.
    pub fn clear_log(&self) {
        self.cloud.log().clear();
    }

    /// Adds a rule that makes requests fail.
    pub fn fault(&self, fault: Fault) -> Result<(), FaultError> {
        self.cloud.faults().add(fault)
    }

    /// Removes all rules.
    pub fn clear_faults(&self) {
        self.cloud.faults().clear();
    }

    /// The requests that a [`crate::Effect::Delay`] holds at this moment.
    pub fn held(&self) -> Vec<HeldRequest> {
        self.cloud.held.list()
    }

    /// Changes how long work takes, from now on, also of what is under way.
    pub fn set_latencies(&self, latencies: Latencies) {
        self.cloud.set_latencies(latencies);
    }

    /// Revokes all tokens: the next request with one is answered with 401.
    pub fn revoke_tokens(&self) {
        self.cloud.change_tokens(Tokens::revoke_all);
    }

    /// Changes the further regions in the catalogue of new tokens.
    pub fn set_other_regions(&self, regions: &[&str]) {
        let regions = regions.iter().map(|region| (*region).to_owned()).collect();
        *lock(&self.cloud.settings.other_regions) = regions;
    }

    /// How long new tokens are good for.
    pub fn set_token_lifetime(&self, lifetime: Duration) {
        self.cloud.change_tokens(|tokens| tokens.set_lifetime(lifetime));
    }

    /// What the cloud holds now.
    pub fn state(&self) -> CloudState {
        self.cloud.read(World::state)
    }

    /// Waits until no asynchronous work is under way, at most `limit`; false when the limit came first.
    pub async fn settled(&self, limit: Duration) -> bool {
        self.cloud.settled(limit).await
    }

    /// Waits until the state is as `is_so` wants it, at most `limit`; false when the limit came first.
    pub async fn wait_until(&self, limit: Duration, is_so: impl Fn(&CloudState) -> bool) -> bool {
        self.cloud.wait_until(limit, |world| is_so(&world.state())).await
    }

    /// Stops it, releases its loop devices and removes their links. The backing folder keeps the volumes, and what was
    /// attached is attached again at the next start.
    pub async fn shutdown(mut self) -> Result<(), SimError> {
        self.cloud.stopped.cancel();
        for task in self.tasks.drain(..) {
            task.abort();
            // Aborted or done: nothing of it runs any more.
            drop(task.await);
        }
        // Work that was cut short leaves its half-way state, which the next start takes up.
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

fn saved(cloud: &Cloud) -> Saved {
    Saved {
        cloud: cloud.read(World::state),
        tokens: cloud.tokens().clone(),
    }
}

/// Releases the loop devices and links that a killed simulator left for this backing folder; its volumes stay.
pub async fn clean(folder: &std::path::Path) -> Result<(), SimError> {
    let backing = Backing::open(folder)?;
    let state = Store::new(backing.folder()).load()?.cloud;
    Ok(backing.release_all(&state).await?)
}
