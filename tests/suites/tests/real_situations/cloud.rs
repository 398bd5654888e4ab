// SPDX-License-Identifier: Apache-2.0
//! Servers and volumes according to Nova and Cinder.

use std::time::Duration;

use anyhow::{Context as _, Result};
use harness::wait_for_some;
use reqwest::Method;
use serde_json::Value;
use suites::openstack::{Api, Service};

const COMPUTE: &str = "2.89";
const VOLUME: &str = "3.60";
const STATE_TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) async fn run_action(api: &Api, server: &str, body: &Value) -> Result<()> {
    let path = format!("/servers/{server}/action");
    let answer = api
        .call(Method::POST, Service::Compute, &path, COMPUTE, Some(body))
        .await?;
    answer.accepted().with_context(|| format!("{body}")).map(drop)
}

pub(crate) async fn reach(api: &Api, server: &str, status: &str) -> Result<()> {
    let path = format!("/servers/{server}");
    wait_for_some(&format!("the server to be {status}"), STATE_TIMEOUT, async || {
        let shown = api
            .call(Method::GET, Service::Compute, &path, COMPUTE, None)
            .await?
            .accepted()?;
        let done = shown["server"]["status"] == status && shown["server"]["OS-EXT-STS:task_state"].is_null();
        Ok(done.then_some(()))
    })
    .await
}

pub(crate) async fn show(api: &Api, volume: &str) -> Result<Value> {
    let path = format!("/volumes/{volume}");
    let answer = api.call(Method::GET, Service::Volume, &path, VOLUME, None).await?;
    Ok(answer.accepted()?["volume"].clone())
}

/// Returns the number of servers to which the volume is attached.
pub(crate) async fn attached(api: &Api, volume: &str) -> Result<usize> {
    let volume = show(api, volume).await?;
    Ok(volume["attachments"].as_array().map_or(0, Vec::len))
}
