// SPDX-License-Identifier: Apache-2.0
//! Addresses in the format of the flags of CSI drivers.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;
use tokio::net::{TcpListener, lookup_host};

/// Reasons why an address is invalid.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum EndpointError {
    /// The scheme is missing or unknown.
    #[error("endpoint {0:?} has no scheme: write unix:///path/to.sock or tcp://host:port")]
    Scheme(String),
    /// The text after the scheme is empty.
    #[error("endpoint {0:?} ends after its scheme: write unix:///path/to.sock or tcp://host:port")]
    Empty(String),
    /// The port is missing, or is not a number below 65536.
    #[error(
        "address {0:?} has no port: write host:port, or :port for all addresses of this machine; the port is a number up to 65535"
    )]
    Port(String),
    /// An IPv6 address without brackets, or brackets around another text.
    #[error("address {0:?} has a host that cannot be read: write an IPv6 address in brackets, such as [::1]:8080")]
    Host(String),
}

/// Address of a gRPC server: `unix:///path` or `tcp://host:port`, as in `--endpoint` of the Go driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Absolute path of a unix socket.
    Unix(PathBuf),
    Tcp(TcpAddress),
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    /// Parses an address. The scheme is case-insensitive. The path of a unix socket is absolute even without the third
    /// slash: `unix://csi/csi.sock` is `/csi/csi.sock`, as in the Go driver.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| EndpointError::Scheme(text.to_owned()))?;
        let unix = scheme.eq_ignore_ascii_case("unix");
        if !unix && !scheme.eq_ignore_ascii_case("tcp") {
            return Err(EndpointError::Scheme(text.to_owned()));
        }
        if rest.trim_start_matches('/').is_empty() {
            return Err(EndpointError::Empty(text.to_owned()));
        }
        if unix {
            return Ok(Self::Unix(PathBuf::from(format!("/{}", rest.trim_start_matches('/')))));
        }
        rest.parse().map(Self::Tcp)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

/// A TCP address to listen on: `host:port`, or `:port` for every address of this machine, IPv6 and IPv4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpAddress {
    /// Empty for every address of this machine.
    host: String,
    port: u16,
}

impl TcpAddress {
    /// Returns the port. The kernel chooses one for port 0.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Listens on the address. Resolves a name, and uses the first of its addresses that works.
    pub async fn bind(&self) -> io::Result<TcpListener> {
        self.bind_any()
            .await
            .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {self}: {error}")))
    }

    async fn bind_any(&self) -> io::Result<TcpListener> {
        if !self.host.is_empty() {
            let addresses: Vec<SocketAddr> = lookup_host((self.host.as_str(), self.port)).await?.collect();
            return TcpListener::bind(addresses.as_slice()).await;
        }
        match TcpListener::bind((IpAddr::V6(Ipv6Addr::UNSPECIFIED), self.port)).await {
            // This machine or network namespace has no IPv6.
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                TcpListener::bind((IpAddr::V4(Ipv4Addr::UNSPECIFIED), self.port)).await
            }
            bound => bound,
        }
    }
}

impl FromStr for TcpAddress {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, port) = text
            .rsplit_once(':')
            .ok_or_else(|| EndpointError::Port(text.to_owned()))?;
        let port = port
            .parse()
            .map_err(|_no_number| EndpointError::Port(text.to_owned()))?;
        let bad_host = || EndpointError::Host(text.to_owned());
        let host = match host.strip_prefix('[') {
            Some(bracketed) => {
                let address = bracketed.strip_suffix(']').ok_or_else(bad_host)?;
                address.parse::<Ipv6Addr>().map_err(|_no_address| bad_host())?;
                address
            }
            None if host.contains([':', ']', '/', ' ']) => return Err(bad_host()),
            None => host,
        };
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }
}

impl From<SocketAddr> for TcpAddress {
    fn from(address: SocketAddr) -> Self {
        Self {
            host: address.ip().to_string(),
            port: address.port(),
        }
    }
}

impl fmt::Display for TcpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::three_slashes("unix:///csi/csi.sock", "/csi/csi.sock")]
    #[case::two_slashes_like_go_driver("unix://csi/csi.sock", "/csi/csi.sock")]
    #[case::four_slashes("unix:////csi/csi.sock", "/csi/csi.sock")]
    #[case::scheme_in_capitals("UNIX:///csi.sock", "/csi.sock")]
    fn unix_endpoint_is_an_absolute_path(#[case] text: &str, #[case] path: &str) {
        assert_eq!(
            text.parse::<Endpoint>(),
            Ok(Endpoint::Unix(Path::new(path).to_path_buf()))
        );
    }

    #[rstest]
    #[case("/csi/csi.sock")]
    #[case("unix:/csi/csi.sock")]
    #[case("http://127.0.0.1:80")]
    #[case("")]
    fn refuses_endpoint_without_known_scheme(#[case] text: &str) {
        assert_eq!(text.parse::<Endpoint>(), Err(EndpointError::Scheme(text.to_owned())));
    }

    #[rstest]
    #[case("unix://")]
    #[case("unix:///")]
    #[case("tcp://")]
    fn refuses_endpoint_without_address(#[case] text: &str) {
        assert_eq!(text.parse::<Endpoint>(), Err(EndpointError::Empty(text.to_owned())));
    }

    #[rstest]
    #[case::all_addresses(":9810")]
    #[case::all_ipv4("0.0.0.0:9810")]
    #[case::all_ipv6("[::]:9810")]
    #[case::name("localhost:10000")]
    #[case::free_port("127.0.0.1:0")]
    fn displays_tcp_address_unchanged(#[case] text: &str) {
        assert_eq!(text.parse::<TcpAddress>().expect("is an address").to_string(), text);
        assert_eq!(
            format!("tcp://{text}").parse::<Endpoint>().expect("is one").to_string(),
            format!("tcp://{text}")
        );
    }

    #[rstest]
    #[case::no_port("localhost")]
    #[case::empty_port("localhost:")]
    #[case::name_of_a_port("localhost:http")]
    #[case::too_large(":65536")]
    fn refuses_address_without_port(#[case] text: &str) {
        assert_eq!(text.parse::<TcpAddress>(), Err(EndpointError::Port(text.to_owned())));
    }

    #[rstest]
    #[case("::1:80")]
    #[case("[::1:80")]
    #[case("[localhost]:80")]
    fn refuses_address_with_invalid_host(#[case] text: &str) {
        assert_eq!(text.parse::<TcpAddress>(), Err(EndpointError::Host(text.to_owned())));
    }

    #[tokio::test]
    async fn address_without_host_serves_ipv4() {
        let listener = ":0"
            .parse::<TcpAddress>()
            .expect("is an address")
            .bind()
            .await
            .expect("binds");
        let port = listener.local_addr().expect("has an address").port();
        let (client, server) = tokio::join!(tokio::net::TcpStream::connect(("127.0.0.1", port)), listener.accept());
        assert!(client.is_ok() && server.is_ok());
    }

    #[tokio::test]
    async fn bind_error_names_address_in_use() {
        let first = "127.0.0.1:0"
            .parse::<TcpAddress>()
            .expect("is an address")
            .bind()
            .await
            .expect("binds");
        let address = TcpAddress::from(first.local_addr().expect("has an address"));
        let error = address.bind().await.expect_err("is taken").to_string();
        assert!(
            error.contains(&address.to_string()) && error.contains("in use"),
            "{error}"
        );
    }
}
