// SPDX-License-Identifier: Apache-2.0
//! An in-process transport from `cinder-cloud` to simulators, without sockets.
//!
//! It is a separate crate because neither side may depend on the other: the simulator checks the product, and the
//! product contains no test code.

mod access_rules;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cinder_cloud::{CloudConfig, CloudError, CloudOptions, Connect, HttpClient, SendError};
use futures::future::BoxFuture;
use http::{Request, Response};
use openstack_sim::{NoAnswer, Sim, SimClient};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{sleep, timeout};

/// Latency of a request, and of a response.
const WAY: Duration = Duration::from_millis(1);

/// Simulators by host and port. Clones share the same network.
#[derive(Debug, Clone, Default)]
pub struct SimNetwork {
    hosts: Arc<Mutex<BTreeMap<String, SimClient>>>,
}

impl SimNetwork {
    /// Creates a network with one simulator.
    pub fn of(sim: &Sim) -> Self {
        let network = Self::default();
        network.add(sim);
        network
    }

    /// Creates a network with one simulator, behind API nodes with a database lag of `lag`.
    pub fn behind(sim: &Sim, lag: Duration) -> Self {
        let network = Self::default();
        network.set_lag(sim, lag);
        network
    }

    /// Sends all further requests to API nodes with a database lag of `lag`.
    pub fn set_lag(&self, sim: &Sim, lag: Duration) {
        let host = host_of(sim.base_url()).to_owned();
        self.hosts().insert(host, sim.client().behind(lag));
    }

    /// Adds a simulator, or replaces the one with the same address.
    pub fn add(&self, sim: &Sim) {
        let host = host_of(sim.base_url()).to_owned();
        self.hosts().insert(host, sim.client());
    }

    fn hosts(&self) -> MutexGuard<'_, BTreeMap<String, SimClient>> {
        self.hosts.lock()
    }
}

/// Returns host and port of a URL.
fn host_of(url: &str) -> &str {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    rest.split('/').next().unwrap_or_default()
}

impl Connect for SimNetwork {
    fn connect(&self, _: &CloudConfig, options: &CloudOptions) -> Result<Arc<dyn HttpClient>, CloudError> {
        Ok(Arc::new(Line {
            network: self.clone(),
            limit: options.request_timeout,
        }))
    }
}

/// The HTTP client of one `Cloud` on the network.
#[derive(Debug)]
struct Line {
    network: SimNetwork,
    limit: Duration,
}

impl HttpClient for Line {
    fn send(&self, request: Request<Bytes>, _limit: usize) -> BoxFuture<'_, Result<Response<Bytes>, SendError>> {
        access_rules::check(&request);
        Box::pin(async move {
            let error = |sent, reason: &str| SendError::NoAnswer {
                sent,
                reason: format!("error sending request: {reason}"),
            };
            let host = request.uri().authority().map_or("", http::uri::Authority::as_str);
            let host = self.network.hosts().get(host).cloned();
            let exchange = async {
                sleep(WAY).await;
                let answer = match host {
                    Some(host) => host.send(request).await,
                    None => Err(NoAnswer::Refused),
                };
                sleep(WAY).await;
                answer
            };
            match timeout(self.limit, exchange).await {
                Ok(answer) => answer.map_err(|reason| error(reason != NoAnswer::Refused, &reason.to_string())),
                Err(_) => Err(error(true, "operation timed out")),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use cinder_cloud::{Cloud, VolumeId};
    use openstack_sim::{Effect, Fault, SimConfig, When};
    use tokio::time::Instant;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(3);

    async fn stage() -> (Sim, Cloud) {
        let sim = Sim::direct(SimConfig::default()).await.expect("a simulator");
        let network = SimNetwork::of(&sim);
        let cloud = cloud(&sim, network);
        (sim, cloud)
    }

    fn cloud(sim: &Sim, network: SimNetwork) -> Cloud {
        // A second installation in the same process returns an error, which is harmless.
        drop(rustls::crypto::ring::default_provider().install_default());
        let config = CloudConfig::from_cloud_conf(&sim.access().cloud_conf()).expect("a good configuration");
        let options = CloudOptions {
            request_timeout: LIMIT,
            connector: Arc::new(network),
            ..CloudOptions::default()
        };
        Cloud::new(config, options).expect("a cloud")
    }

    /// Returns the error of a login that meets this effect.
    async fn refusal(effect: Effect) -> CloudError {
        let (sim, cloud) = stage().await;
        sim.fault(Fault::on("issue_token").effect(effect)).expect("a rule");
        cloud.login().await.expect_err("no answer")
    }

    #[tokio::test(start_paused = true)]
    async fn reaches_simulator_without_socket() {
        let (sim, cloud) = stage().await;
        let volume = VolumeId::new("00000000-2222-4333-8444-555555555555");
        assert_eq!(cloud.volume(&volume).await.expect("asked"), None);
        let operations: Vec<_> = sim.log().into_iter().map(|entry| entry.operation).collect();
        assert_eq!(operations, ["issue_token", "get_volume"]);
    }

    #[tokio::test(start_paused = true)]
    async fn lost_response_reports_request_as_sent() {
        for (effect, reason) in [
            (Effect::cut(When::Before), "closed"),
            (Effect::reset(When::After), "reset"),
            (Effect::silence(When::Before), "timed out"),
        ] {
            let error = refusal(effect).await;
            let CloudError::Unreachable { failure, sent: true } = &error else {
                panic!("{error:?}")
            };
            assert!(failure.fault.contains(reason), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_lasts_until_client_timeout() {
        let started = Instant::now();
        refusal(Effect::silence(When::Before)).await;
        assert_eq!(started.elapsed(), LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_address_refuses_connection() {
        let (sim, _) = stage().await;
        let error = cloud(&sim, SimNetwork::default())
            .login()
            .await
            .expect_err("nobody is there");
        assert!(
            matches!(error, CloudError::Unreachable { sent: false, .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains("connection refused"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn stopped_simulator_refuses_connection() {
        let (sim, cloud) = stage().await;
        cloud.login().await.expect("logged in");
        sim.shutdown().await.expect("ended");
        let volume = VolumeId::new("00000000-2222-4333-8444-555555555555");
        let error = cloud.volume(&volume).await.expect_err("nobody is there");
        assert!(
            matches!(error, CloudError::Unreachable { sent: false, .. }),
            "{error:?}"
        );
    }
}
