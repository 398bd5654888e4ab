// SPDX-License-Identifier: Apache-2.0
//! What was observed.

use std::collections::BTreeSet;

use cinder_csi_crds::{CinderCSIDriver, DeletionPolicy, ManagementState, MonitoringMode};

use super::CloudView;
use crate::{cluster::VolumeCount, diagnosis::Stuck, problem::Problem, resolve::health::HealthSettings};

/// What is wanted for Prometheus, and what the cluster has a place for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MonitoringView {
    /// What the spec says.
    pub mode: MonitoringMode,
    /// Whether the cluster knows ServiceMonitors and PrometheusRules.
    pub served: bool,
}

/// What the operator cannot see of the cluster.
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

/// The object itself, as it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectFacts {
    /// Generation of the spec.
    pub generation: Option<i64>,
    /// What the spec asks for.
    pub state: ManagementState,
    /// Whether the object is being deleted.
    pub is_deleted: bool,
    /// What a removal does about volumes that are left.
    pub deletion_policy: DeletionPolicy,
}

impl ObjectFacts {
    /// Reads them.
    pub fn of(driver: &CinderCSIDriver) -> Self {
        Self {
            generation: driver.metadata.generation,
            state: driver.spec.management_state,
            is_deleted: driver.metadata.deletion_timestamp.is_some(),
            deletion_policy: driver.spec.deletion.policy,
        }
    }
}

/// The driver's volumes and attachments, which change more often than all else.
#[derive(Debug, Clone, Default)]
pub struct VolumeFacts {
    /// How many there are.
    pub count: VolumeCount,
    /// The zones of Nova that the nodes are in.
    pub node_zones: BTreeSet<String>,
    /// Operations that take longer than they may, the oldest first.
    pub stuck: Vec<Stuck>,
    /// How many others there are, younger than those.
    pub stuck_others: usize,
}

/// What was observed.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The object.
    pub object: ObjectFacts,
    /// What is wanted for Prometheus, and what the cluster has a place for.
    pub monitoring: MonitoringView,
    /// What the operator cannot see of the cluster.
    pub cluster: ClusterView,
    /// How clouds and volumes are watched.
    pub health: HealthSettings,
    /// The clouds of the spec.
    pub clouds: Vec<CloudView>,
    /// Clouds that the spec has no more and that volumes still need.
    pub needed_clouds: Vec<Problem>,
    /// Whether credentials of another project or region are refused.
    pub guard: ProjectGuard,
    /// The volumes.
    pub volumes: VolumeFacts,
}
