// SPDX-License-Identifier: Apache-2.0
//! Real Keystone, Cinder and Nova in a lab: `tests/openstack`, of which a machine has one.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use harness::{wait_for_some, workspace_root};
use serde::Deserialize;
use tokio::process::Command;

use crate::cloud::{Cloud, metadata_service};
use crate::drivers::{Driver, Ours, Role};
use crate::gateway::{Exchange, Gateway, network_outside};
use crate::lab::{BY_ID, Lab, in_lab};
use crate::openstack::{Api, USER_AGENT};
use crate::process::Process;

/// Limit of the wait for other suites.
const LOCK_TIMEOUT: Duration = Duration::from_mins(40);
/// Limit of a start on an empty machine, including installation and database creation.
const UP_TIMEOUT: Duration = Duration::from_mins(25);
/// Zone of both servers, and of the first backends.
pub const ZONE: &str = "nova";
/// The other zone, with its own server and backend.
pub const FAR_ZONE: &str = "zone-far";

/// Description of the cloud, from `tests/openstack/cloud`.
#[derive(Debug, Deserialize)]
pub(crate) struct Description {
    pub(crate) ports: Ports,
    auth_url: String,
    pub(crate) region: String,
    pub(crate) cloud_conf: PathBuf,
    /// Optional, because a cloud of an earlier version does not report it.
    #[serde(default)]
    pub(crate) member_conf: PathBuf,
    #[serde(default)]
    trustee_conf: PathBuf,
    pub(crate) servers: Vec<Server>,
    /// Servers of the other zone.
    #[serde(default)]
    pub(crate) far_servers: Vec<Server>,
    #[serde(default)]
    pub(crate) zones: Vec<String>,
    /// Volume types by purpose.
    #[serde(default)]
    pub(crate) roles: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) group_type: String,
    pub(crate) log: PathBuf,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Ports {
    pub(crate) keystone: u16,
    pub(crate) cinder: u16,
    pub(crate) nova: u16,
}

/// A server of the cloud.
#[derive(Debug, Clone, Deserialize)]
pub struct Server {
    /// Id in Nova.
    pub id: String,
    pub name: String,
    /// Directory of its device links outside of the lab.
    pub(crate) by_id: PathBuf,
}

/// The cloud, for one test at a time. The lab is its first server, so that server's devices and metadata service are in
/// the lab. The cloud is started if needed; [`RealCloud::stop`] then stops it.
#[derive(Debug)]
pub struct RealCloud {
    description: Description,
    api: Api,
    gateway: Gateway,
    metadata: Process,
    turn: CloudLock,
}

/// The exclusive right to use the cloud.
#[derive(Debug)]
pub(crate) struct CloudLock {
    started: bool,
    /// Unlocked on close.
    _lock: File,
}

impl RealCloud {
    /// Waits for the lock, starts the cloud if needed, and cleans up after failed tests.
    pub async fn start(lab: &Lab) -> Result<Self> {
        let (turn, mut description) = take().await?;
        let ports = [
            description.ports.keystone,
            description.ports.cinder,
            description.ports.nova,
        ];
        let gateway = Gateway::start(&ports).await?;
        let api = log_in_to_a_clean_cloud(&mut description).await?;
        let server = description.servers.first().context("the cloud has no server")?;
        lab.shell(&format!("mount --bind '{}' {BY_ID}", server.by_id.display()))
            .await?;
        let metadata = metadata_service(lab, &server.id, &server.name, ZONE).await?;
        Ok(Self {
            description,
            api,
            gateway,
            metadata,
            turn,
        })
    }

    /// Returns a session of the driver's user.
    pub const fn api(&self) -> &Api {
        &self.api
    }

    /// Returns the servers; the lab is the first one.
    pub fn servers(&self) -> &[Server] {
        &self.description.servers
    }

    /// Returns the URL of Keystone.
    pub fn auth_url(&self) -> &str {
        &self.description.auth_url
    }

    /// Returns a cloud.conf with the password of the project's member.
    pub fn member_conf(&self) -> &Path {
        &self.description.member_conf
    }

    /// Returns a cloud.conf with the password of a user without a role.
    pub fn trustee_conf(&self) -> &Path {
        &self.description.trustee_conf
    }

    /// Returns the drivers' requests so far.
    pub fn calls(&self) -> Vec<Exchange> {
        let mut calls = self.gateway.log();
        calls.retain(|call| call.user_agent != USER_AGENT);
        calls
    }

    /// Clears the request log.
    pub fn forget_calls(&self) {
        self.gateway.clear();
    }

    /// Returns the log directory of the services.
    pub fn log(&self) -> &Path {
        &self.description.log
    }

    /// Restarts one service.
    pub async fn restart(&self, service: &str) -> Result<()> {
        control(&["restart", service]).await.map(drop)
    }

    /// Ends the test without checking for remaining resources; the next test gets a clean cloud.
    pub async fn leave(self) -> Result<()> {
        self.metadata.stop().await?;
        drop(self.turn);
        Ok(())
    }

    /// Fails if resources remain. Stops the cloud if it was started for this test.
    pub async fn stop(self) -> Result<()> {
        let remaining = self.api.block_storage().await?;
        self.metadata.stop().await?;
        drop(self.turn);
        ensure!(remaining.is_empty(), "left in Cinder: {remaining:#?}");
        Ok(())
    }
}

/// Runs a test with one process of our driver on the real cloud, and checks that nothing remains.
pub fn with_driver<Test>(role: Role, test: Test)
where
    Test: AsyncFnOnce(&Lab, &RealCloud, &Driver) -> Result<()> + Send,
{
    in_lab(async move |lab| {
        let cloud = RealCloud::start(&lab).await?;
        let driver = Ours::new(role).start(&lab, &cloud).await?;
        test(&lab, &cloud, &driver).await?;
        driver.stop().await?;
        cloud.stop().await
    });
}

impl Cloud for RealCloud {
    fn cloud_conf(&self) -> &Path {
        &self.description.cloud_conf
    }
}

impl Drop for CloudLock {
    fn drop(&mut self) {
        if !self.started {
            return;
        }
        let ended = std::process::Command::new(program()).arg("down").status();
        if !ended.as_ref().is_ok_and(std::process::ExitStatus::success) {
            println!("the cloud is still up ({ended:?}): make openstack-down");
        }
    }
}

/// Returns a session in a cloud without resources of this project.
pub(crate) async fn log_in_to_a_clean_cloud(description: &mut Description) -> Result<Api> {
    let api = Api::login(&description.member_conf).await?;
    if api.block_storage().await?.is_empty() {
        return Ok(api);
    }
    // A new cloud is available sooner than the end of another test's unfinished work.
    control(&["down"]).await?;
    *description = describe(&control(&["up"]).await?)?;
    Api::login(&description.member_conf).await
}

/// Waits for the lock, then for the cloud.
pub(crate) async fn take() -> Result<(CloudLock, Description)> {
    let path = lock_path()?;
    let lock = File::options()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    wait_for_some(
        "this test's turn at the real cloud",
        LOCK_TIMEOUT,
        async || match lock.try_lock() {
            Ok(()) => Ok(Some(())),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
        },
    )
    .await?;
    let runs = control(&["status"]).await.is_ok();
    let ready = control(&["up"]).await?;
    let turn = CloudLock {
        started: !runs,
        _lock: lock,
    };
    Ok((turn, describe(&ready)?))
}

fn lock_path() -> Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|cache| !cache.is_empty());
    let cache = match cache {
        Some(cache) => PathBuf::from(cache),
        None => {
            PathBuf::from(std::env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?).join(".cache")
        }
    };
    let directory = cache.join("cinder-csi");
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    Ok(directory.join("openstack-suites.lock"))
}

fn describe(path: &str) -> Result<Description> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    serde_json::from_str(&text).with_context(|| format!("{path} is not what was agreed"))
}

fn program() -> PathBuf {
    workspace_root().join("tests/openstack/cloud")
}

/// Runs `tests/openstack/cloud` outside of the lab and returns the line that it prints.
pub(crate) async fn control(arguments: &[&str]) -> Result<String> {
    let output = Command::new("nsenter")
        .arg(format!("--net={}", network_outside()))
        .arg("--")
        .arg(program())
        .args(arguments)
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(UP_TIMEOUT, output)
        .await
        .with_context(|| format!("cloud {arguments:?} takes longer than {UP_TIMEOUT:?}"))?
        .context("cannot run tests/openstack/cloud")?;
    if !output.status.success() {
        bail!(
            "cloud {arguments:?} failed ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
