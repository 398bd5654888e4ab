// SPDX-License-Identifier: Apache-2.0
//! Responses of OpenStack. Checks that any responses of Keystone, Cinder and Nova lead to a result or an error. The
//! client must never use a token of another project.
//!
//! An input consists of three bodies, separated by `\u{1e}`: the token with its catalog, the version documents, and all
//! other responses.

use std::sync::Arc;

use bytes::Bytes;
use cinder_cloud::{
    Cloud, CloudConfig, CloudError, CloudOptions, CloudService, Connect, HttpClient, SendError, ServerId, VolumeId,
};
use csi_sources::Sources;
use futures::future::{self, BoxFuture};
use http::{Request, Response};

use crate::{Target, texts};

const BETWEEN: u8 = 0x1E;
const VOLUME: &str = "11111111-2222-4333-8444-555555555555";
const CONFIG: &str =
    "[Global]\nauth-url = https://keystone.example.org\nusername = u\npassword = p\ntenant-name = t\ndomain-name = d\n";
const TOKEN: &str = r#"{"token":{"issued_at":"2026-01-01T00:00:00.000000Z","expires_at":"2026-01-01T01:00:00.000000Z","user":{"id":"u","name":"n"},"project":{"id":"p","name":"t"},"catalog":[{"type":"block-storage","endpoints":[{"interface":"public","url":"https://cinder.example.org/v3","region":"R","region_id":"R"}]},{"type":"compute","endpoints":[{"interface":"public","url":"https://nova.example.org/v2.1","region_id":"R"}]}]}}"#;
const VERSIONS: &str = r#"{"version":{"id":"v2.1","status":"CURRENT","version":"2.96","min_version":"2.1"},"versions":[{"id":"v3.0","status":"CURRENT","version":"3.71","min_version":"3.0"}]}"#;
const VOLUMES: &str = r#"{"volume":{"id":"11111111-2222-4333-8444-555555555555","name":"pvc-1","status":"in-use","size":1,"availability_zone":"nova","bootable":"false","multiattach":false,"volume_type":"fast","encrypted":false,"metadata":{"a":"b"},"attachments":[{"server_id":"22222222-2222-4333-8444-555555555555","attachment_id":"3","device":"/dev/vdb"}],"created_at":"2026-01-01T00:00:00.000000","snapshot_id":null,"source_volid":null},"volumes":[{"id":"11111111-2222-4333-8444-555555555555","status":"available","size":1}],"volumes_links":[{"rel":"next","href":"https://cinder.example.org/v3/volumes?marker=x"}],"server":{"id":"11111111-2222-4333-8444-555555555555","status":"ACTIVE","OS-EXT-AZ:availability_zone":"nova","OS-EXT-STS:vm_state":"active"},"availabilityZoneInfo":[{"zoneName":"nova","zoneState":{"available":true}}],"quota_set":{"volumes":{"limit":-1,"in_use":1,"reserved":0}},"snapshots":[],"backups":[]}"#;

pub(crate) const TARGET: Target = Target {
    name: "openstack",
    seeds: || {
        let join = |parts: [&str; 3]| parts.join("\u{1e}");
        texts(&[
            &join([TOKEN, VERSIONS, VOLUMES]),
            &join([TOKEN, VERSIONS, "{}"]),
            &join([TOKEN, "{\"versions\":[]}", "<html>"]),
        ])
    },
    words: &[
        "\u{1e}",
        "{",
        "}",
        "[",
        "]",
        "null",
        "-1",
        "1e999",
        "18446744073709551616",
        "\"\"",
        "\"status\":",
        "\"in-use\"",
        "\"error_deleting\"",
        "\"size\":",
        "\"9999-12-31T23:59:59Z\"",
        "\"url\":\"http://[::1]:0/\",",
        "https://",
        "/v3/%(project_id)s",
        "v2.",
        "\"version\":\"99999999999.1\"",
        "\"metadata\":null,",
        "\"attachments\":[",
        "\\ud800",
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    ],
    eat,
};

fn eat(bytes: &[u8]) {
    let mut bodies = bytes.split(|byte| *byte == BETWEEN).map(Bytes::copy_from_slice);
    let mut next = || bodies.next().unwrap_or_default();
    let cloud = AnsweringCloud {
        token: next(),
        versions: next(),
        others: next(),
    };
    let options = CloudOptions {
        connector: Arc::new(cloud),
        sources: Sources::system(),
        ..CloudOptions::default()
    };
    let Ok(config) = CloudConfig::from_cloud_conf(CONFIG) else {
        return;
    };
    // With paused time, waits between retries end immediately.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
    runtime.block_on(use_cloud(config, options));
}

async fn use_cloud(config: CloudConfig, options: CloudOptions) {
    let Ok(cloud) = Cloud::new(config, options) else { return };
    let Ok(login) = cloud.login().await else { return };
    let volume = VolumeId::from(VOLUME);
    if let Ok(Some(found)) = cloud.volume(&volume).await {
        check_id(found.id.as_str());
    }
    if let Ok(Some(found)) = cloud.server(&ServerId::from(VOLUME)).await {
        check_id(found.id.as_str());
    }
    drop(cloud.map_volumes(Some).await);
    drop(cloud.map_snapshots(Some(&volume), Some).await);
    drop(cloud.map_backups(None, Some).await);
    drop(cloud.quotas().await);
    drop(cloud.volume_zones().await);
    drop(cloud.compute_zones().await);
    drop(cloud.try_list(CloudService::BlockStorage).await);
    drop(cloud.application_credential().await);
    if let Ok(again) = cloud.login().await {
        assert_eq!(again.project_id, login.project_id, "a token of another project is used");
    }
}

fn check_id(returned: &str) {
    let is_requested = returned.eq_ignore_ascii_case(VOLUME);
    assert!(is_requested, "{returned:?} is taken for the requested resource");
}

/// A cloud with one fixed response per kind of request.
#[derive(Debug, Clone)]
struct AnsweringCloud {
    token: Bytes,
    versions: Bytes,
    others: Bytes,
}

impl Connect for AnsweringCloud {
    fn connect(&self, _: &CloudConfig, _: &CloudOptions) -> Result<Arc<dyn HttpClient>, CloudError> {
        Ok(Arc::new(self.clone()))
    }
}

impl HttpClient for AnsweringCloud {
    fn send(&self, request: Request<Bytes>, _limit: usize) -> BoxFuture<'_, Result<Response<Bytes>, SendError>> {
        let path = request.uri().path().trim_end_matches('/');
        let (status, body) = match path {
            path if path.ends_with("/auth/tokens") => (201, &self.token),
            "" | "/v3" | "/v2.1" => (200, &self.versions),
            _ => (200, &self.others),
        };
        let answer = Response::builder().status(status).header("x-subject-token", "secret");
        let answer = answer.body(body.clone()).map_err(|error| SendError::NoAnswer {
            sent: true,
            reason: error.to_string(),
        });
        Box::pin(future::ready(answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn valid_input_is_a_cloud_with_volume() {
        let cloud = AnsweringCloud {
            token: Bytes::from_static(TOKEN.as_bytes()),
            versions: Bytes::from_static(VERSIONS.as_bytes()),
            others: Bytes::from_static(VOLUMES.as_bytes()),
        };
        let options = CloudOptions {
            connector: Arc::new(cloud),
            ..CloudOptions::default()
        };
        let config = CloudConfig::from_cloud_conf(CONFIG).expect("a configuration");
        let cloud = Cloud::new(config, options).expect("a cloud");
        assert_eq!(cloud.login().await.expect("a login").project_id, "p");
        let volume = cloud.volume(&VolumeId::from(VOLUME)).await.expect("an answer");
        assert!(volume.is_some());
        assert!(cloud.server(&ServerId::from(VOLUME)).await.is_ok());
        // The next page links to itself, so the list never ends.
        let error = cloud.map_volumes(Some).await.expect_err("no end of the list");
        assert!(error.to_string().contains("next page"), "{error}");
        assert!(cloud.quotas().await.is_ok());
        assert_eq!(cloud.volume_zones().await.expect("zones"), ["nova"]);
    }
}
