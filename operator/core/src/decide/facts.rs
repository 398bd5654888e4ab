// SPDX-License-Identifier: Apache-2.0
//! The observations of a reconcile.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use cinder_csi_crds::{CinderCSIDriver, DeletionPolicy, ManagementState, MonitoringMode};
use kube::ResourceExt;
use serde_json::Value;

use super::cloud::CloudView;
use crate::{
    cluster::{AttachedNodes, Blockers, Installation, Key, NodePod, OptionalApis, Owner, VolumeCount},
    diagnosis::Stuck,
    manifests::DriverCredentials,
    migration::check::AdoptionFinding,
    plan::{LastApplied, Unapplied},
    problem::Problem,
    record::PlaceRecord,
    resolve::{Environment, health::HealthSettings},
};

/// The monitoring of the spec, and whether the cluster supports it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MonitoringView {
    pub mode: MonitoringMode,
    /// Whether the cluster knows ServiceMonitors and PrometheusRules.
    pub served: bool,
}

/// The gaps in the operator's knowledge of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// Objects that do not decode, each with its kind and the cause.
    pub undecodable: Vec<String>,
    /// Watches that fail repeatedly, each with the cause.
    pub failing_watches: Vec<String>,
}

/// Whether credentials of another project or region are refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ProjectGuard {
    /// They are refused while an object needs the driver.
    #[default]
    On,
    /// An administrator has confirmed a move by annotation.
    Off,
    /// The confirmed move was carried out.
    Moved,
}

/// The object itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectFacts {
    pub generation: Option<i64>,
    pub state: ManagementState,
    pub is_deleted: bool,
    pub deletion_policy: DeletionPolicy,
}

impl ObjectFacts {
    pub fn of(driver: &CinderCSIDriver) -> Self {
        Self {
            generation: driver.metadata.generation,
            state: driver.spec.management_state,
            is_deleted: driver.metadata.deletion_timestamp.is_some(),
            deletion_policy: driver.spec.deletion.policy,
        }
    }
}

/// The driver's volumes and attachments. They change more often than all other facts, and are read after the acts of a reconcile.
#[derive(Debug, Clone, Default)]
pub struct VolumeFacts {
    pub count: VolumeCount,
    /// The zones of Nova that the nodes are in.
    pub node_zones: BTreeSet<String>,
    /// Overdue operations, the oldest first.
    pub stuck: Vec<Stuck>,
    /// The number of other, younger overdue operations.
    pub stuck_others: usize,
}

/// The observations of one reconcile, complete before the decision.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub object: ObjectFacts,
    pub monitoring: MonitoringView,
    pub cluster: ClusterView,
    /// The settings for the checks of clouds and volumes.
    pub health: HealthSettings,
    /// The clouds of the spec.
    pub clouds: Vec<CloudView>,
    /// Clouds that the spec no longer has and that volumes still need.
    pub needed_clouds: Vec<Problem>,
    /// The driver's objects and all that a decision about them depends on. `None` while the driver is suspended or being removed.
    pub driver: Option<Box<DriverFacts>>,
}

/// The driver's objects and all that a decision about them depends on.
#[derive(Debug, Clone)]
pub struct DriverFacts {
    /// The objects that exist.
    pub live: BTreeMap<Key, Value>,
    /// The content that was applied last.
    pub last_applied: LastApplied,
    /// The kinds that could not be listed, each with the problem.
    pub unlisted: BTreeMap<&'static str, Problem>,
    /// The optional APIs that the API server serves now.
    pub served: OptionalApis,
    /// The properties of the cluster and of the operator.
    pub environment: Environment,
    pub credentials: CredentialFacts,
    /// The objects that block the deletion, where a deletion is blocked.
    pub blockers: Option<Blockers>,
    /// Whether this process has the Lease of the object.
    pub has_lease: bool,
    /// The fields that earlier applies did not change.
    pub unapplied: Unapplied,
    /// The desired objects that have existed, if this process knows them.
    pub known_objects: Option<BTreeSet<Key>>,
    /// Whether no other installation existed at the last search, which was recent.
    pub is_migration_settled: bool,
    /// The present time, by the clock of [`Unapplied`].
    pub instant: Instant,
    pub answers: QueryAnswers,
}

/// The credentials of all clouds.
#[derive(Debug, Clone, Default)]
pub struct CredentialFacts {
    /// The credentials that the driver gets.
    pub desired: Option<DriverCredentials>,
    /// The accepted credentials of each cloud.
    pub accepted: BTreeMap<String, DriverCredentials>,
    /// The previous credentials of the driver, by cloud.
    pub previous: BTreeMap<String, DriverCredentials>,
    /// The cloud without a name in the driver's Secret.
    pub unnamed: Option<String>,
    /// The record of project and region, once the driver has these credentials.
    pub record: PlaceRecord,
    /// Whether they change the project or region of a cloud, or drop a cloud, as an administrator confirmed.
    pub is_move: bool,
    /// The pause until the next check.
    pub next_check: Duration,
}

/// The answers to the [`super::Queries`] of a decision. `None` and missing entries are queries without an answer.
#[derive(Debug, Clone, Default)]
pub struct QueryAnswers {
    /// The objects that were read by name, whether they exist or not.
    pub objects: BTreeSet<Key>,
    /// The other installation, or the problem that it cannot be read for lack of rights.
    pub installation: Option<Result<Installation, Problem>>,
    /// The installations in other namespaces, or the cause that they are unknown.
    pub elsewhere: Option<Result<Vec<String>, String>>,
    pub own_part: Option<OwnPart>,
    /// The differences between this driver and the other installation.
    pub findings: Option<Vec<AdoptionFinding>>,
    /// The result of the dry run of the controller, with the message of the API server.
    pub trial: Option<Result<(), String>>,
    /// The users of objects that the plan recreates. Unused objects have an empty entry.
    pub uses: BTreeMap<Key, Option<String>>,
    pub attached_nodes: Option<AttachedNodes>,
    /// The newest remaining revisions of the templates of missing workloads.
    pub templates: BTreeMap<Key, Option<Value>>,
}

/// The pods of this driver, and the nodes that it serves, next to another installation.
#[derive(Debug, Clone, Default)]
pub struct OwnPart {
    /// The Ready nodes with a pod of the other installation.
    pub reachable_nodes: BTreeSet<String>,
    /// The nodes where the container of the node pod runs.
    pub running: BTreeSet<String>,
    /// The pods of the controller that may run.
    pub controller_pods: Vec<NodePod>,
    /// The Ready nodes that the DaemonSet selects.
    pub ready_nodes: BTreeSet<String>,
    /// The nodes that the DaemonSet selects.
    pub eligible_nodes: BTreeSet<String>,
    pub node_pods: Vec<NodePod>,
    /// The nodes with a registration of the driver.
    pub registered: BTreeSet<String>,
}

/// The owner of a driver's objects.
pub fn owner_of(driver: &CinderCSIDriver) -> Owner {
    Owner {
        name: driver.name_any(),
        uid: driver.uid().unwrap_or_default(),
    }
}
