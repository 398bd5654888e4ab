//! The controller's pods and the sidecars in them.

use std::collections::BTreeMap;

use cinder_csi_crds::{ControllerSpec, DnsPolicy, ExtraVolume, LeaderElection, Resources, SidecarSettings};
use k8s_openapi::api::core::v1::{Affinity, HostAlias, Toleration, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Environment, Problem};
use crate::images::{Component, ImageSet};
use crate::skew;
use crate::units::duration;

/// The controller's pods.
#[derive(Clone, Debug, PartialEq)]
pub struct Controller {
    /// How many.
    pub replicas: i32,
    /// How many may be missing while they are replaced.
    pub max_unavailable: IntOrString,
    /// How many more there may be meanwhile.
    pub max_surge: IntOrString,
    /// How many a drain may take away; `None` without a budget.
    pub disruptions: Option<IntOrString>,
    /// How the replicas of a sidecar agree.
    pub leader_election: LeaderElection,
    /// On which nodes.
    pub node_selector: BTreeMap<String, String>,
    /// In spite of which taints.
    pub tolerations: Option<Vec<Toleration>>,
    /// Near or far from what.
    pub affinity: Option<Affinity>,
    /// How they spread.
    pub spread: Option<Vec<TopologySpreadConstraint>>,
    /// How important.
    pub priority_class_name: String,
    /// Labels besides our own.
    pub pod_labels: BTreeMap<String, String>,
    /// Annotations besides our own.
    pub pod_annotations: BTreeMap<String, String>,
    /// Whether they use the network of their node.
    pub host_network: bool,
    /// Lines of /etc/hosts.
    pub host_aliases: Vec<HostAlias>,
    /// Where they look up names.
    pub dns_policy: DnsPolicy,
    /// Port of the driver; the sidecars have the ones after it.
    pub http_port: u16,
    /// Resources of the driver's container.
    pub resources: Option<Resources>,
    /// Files for the driver's container.
    pub extra_volumes: Vec<ExtraVolume>,
    /// The containers beside the driver, in their order.
    pub sidecars: Vec<Sidecar>,
}

impl Controller {
    /// One of the sidecars, if it runs.
    pub fn sidecar(&self, component: Component) -> Option<&Sidecar> {
        self.sidecars.iter().find(|sidecar| sidecar.component == component)
    }
}

/// How a sidecar works. Times are written as Go reads them.
#[derive(Clone, Debug, PartialEq)]
pub struct Sidecar {
    /// Which one.
    pub component: Component,
    /// Its HTTP port.
    pub port: u16,
    /// For one answer of the driver.
    pub timeout: String,
    /// Volumes at once.
    pub worker_threads: i32,
    /// Between two tries.
    pub retry_interval_max: String,
    /// Requests per second to the Kubernetes API.
    pub kube_api_qps: i32,
    /// Requests at once to the Kubernetes API.
    pub kube_api_burst: i32,
    /// Its feature gates.
    pub feature_gates: BTreeMap<String, bool>,
    /// Arguments besides our own.
    pub extra_args: Vec<String>,
    /// Resources of the container.
    pub resources: Option<Resources>,
}

/// Decides the defaults of the controller's pods.
pub(super) fn controller(spec: &ControllerSpec, env: &Environment, images: &ImageSet, snapshots: bool) -> Controller {
    let replicas = spec.replicas.unwrap_or(if env.nodes >= 2 { 2 } else { 1 });
    // One pod serves until its successor does. Several are replaced one by one, without a further one that might find no node.
    // On the network of a node a successor could not have the ports before the old pod has ended.
    let in_turn = replicas > 1 || spec.host_network;
    let (unavailable, surge) = if in_turn { (1, 0) } else { (0, 1) };
    let (max_unavailable, max_surge) = match &spec.strategy {
        Some(strategy) => (strategy.max_unavailable.clone(), strategy.max_surge.clone()),
        None => (IntOrString::Int(unavailable), IntOrString::Int(surge)),
    };
    let budget = &spec.pod_disruption_budget;
    Controller {
        replicas,
        max_unavailable,
        max_surge,
        disruptions: (budget.enabled && replicas > 1).then(|| budget.max_unavailable.clone()),
        leader_election: spec.leader_election.clone(),
        node_selector: spec.node_selector.clone(),
        tolerations: spec.tolerations.clone(),
        affinity: spec.affinity.clone(),
        spread: spec.topology_spread_constraints.clone(),
        priority_class_name: spec.priority_class_name.clone(),
        pod_labels: spec.pod_labels.clone(),
        pod_annotations: spec.pod_annotations.clone(),
        host_network: spec.host_network,
        host_aliases: spec.host_aliases.clone(),
        dns_policy: spec.dns_policy.unwrap_or(if spec.host_network {
            DnsPolicy::ClusterFirstWithHostNet
        } else {
            DnsPolicy::ClusterFirst
        }),
        http_port: spec.http_port,
        resources: spec.resources.clone(),
        extra_volumes: spec.extra_volumes.clone(),
        sidecars: sidecars(spec, env, images, snapshots),
    }
}

/// How many ports the controller's pods have.
pub(super) const PORTS: u16 = 6;

fn sidecars(spec: &ControllerSpec, env: &Environment, images: &ImageSet, snapshots: bool) -> Vec<Sidecar> {
    let given = &spec.sidecars;
    // Each has its place for good, so that a port means the same wherever and whenever it is looked at.
    let all = [
        (Component::Provisioner, &given.provisioner, true, "3m", "30m"),
        (Component::Attacher, &given.attacher, true, "5m", "5m"),
        (Component::Resizer, &given.resizer, true, "3m", "30m"),
        (Component::Snapshotter, &given.snapshotter, snapshots, "3m", "30m"),
        (Component::HealthMonitor, &given.health_monitor, false, "3m", "30m"),
    ];
    (1..)
        .zip(all)
        .filter(|(_, (component, settings, by_default, ..))| match component {
            // Without its API it would end again and again.
            Component::Snapshotter => snapshots && settings.enabled.unwrap_or(*by_default),
            _ => settings.enabled.unwrap_or(*by_default),
        })
        .map(|(place, (component, settings, _, timeout, pause))| Sidecar {
            component,
            port: spec.http_port.saturating_add(place),
            feature_gates: gates(component, settings, env, images),
            ..sidecar(component, settings, timeout, pause)
        })
        .collect()
}

fn sidecar(component: Component, settings: &SidecarSettings, timeout: &str, retry_interval_max: &str) -> Sidecar {
    let or = |given: &Option<String>, usual: &str| given.clone().unwrap_or_else(|| usual.to_owned());
    Sidecar {
        component,
        port: 0,
        timeout: or(&settings.timeout, timeout),
        worker_threads: settings.worker_threads.unwrap_or(100),
        retry_interval_max: or(&settings.retry_interval_max, retry_interval_max),
        kube_api_qps: settings.kube_api_qps.unwrap_or(20),
        kube_api_burst: settings.kube_api_burst.unwrap_or(100),
        feature_gates: BTreeMap::new(),
        extra_args: settings.extra_args.clone(),
        resources: settings.resources.clone(),
    }
}

/// What the release needs in this cluster, with the administrator's choice over it.
fn gates(
    component: Component,
    settings: &SidecarSettings,
    env: &Environment,
    images: &ImageSet,
) -> BTreeMap<String, bool> {
    let release = images.get(component).and_then(|image| image.release.as_ref());
    let mut gates = release
        .map(|release| skew::gates(component, release, env.kubernetes_version, env.apis))
        .unwrap_or_default();
    gates.extend(settings.feature_gates.clone());
    gates
}

/// What stands against the controller's settings beyond what the API server has checked.
pub(super) fn problems(spec: &ControllerSpec) -> Vec<Problem> {
    let mut problems = Vec::new();
    let seconds = |text: &str| duration(text).unwrap_or_default().as_secs_f64();
    let election = &spec.leader_election;
    // What the client library asks for; a sidecar that is given less ends at once.
    if seconds(&election.renew_deadline) <= 1.2 * seconds(&election.retry_period) {
        problems.push(Problem {
            reason: "InvalidLeaderElection",
            message: format!(
                "spec.controller.leaderElection.renewDeadline ({}) must be more than 1.2 times retryPeriod ({}), because the pauses \
                 between tries vary by a fifth: no sidecar would start. Make one longer or the other shorter",
                election.renew_deadline, election.retry_period
            ),
        });
    }
    let sidecars = &spec.sidecars;
    for (name, settings) in [
        ("provisioner", &sidecars.provisioner),
        ("attacher", &sidecars.attacher),
        ("resizer", &sidecars.resizer),
        ("snapshotter", &sidecars.snapshotter),
        ("healthMonitor", &sidecars.health_monitor),
    ] {
        let is_name = |gate: &str| !gate.is_empty() && gate.chars().all(|c| c.is_ascii_alphanumeric());
        if let Some(gate) = settings.feature_gates.keys().find(|gate| !is_name(gate)) {
            problems.push(Problem {
                reason: "InvalidFeatureGate",
                message: format!(
                    "spec.controller.sidecars.{name}.featureGates has the name {gate:?}, which no feature gate can have: names are made \
                     of letters and digits, as in ReleaseLeaderElectionOnExit"
                ),
            });
        }
    }
    problems
}
