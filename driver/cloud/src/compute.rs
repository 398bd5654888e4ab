//! Nova, typed: servers and their volume attachments.

use serde::Deserialize;

use crate::block_storage::null_as_default;
use crate::ids::ServerId;

/// A server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Server {
    /// Its id.
    pub id: ServerId,
    /// Its name.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    /// `ACTIVE`, `SHUTOFF`, …
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: String,
    /// The availability zone of Nova.
    #[serde(default, rename = "OS-EXT-AZ:availability_zone")]
    pub availability_zone: Option<String>,
    /// What Nova is doing with it just now.
    #[serde(default, rename = "OS-EXT-STS:task_state")]
    pub task_state: Option<String>,
}
