// SPDX-License-Identifier: Apache-2.0
//! Answers with a resource other than the requested one.

use std::sync::Arc;

use bytes::Bytes;
use cinder_cloud::{Cloud, CloudConfig, CloudError, CloudOptions, Connect, HttpClient, SendError, ServerId, VolumeId};
use futures::future::BoxFuture;
use http::{Request, Response};
use sim_network::SimNetwork;

use crate::support::{NOTHING, ONE, new, stage};

/// A network that requests `existing` instead of [`NOTHING`].
#[derive(Debug)]
struct MisdirectingNetwork {
    network: SimNetwork,
    existing: String,
}

#[derive(Debug)]
struct MisdirectingClient {
    client: Arc<dyn HttpClient>,
    existing: String,
}

impl Connect for MisdirectingNetwork {
    fn connect(&self, config: &CloudConfig, options: &CloudOptions) -> Result<Arc<dyn HttpClient>, CloudError> {
        Ok(Arc::new(MisdirectingClient {
            client: self.network.connect(config, options)?,
            existing: self.existing.clone(),
        }))
    }
}

impl HttpClient for MisdirectingClient {
    fn send(&self, mut request: Request<Bytes>, limit: usize) -> BoxFuture<'_, Result<Response<Bytes>, SendError>> {
        let uri = request.uri().to_string().replace(NOTHING, &self.existing);
        *request.uri_mut() = uri.parse().expect("an address");
        self.client.send(request, limit)
    }
}

#[tokio::test(start_paused = true)]
async fn rejects_answers_with_other_resource() {
    let stage = stage().await;
    let volume = stage.cloud.create_volume(new("pvc-1")).await.expect("a volume").volume;
    let misdirected = |existing: &str| {
        let network = MisdirectingNetwork {
            network: SimNetwork::of(&stage.sim),
            existing: existing.to_owned(),
        };
        let options = CloudOptions {
            connector: Arc::new(network),
            ..stage.options()
        };
        let config = CloudConfig::from_cloud_conf(&stage.sim.access().cloud_conf()).expect("a good configuration");
        Cloud::new(config, options).expect("a cloud")
    };
    let (volumes, servers) = (misdirected(volume.id.as_str()), misdirected(ONE));
    let of_volume = volumes.volume(&VolumeId::new(NOTHING)).await.map(drop);
    let of_server = servers.server(&ServerId::new(NOTHING)).await.map(drop);
    for (answer, returned) in [(of_volume, volume.id.as_str()), (of_server, ONE)] {
        let error = answer.expect_err("another resource");
        assert!(matches!(error, CloudError::Decode(_)), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(returned) && text.contains(NOTHING), "{text}");
    }
}
