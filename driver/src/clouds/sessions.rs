// SPDX-License-Identifier: Apache-2.0
//! Caches sessions with credentials from the secrets of calls, so that not every call begins with a login.

use std::collections::BTreeMap;

use cinder_cloud::config::credentials_hash;
use cinder_cloud::{Cloud, CloudConfig, CloudOptions};
use parking_lot::Mutex;
use tonic::Status;

use crate::status;

/// The maximum number of sessions. The least recently used one is dropped first.
const MAX_SESSIONS: usize = 32;

/// The sessions by a salted hash of the secrets. `Debug` shows neither.
pub(super) struct Sessions {
    options: CloudOptions,
    salt: [u8; 16],
    /// Ordered by last use, the most recent at the end.
    open: Mutex<Vec<(String, Cloud)>>,
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

impl Sessions {
    pub(super) fn new(options: CloudOptions) -> Self {
        Self {
            salt: *options.sources.uuid().as_bytes(),
            options: CloudOptions {
                credentials_of_request: true,
                ..options
            },
            open: Mutex::default(),
        }
    }

    /// Returns the session of the secrets, with the options of `base`; `None` if they contain no credentials. Sends no
    /// request.
    pub(super) fn session(
        &self,
        secrets: &BTreeMap<String, String>,
        base: &CloudConfig,
    ) -> Result<Option<Cloud>, Status> {
        let config = CloudConfig::from_secrets(secrets, base).map_err(|error| status::invalid_secrets(&error))?;
        let Some(config) = config else { return Ok(None) };
        let hash = self.hash(secrets);
        let mut sessions = self.open.lock();
        let known = sessions.iter().position(|(known, _)| *known == hash);
        let session = if let Some(at) = known {
            sessions.remove(at)
        } else {
            let cloud = Cloud::new(config, self.options.clone());
            // The error may quote the address, which is part of the secrets.
            let cloud = cloud.map_err(|_| {
                status::invalid(
                    "secrets",
                    "no session can be set up with the credentials; check auth-url and ca-cert",
                )
            })?;
            if sessions.len() >= MAX_SESSIONS {
                sessions.remove(0);
            }
            (hash, cloud)
        };
        sessions.push(session.clone());
        Ok(Some(session.1))
    }

    pub(super) fn clear(&self) {
        self.open.lock().clear();
    }

    /// Returns a hash that identifies the secrets, so that they need not be stored.
    pub(super) fn hash(&self, secrets: &BTreeMap<String, String>) -> String {
        let pairs = secrets
            .iter()
            .flat_map(|(key, value)| [key.as_bytes(), value.as_bytes()]);
        let parts: Vec<&[u8]> = std::iter::once(self.salt.as_slice()).chain(pairs).collect();
        credentials_hash(&parts)
    }
}
