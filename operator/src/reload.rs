// SPDX-License-Identifier: Apache-2.0
//! Whether the driver uses the credentials that it was given.
//!
//! The driver watches its mounted Secret and takes a change over while it runs; its metric `cinder_csi_config_loaded_info{hash}`
//! tells what it uses, by the same hash that the operator computes. The operator asks every pod of the controller until all say
//! so. Only pods that do not within [`LIMIT`] are replaced, once per change.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use cinder_csi_crds::INSTANCE_LABEL;
use cinder_operator_core::{
    cluster::{COMPONENT_LABEL, CONTROLLER_COMPONENT},
    manifests::DRIVER_PORT_NAME,
};
use futures::future::{BoxFuture, join_all};
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt, api::ListParams};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};
use tracing::{debug, warn};

use crate::kubernetes::GuardedApi;

/// How long the pods have to take new credentials over. The kubelet brings a changed Secret into the pods' files when it syncs
/// them: once a minute, and half as much later when it jitters, after up to a minute in which its cache may be old. The driver
/// sees changed files at once, at the latest at its next look a minute later, and its login may take half a minute.
pub const LIMIT: Duration = Duration::from_mins(4);

/// When pods are asked again that have not said it yet.
pub const ASK_AGAIN: Duration = Duration::from_secs(5);

/// How long one pod may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// The longest answer that is read: metrics of a driver have some ten kilobytes.
const LONGEST_ANSWER: u64 = 4 << 20;

/// How a pod is told to serve its metrics over TLS, as `manifests` renders it.
const SECURE_FLAG: &str = "--secure-metrics=true";

const METRIC: &str = "cinder_csi_config_loaded_info{";

/// A pod of the controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerPod {
    /// Its uid.
    pub uid: String,
    /// Where it answers; nowhere while it has no address or does not run.
    pub address: Option<SocketAddr>,
    /// Whether it serves its metrics over TLS.
    pub is_secure: bool,
}

/// The pods of the driver's controller that are to stay.
pub async fn pods(client: &Client, namespace: &str, driver: &str) -> Result<Vec<ControllerPod>, kube::Error> {
    let api: GuardedApi<Pod> = GuardedApi::namespaced(client.clone(), namespace);
    let labels = format!("{INSTANCE_LABEL}={driver},{COMPONENT_LABEL}={CONTROLLER_COMPONENT}");
    let pods = api.list(&ListParams::default().labels(&labels)).await?;
    let staying = pods.into_iter().filter(|pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Failed" | "Succeeded"))
    });
    Ok(staying.map(|pod| of_pod(&pod)).collect())
}

fn of_pod(pod: &Pod) -> ControllerPod {
    let status = pod.status.as_ref();
    let is_running = status.is_some_and(|status| status.phase.as_deref() == Some("Running"));
    let ip = status.and_then(|status| status.pod_ip.as_deref());
    let containers = || pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers().flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| port.name.as_deref() == Some(DRIVER_PORT_NAME));
    let port = port.and_then(|port| u16::try_from(port.container_port).ok());
    let mut args = containers().flat_map(|container| container.args.iter().flatten());
    ControllerPod {
        uid: pod.uid().unwrap_or_default(),
        // By the pod itself and not by the spec: it may be an older one.
        is_secure: args.any(|arg| arg == SECURE_FLAG),
        address: ip
            .filter(|_| is_running)
            .and_then(|text| text.parse().ok())
            .zip(port)
            .map(|(ip, port)| SocketAddr::new(ip, port)),
    }
}

/// Reads the metrics of a pod. The seam for tests.
pub trait Scrape: Send + Sync + std::fmt::Debug {
    /// The text of `/metrics`.
    fn metrics(&self, address: SocketAddr, is_secure: bool) -> BoxFuture<'_, Result<String, String>>;
}

/// Asks over HTTP, with TLS where the pod wants it.
#[derive(Debug, Clone, Copy)]
pub struct Http;

impl Scrape for Http {
    fn metrics(&self, address: SocketAddr, is_secure: bool) -> BoxFuture<'_, Result<String, String>> {
        Box::pin(async move {
            let answer = async {
                if is_secure {
                    get_over_tls(address).await.map_err(|error| error.to_string())
                } else {
                    get(address).await.map_err(|error| error.to_string())
                }
            };
            let answer = tokio::time::timeout(ANSWER_LIMIT, answer).await;
            answer.map_err(|_| "it did not answer in time".to_owned())?
        })
    }
}

/// Pods make their certificates themselves, so that there is nothing to verify.
async fn get_over_tls(address: SocketAddr) -> Result<String, reqwest::Error> {
    let client = reqwest::Client::builder()
        .danger_accept_invalid_certs(true)
        .no_proxy()
        .build()?;
    let request = client.get(format!("https://{address}/metrics"));
    let mut answer = request.send().await?.error_for_status()?;
    let mut text = Vec::new();
    while let Some(part) = answer.chunk().await? {
        text.extend_from_slice(&part);
        if text.len() as u64 > LONGEST_ANSWER {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

async fn get(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    // With 1.0 the answer ends with the connection and comes in one piece.
    let request = b"GET /metrics HTTP/1.0\r\nHost: controller\r\nAccept: text/plain\r\n\r\n";
    stream.write_all(request).await?;
    let mut answer = Vec::new();
    stream.take(LONGEST_ANSWER).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The hash that a driver says it uses.
fn loaded_hash(metrics: &str) -> Option<&str> {
    metrics.lines().find_map(|line| {
        let (labels, value) = line.strip_prefix(METRIC)?.split_once('}')?;
        let hash = labels.strip_prefix("hash=\"")?.strip_suffix('"')?;
        (value.trim() == "1").then_some(hash)
    })
}

/// What is known of one driver's pods.
#[derive(Debug)]
struct ReloadState {
    wanted: String,
    since: Instant,
    /// Whether pods have not taken the wanted credentials over in time, and were replaced for them.
    restarted: Option<Instant>,
    /// What was in use everywhere before, until that is counted.
    before: Option<String>,
    is_loaded: bool,
    /// Whether a pod ran when they were asked last.
    is_running: bool,
    /// Whether the credentials changed while this process looked on.
    is_changed: bool,
    /// What pods said, by uid.
    told: BTreeMap<String, String>,
}

/// Asks pods and remembers what they said.
#[derive(Debug)]
pub struct Reloads {
    scrape: Box<dyn Scrape>,
    limit: Duration,
    drivers: Mutex<HashMap<String, ReloadState>>,
}

impl Reloads {
    /// Replaces pods that have not taken credentials over within `limit`.
    pub fn new(scrape: Box<dyn Scrape>, limit: Duration) -> Self {
        Self {
            scrape,
            limit,
            drivers: Mutex::default(),
        }
    }

    /// Whether all pods use the wanted credentials; `None` where none runs that could say so. Pods that have said it are not asked
    /// again.
    pub async fn ask(&self, driver: &str, wanted: &str, pods: &[ControllerPod]) -> Option<bool> {
        let mut told = self.with(driver, wanted, |known| known.told.clone());
        let is_open = |pod: &&ControllerPod| told.get(&pod.uid).map(String::as_str) != Some(wanted);
        let open: Vec<&ControllerPod> = pods.iter().filter(is_open).collect();
        let answers = open.into_iter().filter_map(|pod| {
            let address = pod.address?;
            Some(async move { (pod.uid.clone(), self.scrape.metrics(address, pod.is_secure).await) })
        });
        told.retain(|uid, _| pods.iter().any(|pod| pod.uid == *uid));
        for (uid, answer) in join_all(answers).await {
            match answer.as_deref().map(loaded_hash) {
                Ok(Some(hash)) => {
                    told.insert(uid, hash.to_owned());
                }
                Ok(None) => debug!(driver, uid, "the pod does not report which credentials it uses"),
                Err(error) => debug!(driver, uid, %error, "the pod does not report which credentials it uses"),
            }
        }
        let running: Vec<&ControllerPod> = pods.iter().filter(|pod| pod.address.is_some()).collect();
        let is_loaded = running
            .iter()
            .all(|pod| told.get(&pod.uid).map(String::as_str) == Some(wanted));
        self.with(driver, wanted, |known| {
            known.told = told;
            known.is_loaded = is_loaded && !running.is_empty();
            known.is_running = !running.is_empty();
        });
        (!running.is_empty()).then_some(is_loaded)
    }

    /// Whether pods have had their time and do not use the wanted credentials.
    pub fn is_overdue(&self, driver: &str, wanted: &str) -> bool {
        let limit = self.limit;
        self.with(driver, wanted, |known| {
            if known.restarted.is_some() {
                return true;
            }
            // Pods that say nothing may well use what they found when they started.
            let is_suspect = known.is_running && !known.is_loaded && (known.is_changed || !known.told.is_empty());
            let is_overdue = is_suspect && known.since.elapsed() >= limit;
            if is_overdue {
                warn!(
                    driver,
                    hash = wanted,
                    "the controller's pods did not load the credentials; they are replaced"
                );
                known.restarted = Some(Instant::now());
            }
            is_overdue
        })
    }

    /// Whether even pods that were replaced do not say that they use the wanted credentials.
    pub fn is_lost(&self, driver: &str, wanted: &str) -> bool {
        let limit = self.limit;
        self.with(driver, wanted, |known| {
            !known.is_loaded && known.restarted.is_some_and(|at| at.elapsed() >= limit)
        })
    }

    /// How a change of credentials came into use, once per change.
    pub fn rotated(&self, driver: &str, wanted: &str) -> Option<&'static str> {
        self.with(driver, wanted, |known| {
            known.before.take()?;
            Some(if known.restarted.is_some() { "restart" } else { "reload" })
        })
    }

    /// Forgets a driver that is gone.
    pub fn forget(&self, driver: &str) {
        self.drivers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(driver);
    }

    fn with<T>(&self, driver: &str, wanted: &str, look: impl FnOnce(&mut ReloadState) -> T) -> T {
        let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = drivers.entry(driver.to_owned()).or_insert_with(|| ReloadState {
            wanted: wanted.to_owned(),
            since: Instant::now(),
            restarted: None,
            before: None,
            is_loaded: false,
            is_running: false,
            is_changed: false,
            told: BTreeMap::new(),
        });
        if known.wanted != wanted {
            if known.is_loaded {
                known.before = Some(known.wanted.clone());
            }
            wanted.clone_into(&mut known.wanted);
            known.since = Instant::now();
            known.restarted = None;
            known.is_loaded = false;
            known.is_changed = true;
        }
        look(known)
    }
}

#[cfg(test)]
mod tests;
