// SPDX-License-Identifier: Apache-2.0
//! Tokens.

use std::collections::BTreeMap;
use std::time::Duration;

use csi_sources::Sources;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// A token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Token {
    pub(crate) method: String,
    pub(crate) issued_at: Timestamp,
    pub(crate) expires_at: Timestamp,
    /// Whether it is scoped to the project; services refuse an unscoped token.
    pub(crate) scoped: bool,
    pub(crate) admin: bool,
    /// Whether it is scoped to the trust.
    #[serde(default)]
    pub(crate) trusted: bool,
}

/// Parameters of a new token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) scope: Scope,
    pub(super) admin: bool,
    /// Maximum expiry, from the credential or token that was used to log in.
    pub(super) until: Option<Timestamp>,
}

/// Scope of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Nothing,
    Project,
    Trust,
}

/// All issued tokens.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Tokens {
    issued: BTreeMap<String, Token>,
    #[serde(skip)]
    lifetime: Option<Duration>,
}

impl Tokens {
    pub(crate) fn set_lifetime(&mut self, lifetime: Duration) {
        self.lifetime = Some(lifetime);
    }

    pub(super) fn issue(&mut self, method: &str, grant: Grant, sources: &Sources) -> (String, Token) {
        let issued_at = sources.now();
        self.issued.retain(|_, token| token.expires_at > issued_at);
        let lifetime = self
            .lifetime
            .and_then(|lifetime| SignedDuration::try_from(lifetime).ok());
        let expires_at = issued_at
            .checked_add(lifetime.unwrap_or(SignedDuration::from_hours(1)))
            .unwrap_or(issued_at);
        let token = Token {
            method: method.to_owned(),
            issued_at,
            expires_at: grant.until.map_or(expires_at, |until| until.min(expires_at)),
            scoped: grant.scope != Scope::Nothing,
            admin: grant.admin,
            trusted: grant.scope == Scope::Trust,
        };
        let id = format!("gAAAAA{}{}", sources.uuid().simple(), sources.uuid().simple());
        self.issued.insert(id.clone(), token.clone());
        (id, token)
    }

    /// Returns the token with this id, if it has not expired.
    pub(crate) fn valid(&self, id: &str, now: Timestamp) -> Option<&Token> {
        self.issued.get(id).filter(|token| token.expires_at > now)
    }

    pub(crate) fn revoke(&mut self, id: &str) -> bool {
        self.issued.remove(id).is_some()
    }

    pub(crate) fn revoke_all(&mut self) {
        self.issued.clear();
    }
}
