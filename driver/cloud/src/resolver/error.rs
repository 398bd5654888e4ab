// SPDX-License-Identifier: Apache-2.0
//! Reasons why a host name was not resolved.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;

use hickory_resolver::proto::rr::Name;
use thiserror::Error;

/// Names that an error lists; a host may have dozens of search domains.
const NAMES_SHOWN: usize = 6;

/// A host name that was not resolved.
#[derive(Debug, Clone, Error)]
pub enum ResolveError {
    /// The host name is longer or has other characters than DNS permits.
    #[error("host name {host:?} is invalid: {reason}")]
    Name { host: String, reason: String },
    /// The configuration of the resolver cannot be read.
    #[error("cannot resolve host {host}: {}: {reason}", .path.display())]
    Configuration {
        host: String,
        path: PathBuf,
        reason: String,
    },
    /// Name servers answered, and none of them knows an address.
    #[error(
        "cannot resolve host {host}: the name servers know no address for {names}; check the spelling of the host name and the \
         records of the name servers in /etc/resolv.conf"
    )]
    NoAddress {
        host: String,
        /// The names that were queried.
        names: String,
    },
    /// Name servers failed or did not answer.
    #[error(
        "cannot resolve host {host}: {reasons}; check the name servers and search domains of /etc/resolv.conf (in a pod, those of \
         the cluster's DNS and of the servers that it forwards to)"
    )]
    Failed {
        host: String,
        /// The answers to each name.
        reasons: String,
    },
}

/// A query that a name server did not answer with records or with their absence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueryFailure {
    pub(super) server: IpAddr,
    pub(super) reason: String,
}

/// Why one name has no address. Without failures the name servers know no address.
#[derive(Debug)]
pub(super) struct NameFailure {
    name: String,
    failures: Vec<QueryFailure>,
}

impl NameFailure {
    pub(super) fn new(name: &Name, mut failures: Vec<QueryFailure>) -> Self {
        // The A and the AAAA query mostly fail in the same way.
        failures.sort_by_key(|failure| failure.server);
        failures.dedup();
        Self {
            name: name.to_ascii().trim_end_matches('.').to_owned(),
            failures,
        }
    }

    fn text(&self) -> String {
        if self.failures.is_empty() {
            return format!("{}: no address", self.name);
        }
        let failures: Vec<String> = self
            .failures
            .iter()
            .map(|failure| format!("{} from name server {}", failure.reason, failure.server))
            .collect();
        format!("{}: {}", self.name, failures.join(", "))
    }
}

impl ResolveError {
    pub(super) fn new(host: &str, reasons: &[NameFailure]) -> Self {
        let host = host.to_owned();
        if reasons.iter().all(|reason| reason.failures.is_empty()) {
            let names = list(reasons.iter().map(|reason| reason.name.clone()), ", ");
            return Self::NoAddress { host, names };
        }
        // Failures are the cause more probably than names without an address, so they come first.
        let (failed, unknown): (Vec<_>, Vec<_>) = reasons.iter().partition(|reason| !reason.failures.is_empty());
        let reasons = list(failed.into_iter().chain(unknown).map(NameFailure::text), "; ");
        Self::Failed { host, reasons }
    }

    pub(super) fn timeout(host: &str, servers: &[IpAddr]) -> Self {
        let servers = list(servers.iter().map(ToString::to_string), ", ");
        Self::Failed {
            host: host.to_owned(),
            reasons: format!("no answer in time from name servers {servers}"),
        }
    }
}

fn list(items: impl Iterator<Item = String>, separator: &str) -> String {
    let mut items: Vec<String> = items.collect();
    let more = items.len().saturating_sub(NAMES_SHOWN);
    items.truncate(NAMES_SHOWN);
    let mut text = items.join(separator);
    if more > 0 {
        let _ = write!(text, "{separator}and {more} more");
    }
    text
}
