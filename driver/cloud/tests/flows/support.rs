// SPDX-License-Identifier: Apache-2.0
//! A cloud of the simulator, and the client under test.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cinder_cloud::{AttachOptions, Cloud, CloudConfig, CloudOptions, GiB, NewVolume, Observer, ServerId, Volume};
use csi_sources::Sources;
use jiff::Timestamp;
use openstack_sim::{Latencies, ServerSpec, Sim, SimConfig};
use parking_lot::Mutex;
use serde_json::Value;
use sim_network::SimNetwork;

pub(crate) const ONE: &str = "11111111-2222-4333-8444-555555555555";
pub(crate) const TWO: &str = "22222222-2222-4333-8444-555555555555";
/// A valid UUID without an object.
pub(crate) const NOTHING: &str = "00000000-2222-4333-8444-555555555555";

/// Counts the calls of the observer.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    pub(crate) tokens: AtomicUsize,
    pub(crate) requests: AtomicUsize,
    pub(crate) polls: AtomicUsize,
    /// By queue: the current, the smallest and the largest number of waiting tasks.
    pub(crate) queues: Mutex<BTreeMap<&'static str, (i64, i64, i64)>>,
    /// The end of the last pause of each service.
    pub(crate) pauses: Mutex<BTreeMap<&'static str, Timestamp>>,
}

impl Observer for Counter {
    fn request(&self, service: &'static str, _: &'static str, _: u16, _: Duration) {
        if service != "identity" {
            self.requests.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn token_issued(&self, _: bool) {
        self.tokens.fetch_add(1, Ordering::Relaxed);
    }

    fn wait_finished(&self, _: &'static str, _: Duration, polls: u32) {
        self.polls.fetch_add(polls as usize, Ordering::Relaxed);
    }

    fn service_paused(&self, service: &'static str, end: Timestamp) {
        self.pauses.lock().insert(service, end);
    }

    fn queue_changed(&self, queue: &'static str, change: i8) {
        let mut queues = self.queues.lock();
        let (now, least, most) = queues.entry(queue).or_default();
        *now += i64::from(change);
        (*least, *most) = ((*least).min(*now), (*most).max(*now));
    }
}

pub(crate) struct Stage {
    pub(crate) sim: Sim,
    pub(crate) cloud: Cloud,
    pub(crate) counter: Arc<Counter>,
    pub(crate) options: CloudOptions,
}

/// A cloud with two servers that answers at once.
pub(crate) async fn stage() -> Stage {
    stage_with(SimConfig::default()).await
}

/// A cloud with this configuration and two servers. The client calls it directly, on the paused clock of the test.
pub(crate) async fn stage_with(config: SimConfig) -> Stage {
    // Each test process installs it once. A second installation changes nothing.
    drop(rustls::crypto::ring::default_provider().install_default());
    let sources = Sources::seeded(1, "2026-01-02T03:04:05Z".parse().expect("a time"));
    let servers = vec![ServerSpec::new(ONE), ServerSpec::new(TWO)];
    let config = SimConfig {
        servers,
        sources: sources.clone(),
        ..config
    };
    let sim = Sim::direct(config).await.expect("the simulator starts");
    let options = CloudOptions {
        connector: Arc::new(SimNetwork::of(&sim)),
        sources,
        ..CloudOptions::default()
    };
    Stage::new(sim, options)
}

/// Lets other tasks run for a millisecond of the paused clock, which does not advance while a task is busy.
pub(crate) async fn tick() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

pub(crate) fn latencies(change: impl FnOnce(&mut Latencies)) -> Latencies {
    let mut latencies = Latencies::default();
    change(&mut latencies);
    latencies
}

pub(crate) fn new(name: &str) -> NewVolume {
    NewVolume {
        name: name.to_owned(),
        size: GiB::new(1).expect("size"),
        largest: None,
        source: None,
        multiattach: false,
        mode: None,
        allow_mode_change: false,
        volume_type: None,
        availability_zone: None,
        acceptable_zones: Vec::new(),
        description: "made by a test".to_owned(),
        metadata: BTreeMap::from([("cinder.csi.openstack.org/cluster".to_owned(), "test".to_owned())]),
        same_host: Vec::new(),
        different_host: Vec::new(),
        mutable_metadata: BTreeMap::new(),
    }
}

impl Stage {
    /// A stage with this simulator, for a client with these options and shorter time limits.
    pub(crate) fn new(sim: Sim, options: CloudOptions) -> Self {
        let counter = Arc::new(Counter::default());
        let config = CloudConfig::from_cloud_conf(&sim.access().cloud_conf()).expect("a good configuration");
        let cloud = CloudOptions {
            request_timeout: Duration::from_secs(10),
            operation_timeout: Duration::from_secs(20),
            observer: counter.clone(),
            ..options.clone()
        };
        let cloud = Cloud::new(config, cloud).expect("a cloud");
        Self {
            sim,
            cloud,
            counter,
            options,
        }
    }

    /// The options for further clouds on this stage.
    pub(crate) fn options(&self) -> CloudOptions {
        self.options.clone()
    }

    /// A client of another process on the same cloud: it has no cached state.
    pub(crate) fn other_process(&self) -> Cloud {
        self.cloud_with_conf(&self.sim.access().cloud_conf())
    }

    /// A client with another configuration on this stage.
    pub(crate) fn cloud_with_conf(&self, cloud_conf: &str) -> Cloud {
        let config = CloudConfig::from_cloud_conf(cloud_conf).expect("a good configuration");
        Cloud::new(config, self.options()).expect("a cloud")
    }

    /// Sends a request of another client to the simulator.
    pub(crate) async fn post(&self, url: &str, headers: &[(&str, &str)], body: &Value) -> http::Response<Bytes> {
        let request = headers.iter().fold(http::Request::post(url), |request, (name, value)| {
            request.header(*name, *value)
        });
        let request = request.body(Bytes::from(body.to_string())).expect("a request");
        self.sim.client().send(request).await.expect("an answer")
    }

    pub(crate) async fn create(&self, name: &str) -> Volume {
        self.cloud.create_volume(new(name)).await.expect("a volume").volume
    }

    /// The number of requests to Cinder and Nova since the log was cleared.
    pub(crate) fn calls(&self) -> usize {
        self.sim
            .log()
            .iter()
            .filter(|entry| entry.operation != "issue_token")
            .count()
    }

    pub(crate) fn operations(&self) -> Vec<&'static str> {
        self.sim
            .log()
            .iter()
            .filter(|entry| entry.operation != "issue_token")
            .map(|entry| entry.operation)
            .collect()
    }

    pub(crate) async fn life(&self, name: &str) {
        self.life_with_pod(name, Duration::ZERO).await;
    }

    /// As [`Self::life`], with a pod that uses the volume for this time.
    pub(crate) async fn life_with_pod(&self, name: &str, time: Duration) {
        let volume = self.create(name).await;
        let server = ServerId::new(ONE);
        self.cloud
            .attach(&volume.id, &server, AttachOptions::default())
            .await
            .expect("attached");
        tokio::time::sleep(time).await;
        self.cloud.detach(&volume.id, Some(&server)).await.expect("detached");
        self.cloud.delete_volume(&volume.id).await.expect("deleted");
    }
}
