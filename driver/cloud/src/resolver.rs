// SPDX-License-Identifier: Apache-2.0
//! Resolves host names for every client of the product.
//!
//! The programs are static musl binaries. `getaddrinfo` of musl ends a lookup at the first search domain that is answered with
//! SERVFAIL or REFUSED. It also fails if only one of the A and AAAA queries fails. glibc and Go continue in both cases, and so does
//! this resolver. It reads its files at every lookup and caches nothing: connections are reused, so lookups are rare.

mod error;
mod system;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::future::{Either, select};
use futures::stream::{FuturesUnordered, iter};
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RecordType};
use tokio::time::timeout;

pub use error::ResolveError;

use crate::timing::TIMING;
use error::{NameFailure, QueryFailure};
use system::{NameServer, SystemConfiguration, find_static_addresses, read_bounded};

/// The maximum number of addresses of one host. Further ones are ignored.
const ADDRESSES_MAX: usize = 32;

/// Resolves host names as `/etc/hosts` and `/etc/resolv.conf` describe. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SystemResolver {
    hosts: Arc<Path>,
    configuration: Arc<Path>,
    port: u16,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self {
            hosts: Path::new("/etc/hosts").into(),
            configuration: Path::new("/etc/resolv.conf").into(),
            port: 53,
        }
    }
}

impl SystemResolver {
    /// Resolves a host name to its addresses, IPv4 first. Ends within [`Timing::name_lookup_timeout`](crate::timing::Timing).
    pub async fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, ResolveError> {
        if let Ok(address) = host.parse() {
            return Ok(vec![address]);
        }
        let hosts = read_bounded(&self.hosts).await;
        // A container may lack the file. DNS answers then, as with glibc and musl.
        let addresses = hosts.map_or_else(|_| Vec::new(), |text| find_static_addresses(&text, host));
        if !addresses.is_empty() {
            return Ok(addresses);
        }
        let text = match read_bounded(&self.configuration).await {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(source) => {
                return Err(ResolveError::Configuration {
                    host: host.to_owned(),
                    path: self.configuration.to_path_buf(),
                    reason: source.to_string(),
                });
            }
        };
        let system = SystemConfiguration::parse(&text, self.port);
        let (first, rest) = system.names(host)?;
        let lookup = HostLookup {
            servers: system.clients(),
            ipv6: system.ipv6,
        };
        timeout(TIMING.name_lookup_timeout, lookup.search(host, first, rest))
            .await
            .unwrap_or_else(|_| Err(ResolveError::timeout(host, &system.servers)))
    }
}

impl reqwest::dns::Resolve for SystemResolver {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let resolver = self.clone();
        Box::pin(async move {
            let addresses = resolver.resolve(name.as_str()).await?;
            // The client replaces the port.
            let addresses = addresses.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as reqwest::dns::Addrs)
        })
    }
}

struct HostLookup {
    servers: Vec<NameServer>,
    ipv6: bool,
}

impl HostLookup {
    /// Resolves the first name, then the others together, so that a silent search domain costs no more time than one. An earlier
    /// name has precedence over a later one.
    async fn search(&self, host: &str, first: Option<Name>, rest: Vec<Name>) -> Result<Vec<IpAddr>, ResolveError> {
        let mut reasons = Vec::new();
        let first = iter(first).map(|name| self.resolve_name(name)).buffered(1);
        let all = rest.len().max(1);
        let rest = iter(rest).map(|name| self.resolve_name(name)).buffered(all);
        let mut results = pin!(first.chain(rest));
        while let Some(result) = results.next().await {
            match result {
                Ok(addresses) => return Ok(addresses),
                Err(reason) => reasons.push(reason),
            }
        }
        Err(ResolveError::new(host, &reasons))
    }

    /// Resolves one absolute name. IPv4 addresses suffice after a short time. IPv6 addresses alone may be of no use to this host, so
    /// they wait for the end of the A query.
    async fn resolve_name(&self, name: Name) -> Result<Vec<IpAddr>, NameFailure> {
        let ipv4 = self.query(&name, RecordType::A);
        if !self.ipv6 {
            return join_families(&name, ipv4.await, Ok(Vec::new()));
        }
        let ipv6 = self.query(&name, RecordType::AAAA);
        match select(pin!(ipv4), pin!(ipv6)).await {
            Either::Left((Ok(ipv4), ipv6)) if !ipv4.is_empty() => {
                let ipv6 = timeout(TIMING.ipv6_patience, ipv6).await;
                join_families(&name, Ok(ipv4), ipv6.unwrap_or_else(|_| Ok(Vec::new())))
            }
            Either::Left((ipv4, ipv6)) => join_families(&name, ipv4, ipv6.await),
            Either::Right((ipv6, ipv4)) => join_families(&name, ipv4.await, ipv6),
        }
    }

    /// Sends a query to the first name server, and to the next one when that fails or is slow. Returns the first answer, which may
    /// have no addresses.
    async fn query(&self, name: &Name, kind: RecordType) -> Result<Vec<IpAddr>, Vec<QueryFailure>> {
        let mut servers = self.servers.iter();
        let mut pending = FuturesUnordered::new();
        let mut failures = Vec::new();
        loop {
            pending.extend(servers.next().map(|server| query_server(server, name, kind)));
            let result = if servers.len() == 0 {
                pending.next().await
            } else {
                let Ok(result) = timeout(TIMING.name_server_patience, pending.next()).await else {
                    continue;
                };
                result
            };
            match result {
                Some(Ok(addresses)) => return Ok(addresses),
                Some(Err(failure)) => failures.push(failure),
                None if servers.len() == 0 => return Err(failures),
                None => {}
            }
        }
    }
}

type FamilyResult = Result<Vec<IpAddr>, Vec<QueryFailure>>;

fn join_families(name: &Name, one: FamilyResult, other: FamilyResult) -> Result<Vec<IpAddr>, NameFailure> {
    let (addresses, failures): (Vec<_>, Vec<_>) = [one, other].into_iter().map(split).unzip();
    let mut addresses = addresses.concat();
    addresses.sort_by_key(IpAddr::is_ipv6);
    addresses.truncate(ADDRESSES_MAX);
    if addresses.is_empty() {
        return Err(NameFailure::new(name, failures.concat()));
    }
    Ok(addresses)
}

fn split(result: FamilyResult) -> (Vec<IpAddr>, Vec<QueryFailure>) {
    match result {
        Ok(addresses) => (addresses, Vec::new()),
        Err(failures) => (Vec::new(), failures),
    }
}

async fn query_server(server: &NameServer, name: &Name, kind: RecordType) -> Result<Vec<IpAddr>, QueryFailure> {
    let failure = |reason: String| QueryFailure {
        server: server.address,
        reason,
    };
    match server.client.lookup(name.clone(), kind).await {
        Ok(found) => Ok(found
            .answers()
            .iter()
            .filter_map(|record| record.data.ip_addr())
            .collect()),
        Err(NetError::Dns(DnsError::NoRecordsFound(_))) => Ok(Vec::new()),
        Err(NetError::Dns(DnsError::ResponseCode(code))) => Err(failure(code_name(code))),
        Err(NetError::Timeout) => Err(failure("no answer".to_owned())),
        Err(error) => Err(failure(error.to_string())),
    }
}

fn code_name(code: ResponseCode) -> String {
    match code {
        ResponseCode::ServFail => "SERVFAIL".to_owned(),
        ResponseCode::Refused => "REFUSED".to_owned(),
        ResponseCode::NotImp => "NOTIMP".to_owned(),
        ResponseCode::FormErr => "FORMERR".to_owned(),
        other => other.to_str().to_owned(),
    }
}

#[cfg(test)]
mod tests;
