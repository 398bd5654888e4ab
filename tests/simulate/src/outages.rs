// SPDX-License-Identifier: Apache-2.0
//! Faults that last for a while and concern one part of a cloud.

use std::collections::BTreeSet;

use http::{Method, Request};

/// A part of a cloud that fails, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// The requests that it meets.
    pub scope: Scope,
    /// What happens to them.
    pub manner: Manner,
}

/// The requests of an outage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All requests to a service, by the first segment of its path.
    Service(&'static str),
    /// All requests about these servers: the cell that has them.
    Servers(BTreeSet<String>),
    /// Attachments and detachments of these servers: their host does not answer Nova's API.
    Hosts(BTreeSet<String>),
    /// Requests that create or extend something in the project.
    Growth,
}

/// What happens to the requests of an outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// No connection.
    Refused,
    /// A gateway answers 503.
    Unavailable,
    /// The request has no effect, and no answer comes until the client gives up.
    Hangs,
    /// The project's quota is exhausted: 413 of Cinder.
    Quota,
    /// The policy forbids it: 403.
    Policy,
}

impl Outage {
    /// Whether it meets a request.
    pub fn meets(&self, request: &Request<bytes::Bytes>) -> bool {
        let path = request.uri().path();
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let of_servers = |servers: &BTreeSet<String>| servers.iter().any(|server| path.contains(server.as_str()));
        match &self.scope {
            Scope::Service(service) => path.trim_start_matches('/').split('/').next() == Some(service),
            Scope::Servers(servers) => of_servers(servers),
            Scope::Hosts(servers) => !is_read && of_servers(servers),
            Scope::Growth => is_growth(request),
        }
    }
}

/// Whether a request to Cinder needs quota: it creates a volume, a snapshot or a backup, or extends a volume.
pub fn is_growth(request: &Request<bytes::Bytes>) -> bool {
    let path = request.uri().path();
    let creates = ["/volumes", "/snapshots", "/backups"]
        .iter()
        .any(|end| path.ends_with(end));
    let extends = path.ends_with("/action") && request.body().windows(9).any(|part| part == b"os-extend");
    *request.method() == Method::POST && path.starts_with("/volume/") && (creates || extends)
}
