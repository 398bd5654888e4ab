// SPDX-License-Identifier: Apache-2.0
//! Servers and volumes according to Nova and Cinder.

use std::time::Duration;

use anyhow::Result;
use harness::wait_for;
use serde_json::Value;
use suites::expect::expect_field;
use suites::openstack::{Api, Service};

const STATE_TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) async fn reach(api: &Api, server: &str, status: &str) -> Result<()> {
    let path = format!("/servers/{server}");
    wait_for(&format!("the server to be {status}"), STATE_TIMEOUT, async || {
        let shown = api.get(Service::Compute, &path).await?;
        expect_field(&shown, "/server/status", status)?;
        expect_field(&shown, "/server/OS-EXT-STS:task_state", Value::Null)
    })
    .await
}

/// Returns the number of servers to which the volume is attached.
pub(crate) async fn attached(api: &Api, volume: &str) -> Result<usize> {
    let volume = api.volume(volume).await?;
    Ok(volume["attachments"].as_array().map_or(0, Vec::len))
}
