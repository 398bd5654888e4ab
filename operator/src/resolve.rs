//! What a spec means in this cluster: every default decided, every doubt said. A pure function.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use cinder_csi_crds::{
    CinderCSIDriver, DEFAULT_DRIVER_NAME, ImagePullPolicy, LogLevel, Resources, SidecarSettings, StorageClassItem,
    TopologyMode,
};
use k8s_openapi::api::core::v1::{Affinity, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Resource;
use sha2::{Digest, Sha256};

use crate::clouds::CloudFacts;
use crate::images::ImageSet;
use crate::observe::OptionalApis;

/// The oldest Kubernetes whose API takes all that the operator makes: since 1.29 the fields of CSIDriver can be changed,
/// and the CEL rules need 1.30.
const OLDEST_KUBERNETES: KubernetesVersion = KubernetesVersion { major: 1, minor: 30 };

/// The longest path that the address of a Unix socket can hold.
const LONGEST_SOCKET_PATH: usize = 107;

/// What the operator knows of the cluster and of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Environment {
    /// The namespace of the operator, where the driver runs too.
    pub namespace: String,
    /// Version of the operator, and of the driver that it installs.
    pub operator_version: String,
    /// Version of the API server, where it is known.
    pub kubernetes_version: Option<KubernetesVersion>,
    /// Uid of the namespace kube-system, where it is known: it identifies the cluster.
    pub cluster_uid: Option<String>,
    /// How many nodes the cluster has.
    pub nodes: usize,
    /// The optional APIs that are served.
    pub apis: OptionalApis,
    /// What the clouds have told, by their names in the spec. One that was not seen yet is not among them.
    pub clouds: BTreeMap<String, CloudFacts>,
    /// The images of this installation.
    pub images: ImageSet,
}

/// Major and minor version of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KubernetesVersion {
    /// 1, so far.
    pub major: u32,
    /// As in 1.36.
    pub minor: u32,
}

impl KubernetesVersion {
    /// Reads what `/version` says. Some providers add a plus sign to the minor version.
    pub fn parse(major: &str, minor: &str) -> Option<Self> {
        let number = |text: &str| text.trim_end_matches('+').parse().ok();
        Some(Self {
            major: number(major)?,
            minor: number(minor)?,
        })
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Why a spec cannot be carried out. `reason` is part of the API: it becomes the reason of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// One word for programs.
    pub reason: &'static str,
    /// For people: the thing, what is wrong with it, what to do.
    pub message: String,
}

/// A spec with every default decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// Name of the CSI driver.
    pub driver_name: String,
    /// Beginning of the names of everything that is made for it.
    pub slug: String,
    /// The object that everything belongs to. None while it is not in a cluster.
    pub owner: Option<OwnerReference>,
    /// Where the driver runs.
    pub namespace: String,
    /// Version of the driver.
    pub version: String,
    /// What is written on every volume in Cinder.
    pub cluster_id: String,
    /// How much is logged.
    pub log_level: LogLevel,
    /// Whether zones are used.
    pub topology: bool,
    /// The images.
    pub images: ImageSet,
    /// When they are pulled.
    pub pull_policy: ImagePullPolicy,
    /// Secrets to pull them with.
    pub pull_secrets: Vec<String>,
    /// The controller's pods.
    pub controller: Controller,
    /// The nodes' pods.
    pub node: Node,
    /// The StorageClasses.
    pub storage_classes: Vec<StorageClassItem>,
}

/// The controller's pods.
#[derive(Clone, Debug, PartialEq)]
pub struct Controller {
    /// How many.
    pub replicas: i32,
    /// On which nodes.
    pub node_selector: BTreeMap<String, String>,
    /// In spite of which taints.
    pub tolerations: Option<Vec<Toleration>>,
    /// Near or far from what.
    pub affinity: Option<Affinity>,
    /// How important.
    pub priority_class_name: String,
    /// Resources of the driver's container.
    pub resources: Option<Resources>,
    /// csi-provisioner.
    pub provisioner: Sidecar,
    /// csi-attacher.
    pub attacher: Sidecar,
}

/// How a sidecar works. Times are written as Go reads them.
#[derive(Clone, Debug, PartialEq)]
pub struct Sidecar {
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
    /// Resources of the container.
    pub resources: Option<Resources>,
}

/// The nodes' pods.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What the pods do about the kubelet's registry of plugins.
    pub registration: Registration,
    /// The kubelet's root directory.
    pub kubelet_dir: String,
    /// Port of the driver's HTTP server on every node.
    pub http_port: u16,
    /// On which nodes.
    pub node_selector: BTreeMap<String, String>,
    /// In spite of which taints.
    pub tolerations: Option<Vec<Toleration>>,
    /// Near or far from what.
    pub affinity: Option<Affinity>,
    /// How important.
    pub priority_class_name: String,
    /// Resources of the driver's container.
    pub resources: Option<Resources>,
    /// How many nodes may be without the driver during an update.
    pub max_unavailable: IntOrString,
}

/// What the pods on the nodes do about the kubelet's registry of plugins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Registration {
    /// They register the driver.
    #[default]
    Register,
    /// They end the registration, as the step before the driver is taken away.
    Unregister,
}

/// Decides every default of `driver`'s spec, or says all that stands against it.
pub fn resolve(driver: &CinderCSIDriver, env: &Environment) -> Result<Resolved, Vec<Problem>> {
    let spec = &driver.spec;
    let driver_name = driver.metadata.name.clone().unwrap_or_default();
    let cluster_id = spec.cluster_id.clone().or_else(|| env.cluster_uid.clone());

    let problems = problems(&driver_name, cluster_id.as_deref(), &spec.node.kubelet_dir, env);
    let (Some(cluster_id), true) = (cluster_id, problems.is_empty()) else {
        return Err(problems);
    };

    Ok(Resolved {
        slug: slug(&driver_name),
        owner: driver.controller_owner_ref(&()),
        namespace: env.namespace.clone(),
        version: env.operator_version.clone(),
        cluster_id,
        log_level: spec.log_level,
        topology: spec.topology.mode == TopologyMode::Enabled,
        images: env.images.overridden_by(&spec.images.overrides),
        pull_policy: spec.images.pull_policy,
        pull_secrets: spec
            .images
            .pull_secrets
            .iter()
            .map(|secret| secret.name.clone())
            .collect(),
        controller: Controller {
            replicas: spec.controller.replicas.unwrap_or(if env.nodes >= 2 { 2 } else { 1 }),
            node_selector: spec.controller.node_selector.clone(),
            tolerations: spec.controller.tolerations.clone(),
            affinity: spec.controller.affinity.clone(),
            priority_class_name: spec.controller.priority_class_name.clone(),
            resources: spec.controller.resources.clone(),
            provisioner: sidecar(&spec.controller.sidecars.provisioner, "3m", "30m"),
            attacher: sidecar(&spec.controller.sidecars.attacher, "5m", "5m"),
        },
        node: Node {
            registration: Registration::Register,
            kubelet_dir: spec.node.kubelet_dir.clone(),
            http_port: spec.node.http_port,
            node_selector: spec.node.node_selector.clone(),
            tolerations: spec.node.tolerations.clone(),
            affinity: spec.node.affinity.clone(),
            priority_class_name: spec.node.priority_class_name.clone(),
            resources: spec.node.resources.clone(),
            max_unavailable: spec.node.max_unavailable.clone(),
        },
        storage_classes: spec
            .storage_classes
            .items
            .clone()
            .unwrap_or_else(|| vec![usual_class(&driver_name)]),
        driver_name,
    })
}

/// All that stands against a spec, beyond what the API server has checked when it took it.
fn problems(driver_name: &str, cluster_id: Option<&str>, kubelet_dir: &str, env: &Environment) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Some(version) = env.kubernetes_version.filter(|version| *version < OLDEST_KUBERNETES) {
        problems.push(Problem {
            reason: "UnsupportedKubernetes",
            message: format!(
                "this cluster runs Kubernetes {version}, and the operator needs {OLDEST_KUBERNETES} or later: upgrade \
                 the cluster"
            ),
        });
    }
    if cluster_id.is_none() {
        problems.push(Problem {
            reason: "ClusterUnidentified",
            message: "the namespace kube-system, whose uid identifies the cluster, cannot be read, and spec.clusterID \
                      is not set: let the operator's service account get that namespace, or make the object anew with \
                      spec.clusterID"
                .into(),
        });
    }
    // The CRD says this too; an object made under an older version of it may still break the rule.
    let socket = format!("{kubelet_dir}/plugins_registry/{driver_name}@reg.sock");
    if socket.len() > LONGEST_SOCKET_PATH {
        problems.push(Problem {
            reason: "PathTooLong",
            message: format!(
                "the driver's registration socket would be {socket}, {} characters of the {LONGEST_SOCKET_PATH} that \
                 the path of a socket may have: use a shorter metadata.name",
                socket.len()
            ),
        });
    }
    problems
}

fn sidecar(settings: &SidecarSettings, timeout: &str, retry_interval_max: &str) -> Sidecar {
    Sidecar {
        timeout: settings.timeout.clone().unwrap_or_else(|| timeout.into()),
        worker_threads: settings.worker_threads.unwrap_or(100),
        retry_interval_max: settings
            .retry_interval_max
            .clone()
            .unwrap_or_else(|| retry_interval_max.into()),
        kube_api_qps: settings.kube_api_qps.unwrap_or(20),
        kube_api_burst: settings.kube_api_burst.unwrap_or(100),
        resources: settings.resources.clone(),
    }
}

/// The class of a driver whose spec says nothing about classes. StorageClasses of two drivers cannot share a name.
fn usual_class(driver_name: &str) -> StorageClassItem {
    let name = if driver_name == DEFAULT_DRIVER_NAME {
        "cinder".into()
    } else {
        slug(driver_name)
    };
    StorageClassItem {
        name,
        ..StorageClassItem::default()
    }
}

/// The beginning of the names of a driver's objects: short for the usual driver, unique for every other one.
fn slug(driver_name: &str) -> String {
    if driver_name == DEFAULT_DRIVER_NAME {
        return "cinder-csi".into();
    }
    format!("cinder-csi-{}", hex(&Sha256::digest(driver_name)[..4]))
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
pub(crate) mod tests;
