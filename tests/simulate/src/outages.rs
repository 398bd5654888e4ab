// SPDX-License-Identifier: Apache-2.0
//! Temporary faults of a part of a cloud.

use std::collections::BTreeSet;

use http::{Method, Request};

/// A failing part of a cloud, and the kind of failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// Affected requests.
    pub scope: Scope,
    /// Kind of failure.
    pub manner: FailureKind,
}

/// Requests that an outage affects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All requests to a service, by the first segment of its path.
    Service(&'static str),
    /// All requests about these servers, whose cell fails.
    Servers(BTreeSet<String>),
    /// Attach and detach requests of these servers, whose host does not respond.
    Hosts(BTreeSet<String>),
    /// Requests that create or extend resources in the project.
    Growth,
}

/// Kind of failure of an outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The connection is refused.
    Refused,
    /// A gateway responds with 503.
    Unavailable,
    /// The request has no effect, and no response arrives before the client's timeout.
    Hangs,
    /// Cinder responds that the project's quota is exhausted (413).
    Quota,
    /// The policy forbids the request (403).
    Policy,
}

impl Outage {
    /// Whether the outage affects a request.
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
