// SPDX-License-Identifier: Apache-2.0
//! The `losetup` command of util-linux.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;
use tokio::process::Command;

/// Limit of a call.
const LIMIT: Duration = Duration::from_secs(15);

/// A call of `losetup` failed.
#[derive(Debug, Error)]
pub enum LosetupError {
    #[error("cannot run losetup: {source}; install util-linux")]
    Start { source: std::io::Error },
    #[error("losetup {arguments} was not done after {LIMIT:?}")]
    Timeout { arguments: String },
    #[error("losetup {arguments}: {message}; loop devices need root and the kernel's loop module")]
    Run { arguments: String, message: String },
    #[error("losetup's listing is not understood: {source}")]
    Decode { source: serde_json::Error },
}

/// Attaches a file to a free loop device; returns the path of the device.
pub(super) async fn set_up(file: &Path) -> Result<PathBuf, LosetupError> {
    let output = run(&[OsStr::new("--find"), OsStr::new("--show"), file.as_os_str()]).await?;
    Ok(PathBuf::from(output.trim()))
}

/// Detaches a loop device. If it is in use, the kernel detaches it after the last user. Succeeds if it is already
/// detached.
pub(super) async fn tear_down(device: &Path) -> Result<(), LosetupError> {
    match run(&[OsStr::new("--detach"), device.as_os_str()]).await {
        Err(LosetupError::Run { message, .. }) if message.contains("No such device") => Ok(()),
        other => other.map(drop),
    }
}

/// Updates the size of a device after its file has grown.
pub(super) async fn read_size_again(device: &Path) -> Result<(), LosetupError> {
    run(&[OsStr::new("--set-capacity"), device.as_os_str()]).await.map(drop)
}

/// Whether the device has a file of the folder as its backing file.
pub(super) async fn is_set_up(device: &Path, folder: &Path) -> Result<bool, LosetupError> {
    Ok(devices_below(folder).await?.iter().any(|known| known == device))
}

/// Returns the devices with this backing file.
pub(super) async fn devices_of(file: &Path) -> Result<Vec<PathBuf>, LosetupError> {
    let all = list().await?;
    Ok(all
        .into_iter()
        .filter(|device| device.file() == file)
        .map(|device| device.name)
        .collect())
}

/// Returns the devices with a backing file in this folder, including deleted files.
pub(super) async fn devices_below(folder: &Path) -> Result<Vec<PathBuf>, LosetupError> {
    let all = list().await?;
    Ok(all
        .into_iter()
        .filter(|device| device.file().starts_with(folder))
        .map(|device| device.name)
        .collect())
}

#[derive(Debug, Deserialize)]
struct Listing {
    loopdevices: Vec<Listed>,
}

#[derive(Debug, Deserialize)]
struct Listed {
    name: PathBuf,
    #[serde(rename = "back-file")]
    back_file: Option<String>,
}

impl Listed {
    fn file(&self) -> &Path {
        let name = self.back_file.as_deref().unwrap_or_default();
        Path::new(name.strip_suffix(" (deleted)").unwrap_or(name))
    }
}

async fn list() -> Result<Vec<Listed>, LosetupError> {
    let output = run(&["--list", "--json", "--output", "NAME,BACK-FILE"].map(OsStr::new)).await?;
    // Without any device, the output is empty.
    if output.trim().is_empty() {
        return Ok(Vec::new());
    }
    let listing: Listing = serde_json::from_str(&output).map_err(|source| LosetupError::Decode { source })?;
    Ok(listing.loopdevices)
}

async fn run(arguments: &[&OsStr]) -> Result<String, LosetupError> {
    let shown = || {
        arguments
            .iter()
            .map(|part| part.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" ")
    };
    // Debian does not have /usr/sbin in the PATH of ordinary users.
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("losetup");
    command
        .args(arguments)
        .env("LC_ALL", "C")
        .env("PATH", path)
        .kill_on_drop(true);
    let output = match tokio::time::timeout(LIMIT, command.output()).await {
        Err(_) => return Err(LosetupError::Timeout { arguments: shown() }),
        Ok(Err(source)) => return Err(LosetupError::Start { source }),
        Ok(Ok(output)) => output,
    };
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(LosetupError::Run {
            arguments: shown(),
            message,
        })
    }
}
