//! The lists that are kept, and for how long.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::block_storage::Volume;
use crate::cached::Cached;
use crate::compute::Server;
use crate::ids::{ServerId, VolumeId};

/// How long a list is good. Pages of one walk come faster than this after each other.
const LIFETIME: Duration = Duration::from_secs(5);
/// How long the servers' list is good: it tells of trouble, which does not pass in seconds.
const SERVERS_LIFETIME: Duration = Duration::from_secs(15);

/// The lists that are kept.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(super) volumes: Cached<BTreeMap<VolumeId, Volume>>,
    pub(super) servers: Cached<BTreeMap<ServerId, Server>>,
}

impl Default for Listing {
    fn default() -> Self {
        Self {
            volumes: Cached::for_time(LIFETIME),
            servers: Cached::for_time(SERVERS_LIFETIME),
        }
    }
}
