// SPDX-License-Identifier: Apache-2.0
//! Observes the clouds for the controller's metrics: services, quotas, and the expiry of credentials and certificates.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cinder_cloud::certificates::{end_of_bundle, ends};
use cinder_cloud::config::Tls;
use cinder_cloud::{Cloud, CloudErrorKind, CloudService, Quota};
use csi_kit::metrics::{Metrics, MetricsError};
use futures::future::join_all;
use jiff::Timestamp;
use prometheus::{IntGaugeVec, Opts};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::clouds::{Clouds, UncheckedCloud};
use crate::metrics::cloud_label;
use crate::timing::TIMING;

/// The observed services, as label values.
const SERVICES: [&str; 3] = ["identity", "block-storage", "compute"];
/// The quotas of volumes, snapshots and backups.
const RESOURCES: [&str; 5] = ["volumes", "gigabytes", "snapshots", "backups", "backup_gigabytes"];
/// The maximum number of exported quotas per cloud. Each volume type has separate quotas.
const MAX_QUOTAS: usize = 100;

/// The gauges of the observed clouds.
#[derive(Debug, Clone)]
struct ObservationMetrics {
    backend_up: IntGaugeVec,
    quota_used: IntGaugeVec,
    quota_limit: IntGaugeVec,
    expiry: IntGaugeVec,
}

impl ObservationMetrics {
    fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let gauge = |name: &str, help: &str, labels: &[&str]| {
            metrics.registered(IntGaugeVec::new(Opts::new(name, help), labels))
        };
        Ok(Self {
            backend_up: gauge(
                "cinder_csi_backend_up",
                "1 while a service of a cloud answers as it should.",
                &["cloud", "service"],
            )?,
            quota_used: gauge(
                "cinder_csi_quota_used",
                "Used and reserved part of a quota; volume_type is empty for all types together.",
                &["cloud", "resource", "volume_type"],
            )?,
            quota_limit: gauge(
                "cinder_csi_quota_limit",
                "Limit of a quota; absent for a quota without a limit.",
                &["cloud", "resource", "volume_type"],
            )?,
            expiry: gauge(
                "cinder_csi_credential_expiry_timestamp_seconds",
                "Expiry of a credential or certificate: app_credential, token, ca, client_cert.",
                &["cloud", "kind"],
            )?,
        })
    }

    fn export(&self, clouds: &[(String, CloudAnswers)]) {
        for family in [&self.backend_up, &self.expiry, &self.quota_used, &self.quota_limit] {
            family.reset();
        }
        for (cloud, observed) in clouds {
            let cloud = cloud_label(cloud);
            for (service, is_up) in SERVICES.into_iter().zip(observed.is_up) {
                if let Some(is_up) = is_up {
                    self.backend_up.with_label_values(&[cloud, service]).set(is_up.into());
                }
            }
            for (resource, volume_type, quota) in observed.limited_quotas() {
                let value = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
                let labels = [cloud, resource, volume_type];
                self.quota_used.with_label_values(&labels).set(value(quota.used()));
                self.quota_limit
                    .with_label_values(&labels)
                    .set(quota.limit().map_or(i64::MAX, value));
            }
            for (kind, end) in &observed.expiry {
                self.expiry.with_label_values(&[cloud, kind]).set(end.as_second());
            }
        }
    }
}

/// The responses of one cloud.
#[derive(Debug, Default)]
struct CloudAnswers {
    /// Whether each of [`SERVICES`] responds. `None`: no request was sent.
    is_up: [Option<bool>; SERVICES.len()],
    /// Whether the cloud refuses the credentials, or they belong to another project. Repeated attempts may lock the
    /// account.
    is_refused: bool,
    quotas: Option<BTreeMap<String, Quota>>,
    expiry: Vec<(&'static str, Timestamp)>,
}

impl CloudAnswers {
    /// Creates the result for a cloud without a login.
    fn without_login(is_refused: bool) -> Self {
        Self {
            is_up: [Some(false), None, None],
            is_refused,
            ..Self::default()
        }
    }

    /// Returns the quotas with a limit, by resource and volume type.
    fn limited_quotas(&self) -> impl Iterator<Item = (&'static str, &str, Quota)> {
        let quotas = self.quotas.iter().flatten();
        let limited = quotas.filter(|(_, quota)| quota.limit().is_some());
        let known = limited.filter_map(|(name, quota)| {
            let (resource, volume_type) = split(name)?;
            Some((resource, volume_type, *quota))
        });
        known.take(MAX_QUOTAS)
    }
}

/// Splits the name of a quota, such as `gigabytes` or `gigabytes_fast`, into resource and volume type.
fn split(name: &str) -> Option<(&'static str, &str)> {
    RESOURCES.iter().find_map(|resource| {
        let rest = name.strip_prefix(resource)?;
        let volume_type = if rest.is_empty() { rest } else { rest.strip_prefix('_')? };
        Some((*resource, volume_type))
    })
}

/// A task that observes all clouds of the controller.
#[derive(Debug)]
pub(crate) struct Observation {
    clouds: Clouds,
    metrics: ObservationMetrics,
    /// The last known quotas of each cloud.
    quotas: BTreeMap<String, BTreeMap<String, Quota>>,
}

impl Observation {
    /// Registers the metrics.
    pub(crate) fn new(clouds: Clouds, metrics: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            clouds,
            metrics: ObservationMetrics::new(metrics)?,
            quotas: BTreeMap::new(),
        })
    }

    /// Observes the clouds at an interval, and immediately after `changed` is notified, until `shutdown`.
    pub(crate) async fn run(mut self, changed: Arc<Notify>, shutdown: CancellationToken) {
        let observe = async {
            loop {
                let pause = self.observe().await;
                // New credentials and certificates have another expiry.
                let _ = tokio::time::timeout(pause, changed.notified()).await;
            }
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = observe => {}
        }
    }

    /// Observes each cloud once. Returns the pause before the next observation.
    async fn observe(&mut self) -> Duration {
        let clouds = self.clouds.configured().into_iter();
        let observed = clouds.map(async |(name, cloud)| (name, Box::pin(observe_cloud(&cloud)).await));
        let mut observed = join_all(observed).await;
        self.retain_quotas(&mut observed);
        self.metrics.export(&observed);
        let is_down = |answers: &CloudAnswers| answers.is_up.contains(&Some(false));
        let mut silent = observed
            .iter()
            .filter(|(_, observed)| !observed.is_refused && is_down(observed));
        match silent.next() {
            Some(_) => TIMING.observation_retry,
            None => TIMING.observation_interval,
        }
    }

    /// Restores the last quotas of clouds that did not respond, and drops the quotas of removed clouds.
    fn retain_quotas(&mut self, observed: &mut [(String, CloudAnswers)]) {
        for (cloud, observed) in &mut *observed {
            if observed.quotas.is_none() {
                observed.quotas = self.quotas.remove(cloud);
            }
        }
        let known = observed
            .iter()
            .filter_map(|(cloud, observed)| Some((cloud.clone(), observed.quotas.clone()?)));
        self.quotas = known.collect();
    }
}

async fn observe_cloud(unchecked: &UncheckedCloud) -> CloudAnswers {
    let (cloud, login) = match within(unchecked.login()).await {
        Some(Ok(login)) => match unchecked.check().await {
            Ok(cloud) => (cloud, login),
            Err(_) => {
                return CloudAnswers {
                    is_up: [Some(true), None, None],
                    is_refused: true,
                    ..CloudAnswers::default()
                };
            }
        },
        Some(Err(error)) => return CloudAnswers::without_login(error.kind() == CloudErrorKind::Credentials),
        None => return CloudAnswers::without_login(false),
    };
    let (block_storage, compute, quotas, credential) = tokio::join!(
        is_up(&cloud, CloudService::BlockStorage),
        is_up(&cloud, CloudService::Compute),
        within(cloud.quotas()),
        within(cloud.application_credential()),
    );
    let credential = credential.and_then(|answer| answer.ok().flatten()?.expires_at);
    let mut expiry = vec![("token", login.expires_at)];
    expiry.extend(credential.map(|end| ("app_credential", end)));
    expiry.extend(certificate_ends(&cloud.config().tls, cloud.now()));
    CloudAnswers {
        is_up: [true, block_storage, compute].map(Some),
        is_refused: false,
        quotas: quotas.and_then(Result::ok),
        expiry,
    }
}

/// Whether a service responds. A refused list counts as a response.
async fn is_up(cloud: &Cloud, service: CloudService) -> bool {
    let listed = within(cloud.try_list(service)).await;
    match listed {
        Some(Ok(())) => true,
        Some(Err(error)) => error.kind() == CloudErrorKind::NotPermitted,
        None => false,
    }
}

async fn within<T>(answer: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(TIMING.observation_timeout, answer).await.ok()
}

fn certificate_ends(tls: &Tls, now: Timestamp) -> impl Iterator<Item = (&'static str, Timestamp)> {
    let client = tls.client_pem.as_ref().map(|client| client.certificate.as_str());
    let ca = tls.ca_pem.as_ref().and_then(|pem| end_of_bundle(&ends(pem), now));
    let client = client.and_then(|pem| ends(pem).into_iter().min());
    let ends = [("ca", ca), ("client_cert", client)].into_iter();
    ends.filter_map(|(kind, end)| Some((kind, end?)))
}

#[cfg(test)]
mod tests {
    use cinder_cloud::{CloudConfig, CloudOptions};
    use csi_kit::metrics::BuildInfo;
    use openstack_sim::{Effect, Fault, Sim, SimConfig};

    use super::*;

    async fn mk(config: SimConfig) -> (Sim, Observation, Metrics) {
        // A second installation in this process changes nothing.
        drop(rustls::crypto::ring::default_provider().install_default());
        let sim = Sim::start(config).await.expect("a cloud");
        let config = CloudConfig::from_cloud_conf(&sim.access().cloud_conf()).expect("good");
        let cloud = Cloud::new(config, CloudOptions::default()).expect("a cloud");
        let build = BuildInfo {
            program: "cinder_csi_driver",
            version: "0.0.0",
            revision: "",
        };
        let registry = Metrics::new(build).expect("a registry");
        let observation = Observation::new(Clouds::single(cloud), &registry).expect("families");
        (sim, observation, registry)
    }

    fn has(registry: &Metrics, line: &str) -> bool {
        registry.encode().expect("text").contains(&format!("{line}\n"))
    }

    fn backend(service: &str, up: u8) -> String {
        format!(r#"cinder_csi_backend_up{{cloud="default",service="{service}"}} {up}"#)
    }

    #[tokio::test]
    async fn services_and_quotas_are_exported() {
        let mut config = SimConfig::default();
        config.quota.volumes = 7;
        let (_sim, mut observation, registry) = mk(config).await;
        assert_eq!(observation.observe().await, TIMING.observation_interval);
        for service in SERVICES {
            assert!(has(&registry, &backend(service, 1)), "{service}");
        }
        let labels = r#"{cloud="default",resource="volumes",volume_type=""}"#;
        assert!(has(&registry, &format!("cinder_csi_quota_limit{labels} 7")));
        assert!(has(&registry, &format!("cinder_csi_quota_used{labels} 0")));
        let text = registry.encode().expect("text");
        assert!(
            text.contains(r#"timestamp_seconds{cloud="default",kind="token"}"#),
            "{text}"
        );
    }

    #[tokio::test]
    async fn failing_service_is_down_and_keeps_quotas() {
        let mut config = SimConfig::default();
        config.quota.volumes = 7;
        let (sim, mut observation, registry) = mk(config).await;
        observation.observe().await;
        sim.fault(Fault::everywhere().effect(Effect::status(500)))
            .expect("a fault");
        assert_eq!(observation.observe().await, TIMING.observation_retry);
        assert!(has(&registry, &backend("block-storage", 0)));
        assert!(registry.encode().expect("text").contains("cinder_csi_quota_limit{"));
        sim.clear_faults();
        assert_eq!(observation.observe().await, TIMING.observation_interval);
        assert!(has(&registry, &backend("block-storage", 1)));
    }

    #[tokio::test]
    async fn silent_cloud_keeps_only_its_own_quotas() {
        let (_sim, mut observation, registry) = mk(SimConfig::default()).await;
        let quotas = |names: &[&str]| {
            let quota = Quota {
                limit: 7,
                ..Quota::default()
            };
            Some(names.iter().map(|name| ((*name).to_owned(), quota)).collect())
        };
        let mut export = |of_a, of_b| {
            let mut observed = [("a", of_a), ("b", of_b)].map(|(cloud, quotas)| {
                let observed = CloudAnswers {
                    quotas,
                    ..CloudAnswers::default()
                };
                (cloud.to_owned(), observed)
            });
            observation.retain_quotas(&mut observed);
            observation.metrics.export(&observed);
            registry.encode().expect("text")
        };
        export(quotas(&["volumes", "volumes_old"]), quotas(&["volumes"]));
        for _ in 0..2 {
            let text = export(quotas(&["volumes"]), None);
            assert!(!text.contains(r#"volume_type="old""#), "{text}");
            assert!(text.contains(r#"cinder_csi_quota_limit{cloud="b",resource="volumes",volume_type=""} 7"#));
        }
    }

    #[tokio::test]
    async fn refused_credentials_are_not_retried_soon() {
        let (sim, mut observation, registry) = mk(SimConfig::default()).await;
        sim.fault(Fault::on("issue_token").effect(Effect::status(401)))
            .expect("a fault");
        assert_eq!(observation.observe().await, TIMING.observation_interval);
        assert!(has(&registry, &backend("identity", 0)));
        let text = registry.encode().expect("text");
        assert!(!text.contains(r#"service="compute""#), "its state is unknown: {text}");
    }

    #[tokio::test]
    async fn forbidden_lists_do_not_count_as_an_outage() {
        let (sim, mut observation, registry) = mk(SimConfig::default()).await;
        for operation in ["list_servers_detail", "get_volume_quota", "get_volume_limits"] {
            sim.fault(Fault::on(operation).effect(Effect::status(403)))
                .expect("a fault");
        }
        observation.observe().await;
        assert!(has(&registry, &backend("compute", 1)));
    }

    #[test]
    fn quota_names_are_split() {
        assert_eq!(split("gigabytes"), Some(("gigabytes", "")));
        assert_eq!(split("gigabytes_very_fast"), Some(("gigabytes", "very_fast")));
        assert_eq!(split("backup_gigabytes"), Some(("backup_gigabytes", "")));
        assert_eq!(split("per_volume_gigabytes"), None);
    }
}
