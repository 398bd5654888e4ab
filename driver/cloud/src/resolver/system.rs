// SPDX-License-Identifier: Apache-2.0
//! Reads `/etc/hosts` and `/etc/resolv.conf`.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::Name;
use tokio::io::AsyncReadExt as _;

use super::error::ResolveError;
use crate::timing::TIMING;

/// The files have a few lines; a longer one is read this far.
const FILE_MAX: u64 = 256 * 1024;
/// glibc and musl use as many name servers.
const SERVERS_MAX: usize = 3;
/// Kubernetes permits as many search domains.
const SEARCH_MAX: usize = 32;

/// A client of one name server. `hickory-resolver` does not pass a query on to the next name server after SERVFAIL or REFUSED, so
/// each has its own client.
pub(super) struct NameServer {
    pub(super) address: IpAddr,
    pub(super) client: TokioResolver,
}

pub(super) async fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let file = tokio::fs::File::open(path).await?;
    file.take(FILE_MAX).read_to_end(&mut text).await?;
    Ok(text)
}

/// The addresses of a host in the text of `/etc/hosts`.
pub(super) fn find_static_addresses(text: &[u8], host: &str) -> Vec<IpAddr> {
    let host = host.trim_end_matches('.');
    let text = String::from_utf8_lossy(text);
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let mut addresses: Vec<IpAddr> = lines
        .filter_map(|line| {
            let (address, mut names) = line
                .trim()
                .split_once(char::is_whitespace)
                .map(|(address, names)| (address, names.split_whitespace()))?;
            let same_host = names.any(|name| name.trim_end_matches('.').eq_ignore_ascii_case(host));
            address.parse().ok().filter(|_| same_host)
        })
        .collect();
    addresses.sort_by_key(IpAddr::is_ipv6);
    addresses
}

/// The configuration in `/etc/resolv.conf`.
pub(super) struct SystemConfiguration {
    pub(super) servers: Vec<IpAddr>,
    /// Whether AAAA records are queried.
    pub(super) ipv6: bool,
    search: Vec<String>,
    ndots: usize,
    query_timeout: Duration,
    tcp_only: bool,
    port: u16,
}

impl SystemConfiguration {
    /// Ignores lines that it cannot read, as libc does.
    pub(super) fn parse(text: &[u8], port: u16) -> Self {
        let (parsed, _) = resolv_conf::Config::parse_with_errors(text);
        let mut servers: Vec<IpAddr> = parsed.nameservers.iter().map(IpAddr::from).collect();
        servers.dedup();
        servers.truncate(SERVERS_MAX);
        if servers.is_empty() {
            servers.push(Ipv4Addr::LOCALHOST.into());
        }
        let configured = Duration::from_secs(u64::from(parsed.timeout.max(1)));
        Self {
            servers,
            ipv6: !parsed.no_aaaa,
            search: parsed.get_last_search_or_domain().take(SEARCH_MAX).cloned().collect(),
            ndots: usize::try_from(parsed.ndots).unwrap_or(usize::MAX),
            query_timeout: configured.min(TIMING.name_query_timeout),
            tcp_only: parsed.use_vc,
            port,
        }
    }

    /// The absolute names that a host name may mean. The first one, if any, is resolved before the others.
    pub(super) fn names(&self, host: &str) -> Result<(Option<Name>, Vec<Name>), ResolveError> {
        let relative = host.trim_end_matches('.');
        let absolute = |text: String| Name::from_ascii(text);
        let invalid = |reason: String| ResolveError::Name {
            host: host.to_owned(),
            reason,
        };
        if relative.is_empty() {
            return Err(invalid("it is empty".to_owned()));
        }
        let as_is = absolute(format!("{relative}.")).map_err(|error| invalid(error.to_string()))?;
        let local = relative.eq_ignore_ascii_case("localhost") || relative.to_ascii_lowercase().ends_with(".localhost");
        if host.ends_with('.') || local {
            return Ok((Some(as_is), Vec::new()));
        }
        // A domain that makes the name too long cannot have it.
        let searched = self.search.iter().filter_map(|domain| {
            let domain = domain.trim_matches('.');
            absolute(format!("{relative}.{domain}."))
                .ok()
                .filter(|_| !domain.is_empty())
        });
        let mut names: Vec<Name> = Vec::new();
        for name in searched {
            if name != as_is && !names.contains(&name) {
                names.push(name);
            }
        }
        if relative.matches('.').count() >= self.ndots {
            return Ok((Some(as_is), names));
        }
        names.push(as_is);
        Ok((None, names))
    }

    /// A client of each name server.
    pub(super) fn clients(&self) -> Vec<NameServer> {
        self.servers
            .iter()
            .filter_map(|&address| {
                let mut server = if self.tcp_only {
                    NameServerConfig::tcp(address)
                } else {
                    NameServerConfig::udp_and_tcp(address)
                };
                for connection in &mut server.connections {
                    connection.port = self.port;
                }
                let config = ResolverConfig::from_name_servers(vec![server]);
                let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
                *builder.options_mut() = self.options();
                // An error concerns TLS, which no name server here uses.
                let client = builder.build().ok()?;
                Some(NameServer { address, client })
            })
            .collect()
    }

    fn options(&self) -> ResolverOpts {
        let mut options = ResolverOpts::default();
        options.timeout = self.query_timeout;
        // UDP queries are repeated within the timeout.
        options.attempts = 0;
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Never;
        options.num_concurrent_reqs = 1;
        options.edns0 = false;
        // A port of the kernel's range belongs to no service of this host.
        options.os_port_selection = true;
        options
    }
}
