// SPDX-License-Identifier: Apache-2.0
//! Resolves a spec for a cluster: applies every default and collects every problem. The functions are pure.

use std::collections::{BTreeMap, BTreeSet};

use cinder_csi_crds::{
    CinderCSIDriver, CinderCSIDriverSpec, ImagePullPolicy, LogFormat, LogLevel, Monitoring, MonitoringMode,
    NetworkPolicy, Override, Proxy, VolumeAttributesClassItem,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;

use crate::clouds::CloudFacts;
use crate::cluster::{DefaultClassMark, KubernetesVersion, OptionalApi, OptionalApis, SnapshotContents, kind};
use crate::problem::Problem;
use crate::reasons::Degraded;
use crate::releases::{
    COMPONENTS, Component, ComponentRow, DRIVER_CONTAINER, ImageSet, InstalledImages, TemplateInputs, sidecars,
};
use crate::restrictions::Restrictions;

mod classes;
mod controller;
mod csi_driver;
pub mod health;
mod hold;
mod metadata;
mod names;
mod node;
mod other_drivers;
mod regions;
mod snapshots;
mod topology;

pub use classes::{Class, Classes, SkippedDefault};
pub use controller::{Controller, Sidecar};
pub use csi_driver::CsiDriver;
pub use hold::{HoldScope, SpecHold};
pub use names::{name_prefix_of, namespace_of};
pub use node::{Node, Registration};
pub use other_drivers::OtherDriver;
pub use snapshots::{ControllerSight, Snapshots};
pub use topology::interval as topology_interval;
pub use topology::{DISABLE_TOPOLOGY, Topology};

/// Oldest Kubernetes version with the required API: fields of CSIDriver are mutable since 1.29, and the CEL rules
/// need 1.30.
const OLDEST_KUBERNETES: KubernetesVersion = KubernetesVersion { major: 1, minor: 30 };

/// Maximum length of the path of a Unix socket, in bytes.
const LONGEST_SOCKET_PATH: usize = 107;

/// Facts about the cluster and the operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Environment {
    /// Namespace of the driver's pods.
    pub namespace: String,
    /// Version of the operator, and of the driver that it installs.
    pub operator_version: String,
    /// Version of the API server, if known.
    pub kubernetes_version: Option<KubernetesVersion>,
    /// Uid of the namespace kube-system, if known. It identifies the cluster.
    pub cluster_uid: Option<String>,
    /// Number of nodes in the cluster.
    pub nodes: usize,
    /// Optional APIs of the API server.
    pub apis: OptionalApis,
    /// Facts about the clouds, by their names in the spec. A cloud without a successful check has no entry.
    pub clouds: BTreeMap<String, CloudFacts>,
    /// Images of this installation.
    pub images: InstalledImages,
    /// Restrictions of the spec from the operator's flags.
    pub restrictions: Restrictions,
    /// The other CinderCSIDrivers of the cluster.
    pub other_drivers: Vec<OtherDriver>,
    /// StorageClasses of the cluster that are marked as the default.
    pub default_classes: Vec<DefaultClassMark>,
    /// Whether a snapshot-controller works in the cluster.
    pub snapshot_controller: ControllerSight,
    /// Snapshot contents of the driver.
    pub snapshot_contents: SnapshotContents,
    /// Clouds whose last check failed at least in part.
    pub silent_clouds: BTreeSet<String>,
    /// Number of PersistentVolumes of the driver that are bound to a zone.
    pub zoned_volumes: usize,
    /// Annotations of the CSIDriver object that record the location of the volumes.
    pub records: BTreeMap<String, String>,
    /// The difference between the CustomResourceDefinition of the cluster and that of the operator.
    pub definition_mismatch: Option<String>,
    pub now: Timestamp,
}

/// A spec with every default applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// Name of the CSI driver.
    pub driver_name: String,
    /// Prefix of the names of all objects of the driver.
    pub name_prefix: String,
    /// Owner of all objects. `None` while it does not exist in a cluster.
    pub owner: Option<OwnerReference>,
    /// Namespace of the driver's pods.
    pub namespace: String,
    /// Version of the driver.
    pub version: String,
    /// Identifier of the cluster in the metadata of every volume in Cinder.
    pub cluster_id: String,
    pub log_level: LogLevel,
    pub log_format: LogFormat,
    /// Row of the table of sidecars for the version of the cluster.
    pub version_set: &'static sidecars::VersionSet,
    /// Proxies between the driver and OpenStack.
    pub proxy: Option<Proxy>,
    pub csi_driver: CsiDriver,
    /// Annotations of the CSIDriver object that record the location of the volumes.
    pub records: BTreeMap<String, String>,
    pub network_policy: NetworkPolicy,
    /// The administrator's own patches of objects.
    pub overrides: Vec<Override>,
    /// Restrictions of these patches.
    pub restrictions: Restrictions,
    pub topology: Topology,
    /// Optional APIs that are served, or that retained objects need.
    pub apis: OptionalApis,
    pub images: ImageSet,
    pub pull_policy: ImagePullPolicy,
    /// Secrets with credentials for the registries.
    pub pull_secrets: Vec<String>,
    /// Controller pods.
    pub controller: Controller,
    /// Node pods.
    pub node: Node,
    pub storage_classes: Classes,
    /// Secrets that classes of the spec reference, whatever the state of the classes. Volumes of these classes need
    /// them until their deletion.
    pub class_secrets: BTreeSet<String>,
    pub snapshots: Snapshots,
    /// VolumeAttributesClasses. Empty if the cluster lacks their API.
    pub attributes_classes: Vec<VolumeAttributesClassItem>,
    /// Fields of the spec with classes of kinds that the cluster lacks.
    pub unknown_classes: Vec<String>,
    /// Other inputs of the pod templates, in addition to the spec, the credentials and the version.
    pub inputs: TemplateInputs,
    /// Whether the driver's containers serve their metrics over TLS.
    pub secure_metrics: bool,
    /// Monitoring objects. `None` if the spec or the cluster excludes them.
    pub monitoring: Option<Monitoring>,
}

/// Applies every default of `driver`'s spec, or returns all its problems.
pub fn resolve(driver: &CinderCSIDriver, env: &Environment) -> Result<Resolved, Vec<Problem>> {
    let (resolved, holds) = resolve_parts(driver, env);
    if holds.is_empty() {
        Ok(resolved)
    } else {
        Err(holds.into_iter().map(|hold| hold.problem).collect())
    }
}

/// Applies every default of `driver`'s spec. The result is not valid for objects in the scope of a returned problem.
/// They must not be applied.
pub fn resolve_parts(driver: &CinderCSIDriver, env: &Environment) -> (Resolved, Vec<SpecHold>) {
    let spec = &driver.spec;
    let driver_name = driver.metadata.name.clone().unwrap_or_default();
    let cluster_id = spec.cluster_id.clone().or_else(|| env.cluster_uid.clone());

    let mut holds = problems(&driver_name, cluster_id.as_deref(), &spec.node.kubelet_dir, env);
    holds.extend(env.definition_mismatch.as_deref().map(definition_hold));
    holds.extend(other_drivers::problems(driver, &env.other_drivers));
    let nodes = regions::problems(spec, env.kubernetes_version);
    let nodes = topology::problem(&spec.topology).into_iter().chain(nodes);
    holds.extend(nodes.map(|problem| SpecHold::new(problem, HoldScope::nodes())));
    holds.extend(controller::problem(&spec.controller, env.apis));
    holds.extend(metadata::problems(spec));
    let storage_classes = decide_classes(driver, &driver_name, env);
    let images = ImageSet::choose(
        &env.operator_version,
        env.kubernetes_version,
        spec.sidecar_policy,
        &env.images,
        &spec.images,
    );
    holds.extend(forbidden(spec, &images, &env.restrictions));

    let snapshots = decide_snapshots(driver, env);
    let apis = snapshots.complete_apis(env.apis);
    let topology = decide_topology(driver, env);
    let resolved = Resolved {
        name_prefix: name_prefix_of(driver),
        inputs: TemplateInputs {
            kubernetes: env.kubernetes_version,
            apis: env.apis.of_pod_templates(),
            topology: topology.enabled,
            images: env.images.clone(),
        },
        owner: driver.controller_owner_ref(&()),
        namespace: env.namespace.clone(),
        version: env.operator_version.clone(),
        cluster_id: cluster_id.unwrap_or_default(),
        log_level: spec.log_level,
        topology,
        pull_policy: spec.images.pull_policy,
        pull_secrets: spec
            .images
            .pull_secrets
            .iter()
            .map(|secret| secret.name.clone())
            .collect(),
        controller: controller::controller(
            &spec.controller,
            env.nodes,
            |component| gates(component, env, &images, apis),
            snapshots.run_sidecar(),
        ),
        node: node::node(spec, &driver_name),
        log_format: spec.log_format,
        version_set: sidecars::version_set(env.kubernetes_version),
        proxy: spec.proxy.clone(),
        csi_driver: csi_driver::csi_driver(&spec.csi_driver, env.kubernetes_version),
        records: env.records.clone(),
        network_policy: spec.network_policy,
        overrides: spec.overrides.clone(),
        restrictions: env.restrictions.clone(),
        apis,
        images,
        monitoring: (spec.monitoring.mode != MonitoringMode::Disabled && env.apis.has(OptionalApi::Monitoring))
            .then(|| spec.monitoring.clone()),
        secure_metrics: spec.monitoring.secure,
        storage_classes,
        class_secrets: (spec.storage_classes.items.iter().flatten())
            .filter_map(|class| class.secret_name.clone())
            .collect(),
        snapshots,
        unknown_classes: unknown_classes(spec, env.apis),
        attributes_classes: if env.apis.has(OptionalApi::VolumeAttributesClasses) {
            spec.volume_attributes_classes.items.clone()
        } else {
            Vec::new()
        },
        driver_name,
    };
    (resolved, holds)
}

/// Applies every default of `driver`'s spec for other template inputs than the current ones.
pub fn resolve_for(driver: &CinderCSIDriver, env: &Environment, inputs: &TemplateInputs) -> Resolved {
    let env = Environment {
        kubernetes_version: inputs.kubernetes,
        apis: inputs.apis,
        images: inputs.images.clone(),
        ..env.clone()
    };
    let (mut resolved, _) = resolve_parts(driver, &env);
    resolved.topology.enabled = inputs.topology;
    resolved.inputs = inputs.clone();
    resolved
}

/// Returns the feature gates that the release needs in this cluster.
fn gates(component: Component, env: &Environment, images: &ImageSet, apis: OptionalApis) -> BTreeMap<String, bool> {
    let release = images.get(component).and_then(|image| image.release.as_ref());
    release
        .map(|release| sidecars::gates(component, release, env.kubernetes_version, apis))
        .unwrap_or_default()
}

/// Returns the parts of the spec that the operator's flags forbid.
fn forbidden(spec: &CinderCSIDriverSpec, images: &ImageSet, restrictions: &Restrictions) -> Vec<SpecHold> {
    let mut holds = Vec::new();
    if restrictions.no_overrides && !spec.overrides.is_empty() {
        let targets = spec.overrides.iter().map(|patch| &patch.target);
        let targets = targets.map(|target| (target.kind.clone(), target.name.clone()));
        holds.push(SpecHold::new(
            Problem {
                reason: Degraded::OverridesForbidden,
                message: "spec.overrides is set, and this operator runs with --allow-overrides=false: take it out, or ask who runs the \
                          operator. The objects that it names keep their last applied content"
                    .to_owned(),
            },
            HoldScope::Objects(targets.collect()),
        ));
    }
    let is_refused = |row: &&ComponentRow| !restrictions.allows(&images.name(row.component));
    let refused: Vec<&ComponentRow> = COMPONENTS.iter().filter(is_refused).collect();
    if !refused.is_empty() {
        let names: BTreeSet<String> = refused.iter().map(|row| images.name(row.component)).collect();
        holds.push(SpecHold::new(
            Problem {
                reason: Degraded::ImageForbidden,
                message: format!(
                    "these images are from none of the registries of the operator's --allowed-registries ({}): {}; name others in \
                     spec.images. The workloads that use them keep their last applied content",
                    restrictions.registries.join(", "),
                    names.into_iter().collect::<Vec<_>>().join(", ")
                ),
            },
            HoldScope::Kinds(users_of(&refused)),
        ));
    }
    holds
}

/// Returns the kinds of workloads that run one of these components.
fn users_of(components: &[&ComponentRow]) -> Vec<&'static str> {
    let is_of_nodes = |row: &&ComponentRow| row.sidecar.is_none();
    let is_of_controller = |row: &&ComponentRow| row.sidecar.is_some() || row.container == DRIVER_CONTAINER;
    let controller = components.iter().any(is_of_controller).then_some(kind::DEPLOYMENT);
    let nodes = components.iter().any(is_of_nodes).then_some(kind::DAEMON_SET);
    controller.into_iter().chain(nodes).collect()
}

/// Holds the workloads under a definition of another release. The API server may have dropped fields of the spec that
/// they depend on.
fn definition_hold(mismatch: &str) -> SpecHold {
    let problem = Problem {
        reason: Degraded::CRDMismatch,
        message: format!("{mismatch}. The pods of the driver are not changed meanwhile"),
    };
    SpecHold::new(problem, HoldScope::Kinds(vec![kind::DEPLOYMENT, kind::DAEMON_SET]))
}

/// Returns all problems of a spec that the API server does not detect.
fn problems(driver_name: &str, cluster_id: Option<&str>, kubelet_dir: &str, env: &Environment) -> Vec<SpecHold> {
    let mut holds = Vec::new();
    if let Some(version) = env.kubernetes_version.filter(|version| *version < OLDEST_KUBERNETES) {
        holds.push(SpecHold::new(
            Problem {
                reason: Degraded::UnsupportedKubernetes,
                message: format!(
                    "this cluster runs Kubernetes {version}, and the operator needs {OLDEST_KUBERNETES} or later: upgrade \
                     the cluster"
                ),
            },
            HoldScope::All,
        ));
    }
    if cluster_id.is_none() {
        holds.push(SpecHold::new(
            Problem {
                reason: Degraded::ClusterIDUnknown,
                message: "the namespace kube-system, whose uid identifies the cluster, cannot be read, and spec.clusterID \
                          is not set: let the operator's service account get that namespace, or create the object again with \
                          spec.clusterID"
                    .into(),
            },
            HoldScope::Kinds(vec![kind::DEPLOYMENT]),
        ));
    }
    // The CRD has the same rule, but an object from before the rule may break it.
    let socket = format!("{kubelet_dir}/plugins_registry/{driver_name}@reg.sock");
    if socket.len() > LONGEST_SOCKET_PATH {
        holds.push(SpecHold::new(
            Problem {
                reason: Degraded::InvalidSpec,
                message: format!(
                    "the driver's registration socket would be {socket}, {} characters of the {LONGEST_SOCKET_PATH} that \
                     the path of a socket may have: use a shorter metadata.name",
                    socket.len()
                ),
            },
            HoldScope::nodes(),
        ));
    }
    holds
}

/// Returns the classes of kinds that the cluster lacks. Snapshot classes depend on the snapshot API.
fn unknown_classes(spec: &CinderCSIDriverSpec, apis: OptionalApis) -> Vec<String> {
    let is_unknown = !apis.volume_attributes_classes && !spec.volume_attributes_classes.items.is_empty();
    let field = || "spec.volumeAttributesClasses".to_owned();
    is_unknown.then(field).into_iter().collect()
}

fn decide_snapshots(driver: &CinderCSIDriver, env: &Environment) -> Snapshots {
    let status = driver.status.as_ref();
    snapshots::snapshots(&snapshots::SnapshotsInput {
        spec: &driver.spec.snapshots,
        usual_class: &names::usual_class(driver),
        apis: env.apis,
        sight: &env.snapshot_controller,
        contents: &env.snapshot_contents,
        recorded: status
            .map(|status| status.snapshot_contents.as_slice())
            .unwrap_or_default(),
    })
}

fn decide_classes(driver: &CinderCSIDriver, driver_name: &str, env: &Environment) -> Classes {
    let status = driver.status.as_ref();
    classes::classes(&classes::ClassesInput {
        driver_name,
        usual_class: &names::usual_class(driver),
        spec: &driver.spec.storage_classes,
        before: status.and_then(|status| status.storage_classes.as_ref()),
        marked: &env.default_classes,
    })
}

fn decide_topology(driver: &CinderCSIDriver, env: &Environment) -> Topology {
    let metadata = &driver.metadata;
    let annotations = metadata.annotations.as_ref();
    let confirmation = annotations.and_then(|annotations| annotations.get(topology::DISABLE_TOPOLOGY));
    topology::topology(&topology::TopologyInput {
        spec: &driver.spec.topology,
        is_consistent: topology::is_consistent(&driver.spec.clouds, &env.clouds, &env.silent_clouds),
        compute_zones: topology::compute_zones(&driver.spec.clouds, &env.clouds, &env.silent_clouds).as_ref(),
        before: driver.status.as_ref().and_then(|status| status.topology.as_ref()),
        made: metadata.creation_timestamp.as_ref().map(|time| time.0),
        zoned_volumes: env.zoned_volumes,
        is_confirmed: confirmation.is_some() && confirmation == metadata.uid.as_ref(),
        now: env.now,
    })
}

#[cfg(test)]
pub(crate) mod tests;
