// SPDX-License-Identifier: Apache-2.0
//! Sessions with credentials that come in a call's secrets, kept so that a call does not begin with a login.

use std::collections::BTreeMap;

use cinder_cloud::config::credentials_hash;
use cinder_cloud::{Cloud, CloudConfig, CloudOptions};
use parking_lot::Mutex;
use tonic::Status;

use crate::status;

/// The most sessions; the one that was not used for longest makes room.
const MAX_SESSIONS: usize = 32;

/// The sessions, by a salted hash of the secrets. Neither is ever shown.
pub(super) struct Sessions {
    options: CloudOptions,
    salt: [u8; 16],
    /// The one used last at the end.
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

    /// The session of the secrets, with the options of `base`; `None` where the secrets hold no credentials. Asks nobody.
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
            // The error may quote the address, which came as a secret.
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

    /// Tells secrets apart without keeping them.
    pub(super) fn hash(&self, secrets: &BTreeMap<String, String>) -> String {
        let pairs = secrets
            .iter()
            .flat_map(|(key, value)| [key.as_bytes(), value.as_bytes()]);
        let parts: Vec<&[u8]> = std::iter::once(self.salt.as_slice()).chain(pairs).collect();
        credentials_hash(&parts)
    }
}
