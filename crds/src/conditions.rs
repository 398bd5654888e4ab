//! The conditions of a `CinderCSIDriver`. Their names are part of the API.

use std::fmt;

/// The type of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// The driver works: the controller serves, the driver is registered on the nodes, its credentials log in.
    Available,
    /// What is wanted is being made.
    Progressing,
    /// Something needs a human.
    Degraded,
    /// This is a good moment for another version of the operator or of Kubernetes.
    Upgradeable,
    /// The operator changes nothing, because the spec says so.
    ReconciliationPaused,
    /// Somebody else changes what the operator keeps.
    DriftDetected,
    /// A removal waits for something.
    DeletionBlocked,
    /// The administrator changes what the operator makes.
    OverridesActive,
    /// The credentials log in, and do not end soon.
    CredentialsValid,
    /// The services of the clouds answer.
    BackendReachable,
    /// The zones of nodes and volumes fit together.
    TopologyConsistent,
    /// No quota is near its limit.
    QuotaSufficient,
    /// No operation on a volume takes longer than it may.
    VolumesHealthy,
    /// The clouds need not prove who they are.
    InsecureConfiguration,
    /// Prometheus and Grafana have what the spec wants them to have.
    MonitoringReady,
    /// Snapshots can be taken, or are not wanted.
    SnapshotsReady,
}

impl ConditionType {
    /// Every type, in the order of the status.
    pub const ALL: &'static [Self] = &[
        Self::Available,
        Self::Progressing,
        Self::Degraded,
        Self::Upgradeable,
        Self::ReconciliationPaused,
        Self::DriftDetected,
        Self::DeletionBlocked,
        Self::CredentialsValid,
        Self::BackendReachable,
        Self::TopologyConsistent,
        Self::QuotaSufficient,
        Self::VolumesHealthy,
        Self::InsecureConfiguration,
        Self::OverridesActive,
        Self::MonitoringReady,
        Self::SnapshotsReady,
    ];

    /// The status that means that nobody has to do anything.
    pub fn good_status(self) -> &'static str {
        match self {
            Self::CredentialsValid
            | Self::BackendReachable
            | Self::TopologyConsistent
            | Self::QuotaSufficient
            | Self::VolumesHealthy
            | Self::Upgradeable
            | Self::Available
            | Self::MonitoringReady
            | Self::SnapshotsReady => "True",
            Self::ReconciliationPaused
            | Self::DriftDetected
            | Self::DeletionBlocked
            | Self::Progressing
            | Self::Degraded
            | Self::OverridesActive
            | Self::InsecureConfiguration => "False",
        }
    }

    /// As in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Available => "Available",
            Self::Progressing => "Progressing",
            Self::Degraded => "Degraded",
            Self::Upgradeable => "Upgradeable",
            Self::ReconciliationPaused => "ReconciliationPaused",
            Self::DriftDetected => "DriftDetected",
            Self::DeletionBlocked => "DeletionBlocked",
            Self::CredentialsValid => "CredentialsValid",
            Self::BackendReachable => "BackendReachable",
            Self::TopologyConsistent => "TopologyConsistent",
            Self::QuotaSufficient => "QuotaSufficient",
            Self::VolumesHealthy => "VolumesHealthy",
            Self::InsecureConfiguration => "InsecureConfiguration",
            Self::OverridesActive => "OverridesActive",
            Self::MonitoringReady => "MonitoringReady",
            Self::SnapshotsReady => "SnapshotsReady",
        }
    }
}

impl fmt::Display for ConditionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
