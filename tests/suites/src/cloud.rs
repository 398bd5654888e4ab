// SPDX-License-Identifier: Apache-2.0
//! Clouds from the perspective of a driver, real or simulated.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use harness::wait_for_some;

use crate::lab::{Lab, METADATA_ADDRESS};
use crate::process::Process;
use crate::programs;

const START_TIMEOUT: Duration = Duration::from_secs(15);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// A cloud that a driver can log in to.
pub trait Cloud {
    /// Returns the configuration file for both drivers.
    fn cloud_conf(&self) -> &Path;
}

/// A cloud with another login.
#[derive(Debug)]
pub struct OtherLogin {
    pub conf: PathBuf,
}

impl Cloud for OtherLogin {
    fn cloud_conf(&self) -> &Path {
        &self.conf
    }
}

/// Starts the metadata service of one server at its address in the lab, and waits until it responds.
pub(crate) async fn metadata_service(lab: &Lab, server_id: &str, name: &str, zone: &str) -> Result<Process> {
    let mut command = lab.command(programs::simulator()?)?;
    command.args(["metadata", "--listen", &format!("{METADATA_ADDRESS}:80")]);
    command.args(["--instance-id", server_id, "--name", name, "--zone", zone]);
    let mut process = Process::spawn("openstack-sim metadata", command, &lab.path("metadata.log"))?;
    let http = client()?;
    let url = format!("http://{METADATA_ADDRESS}/openstack/latest/meta_data.json");
    wait_for_some("the metadata service", START_TIMEOUT, async || {
        process.check()?;
        let answer = http.get(&url).send().await.ok();
        Ok(answer.filter(|answer| answer.status().is_success()))
    })
    .await?;
    Ok(process)
}

/// Creates an HTTP client that ignores proxies in the environment.
pub(crate) fn client() -> Result<reqwest::Client> {
    reqwest::Client::builder()
        .timeout(REQUEST_TIMEOUT)
        .no_proxy()
        .build()
        .context("cannot make a client")
}
