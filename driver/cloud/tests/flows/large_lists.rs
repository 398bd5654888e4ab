// SPDX-License-Identifier: Apache-2.0
//! Lists of large projects, and endless lists of hostile services.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use cinder_cloud::{Cloud, CloudConfig, CloudError, CloudOptions, Connect, HttpClient, SendError, Snapshot, Volume};
use futures::future::BoxFuture;
use http::{Request, Response};
use sim_network::SimNetwork;

use crate::support::{Stage, stage};

/// The items in a page.
const PAGE: usize = 1_000;

/// A cloud with generated lists of volumes, snapshots, backups and servers.
#[derive(Debug, Clone)]
struct GeneratedLists {
    /// The number of items in a list.
    total: usize,
    /// The length of a value of metadata, of which each item has five.
    value: usize,
    /// The bytes of all pages.
    sent: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct ListNetwork(SimNetwork, GeneratedLists);

#[derive(Debug)]
struct ListClient(Arc<dyn HttpClient>, GeneratedLists);

impl Connect for ListNetwork {
    fn connect(&self, config: &CloudConfig, options: &CloudOptions) -> Result<Arc<dyn HttpClient>, CloudError> {
        Ok(Arc::new(ListClient(self.0.connect(config, options)?, self.1.clone())))
    }
}

impl HttpClient for ListClient {
    fn send(&self, request: Request<Bytes>, limit: usize) -> BoxFuture<'_, Result<Response<Bytes>, SendError>> {
        let path = request.uri().path().to_owned();
        let Some(kind) = path.strip_suffix("/detail").and_then(|path| path.rsplit('/').next()) else {
            return self.0.send(request, limit);
        };
        let query = request.uri().query().unwrap_or_default().to_owned();
        let body = self.1.page(kind, &query);
        assert!(body.len() <= limit, "{} bytes", body.len());
        self.1.sent.fetch_add(body.len(), Ordering::Relaxed);
        Box::pin(async move { Ok(Response::new(Bytes::from(body))) })
    }
}

impl GeneratedLists {
    fn new(total: usize, value: usize) -> Self {
        Self {
            total,
            value,
            sent: Arc::default(),
        }
    }

    fn cloud(&self, stage: &Stage) -> Cloud {
        let options = CloudOptions {
            connector: Arc::new(ListNetwork(SimNetwork::of(&stage.sim), self.clone())),
            ..stage.options()
        };
        let config = CloudConfig::from_cloud_conf(&stage.sim.access().cloud_conf()).expect("a good configuration");
        Cloud::new(config, options).expect("a cloud")
    }

    fn page(&self, kind: &str, query: &str) -> String {
        let marker = query.split('&').find_map(|pair| pair.strip_prefix("marker="));
        let first = marker.map_or(0, |id| id[24..].parse::<usize>().expect("a number") + 1);
        let last = self.total.min(first + PAGE);
        let items: Vec<String> = (first..last).map(|number| self.item(number)).collect();
        let links = if last < self.total {
            r#"{"rel":"next","href":"x"}"#
        } else {
            ""
        };
        format!(r#"{{"{kind}":[{}],"{kind}_links":[{links}]}}"#, items.join(","))
    }

    /// An object with the fields of all kinds.
    fn item(&self, number: usize) -> String {
        let id = format!("11111111-2222-4333-8444-{number:012}");
        let value = "x".repeat(self.value);
        let metadata: Vec<String> = (0..5).map(|key| format!(r#""key-{key}":"{value}""#)).collect();
        format!(
            r#"{{"id":"{id}","name":"pvc-{id}","volume_id":"{id}","size":1,"status":"available","availability_zone":"nova",
            "created_at":"2026-01-02T03:04:05.000000","description":"{value}","metadata":{{{}}},
            "attachments":[{{"server_id":"{id}","attachment_id":"{id}","device":"/dev/vdb"}}],
            "os-extended-volumes:volumes_attached":[{{"id":"{id}"}}]}}"#,
            metadata.join(",")
        )
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_objects_with_metadata_are_listed() {
    let stage = stage().await;
    let lists = GeneratedLists::new(10_000, 200);
    let cloud = lists.cloud(&stage);
    let volumes = cloud.listed_volumes().await.expect("the volumes");
    assert_eq!(volumes.len(), 10_000);
    assert_eq!(volumes[9_999].servers.len(), 1);
    let id = |snapshot: Snapshot| Some(snapshot.id.to_string());
    assert_eq!(
        cloud.map_snapshots(None, id).await.expect("the snapshots").len(),
        10_000
    );
    let backups = cloud.map_backups(None, |backup| Some(backup.id)).await;
    assert_eq!(backups.expect("the backups").len(), 10_000);
    assert_eq!(cloud.listed_servers().await.expect("the servers").len(), 10_000);
    // The pages are larger than the limit, and one volume has this name.
    let named = cloud.volumes_named("pvc-11111111-2222-4333-8444-000000007777").await;
    assert_eq!(named.expect("one volume").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn hostile_lists_end_with_limit_and_remedy() {
    let stage = stage().await;
    // Each page is just within the limit of a body.
    let lists = GeneratedLists::new(usize::MAX, 2_500);
    let cloud = lists.cloud(&stage);
    for list in ["volume_list", "snapshot_list", "backup_list"] {
        lists.sent.store(0, Ordering::Relaxed);
        let listed = match list {
            "volume_list" => cloud.map_volumes(Some::<Volume>).await.map(drop),
            "snapshot_list" => cloud.map_snapshots(None, Some::<Snapshot>).await.map(drop),
            _ => cloud.map_backups(None, Some).await.map(drop),
        };
        let error = listed.expect_err("too large");
        assert!(matches!(error, CloudError::ListIncomplete(_)), "{error:?}");
        let text = error.to_string();
        for expected in [list, "32 MiB of memory", "clean up the project"] {
            assert!(text.contains(expected), "{expected} is not in {text}");
        }
        // Nearly all of a page is retained here, so the third page exceeds the limit.
        let sent = lists.sent.load(Ordering::Relaxed);
        assert!(sent < 48 << 20, "{sent} bytes");
    }
}
