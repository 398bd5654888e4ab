// SPDX-License-Identifier: Apache-2.0
//! The id and the zone of the current instance, from the metadata service and from documents with the same content.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{FutureExt, select_ok};

use serde::Deserialize;
use thiserror::Error;

use crate::http::body::{BodyError, read_body};
use crate::ids::ServerId;
use crate::resolver::SystemResolver;

const DOCUMENT: &str = "openstack/latest/meta_data.json";

/// The maximum size of a document.
const LARGEST: usize = 1 << 20;

/// The address of the service in a network without IPv4. It is valid on every link.
const IPV6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe);
/// A host name for that address, because a URL cannot name a link.
const IPV6_NAME: &str = "metadata.link-local";

/// The metadata of this instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceMetadata {
    /// The id of the Nova server, which is the CSI node id.
    pub instance_id: ServerId,
    /// The availability zone of Nova.
    pub availability_zone: Option<String>,
    pub name: Option<String>,
}

/// An error of the metadata service.
#[derive(Debug, Error)]
pub enum MetadataError {
    /// The HTTP client could not be created.
    #[error("the HTTP client for the metadata service cannot be made: {0}")]
    Client(String),
    /// There was no response in time.
    #[error(
        "the metadata service at {url} did not answer: {reason}; is it reachable from this network namespace? Else give --instance-id"
    )]
    Request {
        /// The URL of the document.
        url: String,
        reason: String,
    },
    /// A response with another status than success.
    #[error("the metadata service at {url} answered HTTP {status}")]
    Status {
        /// The URL of the document.
        url: String,
        status: u16,
    },
    /// A response without a server id.
    #[error("the metadata document at {url} cannot be used: {reason}")]
    Document {
        /// The URL of the document.
        url: String,
        reason: String,
    },
}

#[derive(Deserialize)]
struct MetaData {
    uuid: ServerId,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    availability_zone: Option<String>,
}

/// Gets the metadata from the metadata service with one request. `base_url` is `http://169.254.169.254` in a cloud.
/// Ends within `timeout`. Ignores the proxies of the environment, since the address is link-local. Cancel safe.
pub async fn instance_metadata(base_url: &str, timeout: Duration) -> Result<InstanceMetadata, MetadataError> {
    fetch_document(format!("{}/{DOCUMENT}", base_url.trim_end_matches('/')), None, timeout).await
}

/// A link-local IPv6 address. It is ambiguous without a network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkLocal {
    address: Ipv6Addr,
    port: u16,
    zone: Option<String>,
}

impl LinkLocal {
    /// The address of the metadata service in a network without IPv4.
    pub const WELL_KNOWN: Self = Self {
        address: IPV6,
        port: 80,
        zone: None,
    };

    /// Parses the address of a base URL such as `http://[fe80::a9fe:a9fe%eth0]:80`, with the `%` in plain form or as
    /// `%25`. `None` for any other host, which needs no interface. The request reports invalid URLs.
    pub fn of(base_url: &str) -> Option<Self> {
        let (host, port) = base_url
            .strip_prefix("http://[")?
            .trim_end_matches('/')
            .split_once(']')?;
        let (address, zone) = match host.split_once('%') {
            Some((address, zone)) => (address, Some(zone.strip_prefix("25").unwrap_or(zone).to_owned())),
            None => (host, None),
        };
        let port = match port {
            "" => 80,
            port => port.strip_prefix(':')?.parse().ok()?,
        };
        let address: Ipv6Addr = address.parse().ok()?;
        (address.is_unicast_link_local() && zone.as_deref() != Some("")).then_some(Self { address, port, zone })
    }

    /// The interface in the address, by name or number.
    pub fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }
}

/// Queries the metadata service at a link-local address on all of these interfaces (by number) at once. Returns the
/// first successful response. Ends within `timeout`. Cancel safe.
pub async fn instance_metadata_over_ipv6(
    place: &LinkLocal,
    interfaces: &[u32],
    timeout: Duration,
) -> Result<InstanceMetadata, MetadataError> {
    let addresses = interfaces
        .iter()
        .map(|&interface| SocketAddrV6::new(place.address, place.port, 0, interface));
    over_ipv6(addresses, timeout).await
}

async fn over_ipv6(
    addresses: impl Iterator<Item = SocketAddrV6>,
    timeout: Duration,
) -> Result<InstanceMetadata, MetadataError> {
    let requests: Vec<_> = addresses
        .map(|address| {
            let url = format!("http://{IPV6_NAME}:{}/{DOCUMENT}", address.port());
            fetch_document(url, Some(address), timeout).boxed()
        })
        .collect();
    if requests.is_empty() {
        return Err(MetadataError::Request {
            url: format!("http://[{IPV6}]/{DOCUMENT}"),
            reason: "no network interface of a physical or virtio device is up".into(),
        });
    }
    select_ok(requests).await.map(|(metadata, _)| metadata)
}

async fn fetch_document(
    url: String,
    address: Option<SocketAddrV6>,
    timeout: Duration,
) -> Result<InstanceMetadata, MetadataError> {
    let mut client = reqwest::Client::builder()
        .no_proxy()
        .timeout(timeout)
        .dns_resolver(Arc::new(SystemResolver::default()));
    if url.starts_with("http://") {
        // Loading the CA certificates of the system is slow, and the service has no TLS.
        client = client.tls_built_in_root_certs(false);
    }
    let mut host = None;
    if let Some(address) = address {
        client = client.resolve(IPV6_NAME, SocketAddr::V6(address));
        host = Some(format!("[{}]", address.ip()));
    }
    let client = client
        .build()
        .map_err(|error| MetadataError::Client(crate::http::client::chain(&error)))?;
    // Errors name the address with its link instead of the internal host name.
    let shown_url = match address {
        Some(address) => format!("http://{address}/{DOCUMENT}"),
        None => url.clone(),
    };
    let unreachable = |error: reqwest::Error| MetadataError::Request {
        url: shown_url.clone(),
        reason: crate::http::client::chain(&error.without_url()),
    };
    let mut request = client.get(&url);
    if let Some(host) = host {
        request = request.header(reqwest::header::HOST, host);
    }
    let response = request.send().await.map_err(unreachable)?;
    if !response.status().is_success() {
        return Err(MetadataError::Status {
            url: shown_url,
            status: response.status().as_u16(),
        });
    }
    let text = match read_body(response, LARGEST).await {
        Ok(text) => text,
        Err(BodyError::Broken(error)) => return Err(unreachable(error)),
        Err(error @ BodyError::TooLarge { .. }) => {
            return Err(MetadataError::Document {
                url: shown_url,
                reason: error.to_string(),
            });
        }
    };
    InstanceMetadata::from_document(&text).map_err(|reason| MetadataError::Document { url: shown_url, reason })
}

/// The part of cloud-init's `instance-data.json` that describes the instance.
#[derive(Deserialize)]
struct InstanceData {
    v1: StandardData,
}

#[derive(Deserialize)]
struct StandardData {
    #[serde(default)]
    cloud_name: String,
    instance_id: ServerId,
    #[serde(default)]
    availability_zone: Option<String>,
    #[serde(default)]
    local_hostname: Option<String>,
}

impl InstanceMetadata {
    /// Parses `meta_data.json` of the metadata service or the config drive. The error is the reason as text.
    pub fn from_document(text: &[u8]) -> Result<Self, String> {
        let document: MetaData = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        Self::new(document.uuid, document.availability_zone, document.name)
    }

    /// Parses cloud-init's `instance-data.json`, if cloud-init ran on OpenStack. The error is the reason as text.
    pub fn from_cloud_init(text: &[u8]) -> Result<Self, String> {
        let InstanceData { v1 } = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if !v1.cloud_name.eq_ignore_ascii_case("openstack") {
            return Err(format!("its cloud is {:?} and not openstack", v1.cloud_name));
        }
        Self::new(v1.instance_id, v1.availability_zone, v1.local_hostname)
    }

    fn new(uuid: ServerId, zone: Option<String>, name: Option<String>) -> Result<Self, String> {
        if !uuid.is_uuid() {
            return Err(format!("its uuid {:?} is none", uuid.as_str()));
        }
        Ok(Self {
            instance_id: uuid,
            availability_zone: zone.filter(|zone| !zone.is_empty()),
            name: name.filter(|name| !name.is_empty()),
        })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn document_has_id_zone_and_name() {
        let text = r#"{"uuid":"11111111-2222-4333-8444-555555555555","availability_zone":"nova","name":"worker-1","devices":[]}"#;
        let metadata = InstanceMetadata::from_document(text.as_bytes()).expect("usable");
        assert_eq!(metadata.instance_id.as_str(), "11111111-2222-4333-8444-555555555555");
        assert_eq!(metadata.availability_zone.as_deref(), Some("nova"));
        assert_eq!(metadata.name.as_deref(), Some("worker-1"));
    }

    #[rstest]
    #[case("{}", "uuid")]
    #[case(r#"{"uuid":"i-0001"}"#, "is none")]
    #[case("<html>", "expected value")]
    fn document_without_server_id_is_refused(#[case] text: &str, #[case] reason: &str) {
        let refused = InstanceMetadata::from_document(text.as_bytes()).expect_err("unusable");
        assert!(refused.contains(reason), "{refused}");
    }

    #[tokio::test]
    async fn silent_metadata_service_ends_within_timeout() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("port");
        let url = format!("http://{}", silent.local_addr().expect("address"));
        let error = instance_metadata(&url, Duration::from_millis(50))
            .await
            .expect_err("nobody answers");
        assert!(matches!(error, MetadataError::Request { .. }), "{error}");
    }

    #[test]
    fn cloud_init_document_counts_only_on_openstack() {
        let data = |cloud: &str| {
            format!(
                r#"{{"v1":{{"cloud_name":"{cloud}","instance_id":"11111111-2222-4333-8444-555555555555","availability_zone":"nova","region":null}},"ds":{{}}}}"#
            )
        };
        let metadata = InstanceMetadata::from_cloud_init(data("openstack").as_bytes()).expect("usable");
        assert_eq!(metadata.instance_id.as_str(), "11111111-2222-4333-8444-555555555555");
        assert_eq!(metadata.availability_zone.as_deref(), Some("nova"));
        let refused = InstanceMetadata::from_cloud_init(data("aws").as_bytes()).expect_err("another cloud's ids");
        assert!(refused.contains("aws"), "{refused}");
    }

    /// Answers one request with `body`. Returns the request.
    async fn serve_once(listener: tokio::net::TcpListener, body: &str) -> String {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut stream, _) = listener.accept().await.expect("somebody asks");
        let mut request = vec![0; 4096];
        let length = stream.read(&mut request).await.expect("it is sent");
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.expect("it is read");
        String::from_utf8_lossy(request.get(..length).unwrap_or_default()).into_owned()
    }

    #[tokio::test]
    async fn first_successful_ipv6_link_wins() {
        let Ok(listener) = tokio::net::TcpListener::bind("[::1]:0").await else {
            // The kernel has no IPv6.
            return;
        };
        let SocketAddr::V6(address) = listener.local_addr().expect("address") else {
            return;
        };
        let body = r#"{"uuid":"11111111-2222-4333-8444-555555555555","availability_zone":"nova"}"#;
        // Port 1 has no listener.
        let nobody = SocketAddrV6::new(*address.ip(), 1, 0, 0);
        let (metadata, asked) = tokio::join!(
            over_ipv6([nobody, address].into_iter(), Duration::from_secs(10)),
            serve_once(listener, body)
        );
        assert_eq!(
            metadata.expect("one answers").availability_zone.as_deref(),
            Some("nova")
        );
        assert!(asked.starts_with("GET /openstack/latest/meta_data.json "), "{asked}");
        assert!(asked.to_lowercase().contains("host: [::1]"), "{asked}");
        let error = instance_metadata_over_ipv6(&LinkLocal::WELL_KNOWN, &[], Duration::from_secs(1)).await;
        assert!(matches!(error, Err(MetadataError::Request { .. })));
    }

    #[rstest::rstest]
    #[case("http://[fe80::a9fe:a9fe%eth0]", "fe80::a9fe:a9fe", 80, Some("eth0"))]
    #[case("http://[fe80::a9fe:a9fe%25eth0]:8775/", "fe80::a9fe:a9fe", 8775, Some("eth0"))]
    #[case("http://[fe80::1%2]", "fe80::1", 80, Some("2"))]
    #[case("http://[fe80::a9fe:a9fe]/", "fe80::a9fe:a9fe", 80, None)]
    fn link_local_address_is_parsed_with_interface(
        #[case] url: &str,
        #[case] address: &str,
        #[case] port: u16,
        #[case] zone: Option<&str>,
    ) {
        let found = LinkLocal::of(url).expect("it is one");
        assert_eq!(
            (found.address.to_string().as_str(), found.port, found.zone()),
            (address, port, zone)
        );
    }

    #[rstest::rstest]
    #[case("http://169.254.169.254")]
    #[case("http://[2001:db8::1]")]
    #[case("http://metadata.example")]
    #[case("http://[fe80::1%]")]
    #[case("http://[fe80::1%eth0]:none")]
    #[case("http://[fe80::1%eth0")]
    fn other_addresses_are_not_link_local(#[case] url: &str) {
        assert_eq!(LinkLocal::of(url), None);
    }
}
