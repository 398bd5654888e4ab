//! The metadata service of an instance: who am I, and where.

use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

use crate::ids::ServerId;

const DOCUMENT: &str = "openstack/latest/meta_data.json";

/// What the metadata service says about this instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceMetadata {
    /// The id of the Nova server, which is the CSI node id.
    pub instance_id: ServerId,
    /// The availability zone of Nova.
    pub availability_zone: Option<String>,
    /// The name of the server.
    pub name: Option<String>,
}

/// Why the metadata service could not be used.
#[derive(Debug, Error)]
pub enum MetadataError {
    /// The HTTP client could not be made.
    #[error("the HTTP client for the metadata service cannot be made: {0}")]
    Client(String),
    /// No answer in time.
    #[error(
        "the metadata service at {url} did not answer: {reason}; is it reachable from this network namespace? Else give --instance-id"
    )]
    Request {
        /// The document asked for.
        url: String,
        /// What broke.
        reason: String,
    },
    /// An answer that is no success.
    #[error("the metadata service at {url} answered HTTP {status}")]
    Status {
        /// The document asked for.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// An answer without a server id.
    #[error("the metadata document at {url} cannot be used: {reason}")]
    Document {
        /// The document asked for.
        url: String,
        /// What is wrong with it.
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

/// Asks the metadata service once. `base_url` is `http://169.254.169.254` in a cloud. Ends within `timeout`; proxies of the
/// environment are not used, since the address is link-local. May be cancelled and repeated at will.
pub async fn instance_metadata(base_url: &str, timeout: Duration) -> Result<InstanceMetadata, MetadataError> {
    let url = format!("{}/{DOCUMENT}", base_url.trim_end_matches('/'));
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(timeout)
        .build()
        .map_err(|error| MetadataError::Client(crate::http_client::chain(&error)))?;
    let unreachable = |error: reqwest::Error| MetadataError::Request {
        url: url.clone(),
        reason: crate::http_client::chain(&error.without_url()),
    };
    let answer = client.get(&url).send().await.map_err(unreachable)?;
    if !answer.status().is_success() {
        return Err(MetadataError::Status {
            url,
            status: answer.status().as_u16(),
        });
    }
    let text = answer.text().await.map_err(unreachable)?;
    parse(&text).map_err(|reason| MetadataError::Document { url, reason })
}

fn parse(text: &str) -> Result<InstanceMetadata, String> {
    let document: MetaData = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if !document.uuid.is_uuid() {
        return Err(format!("its uuid {:?} is none", document.uuid.as_str()));
    }
    Ok(InstanceMetadata {
        instance_id: document.uuid,
        availability_zone: document.availability_zone.filter(|zone| !zone.is_empty()),
        name: document.name.filter(|name| !name.is_empty()),
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn a_document_gives_id_zone_and_name() {
        let text = r#"{"uuid":"11111111-2222-4333-8444-555555555555","availability_zone":"nova","name":"worker-1","devices":[]}"#;
        let metadata = parse(text).expect("usable");
        assert_eq!(metadata.instance_id.as_str(), "11111111-2222-4333-8444-555555555555");
        assert_eq!(metadata.availability_zone.as_deref(), Some("nova"));
        assert_eq!(metadata.name.as_deref(), Some("worker-1"));
    }

    #[rstest]
    #[case("{}", "uuid")]
    #[case(r#"{"uuid":"i-0001"}"#, "is none")]
    #[case("<html>", "expected value")]
    fn a_document_without_a_server_id_is_refused(#[case] text: &str, #[case] reason: &str) {
        assert!(parse(text).expect_err("unusable").contains(reason));
    }

    #[tokio::test]
    async fn a_service_that_does_not_answer_ends_within_the_timeout() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("port");
        let url = format!("http://{}", silent.local_addr().expect("address"));
        let error = instance_metadata(&url, Duration::from_millis(50))
            .await
            .expect_err("nobody answers");
        assert!(matches!(error, MetadataError::Request { .. }), "{error}");
    }
}
