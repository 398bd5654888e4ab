// SPDX-License-Identifier: Apache-2.0
//! APIs that some clusters do not serve. They depend on CustomResourceDefinitions or on later versions of Kubernetes.

use serde::{Deserialize, Serialize};

/// An API that some clusters do not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum)]
pub enum OptionalApi {
    /// VolumeSnapshots and their classes.
    Snapshots,
    /// VolumeGroupSnapshots and their classes.
    GroupSnapshots,
    /// ServiceMonitors and PrometheusRules.
    Monitoring,
    /// VolumeAttributesClasses, in the API since Kubernetes 1.34.
    VolumeAttributesClasses,
    /// ReferenceGrants of the Gateway API, in the version that csi-provisioner reads.
    ReferenceGrants,
}

impl OptionalApi {
    pub const ALL: [Self; 5] = [
        Self::Snapshots,
        Self::GroupSnapshots,
        Self::Monitoring,
        Self::VolumeAttributesClasses,
        Self::ReferenceGrants,
    ];

    /// Name in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Snapshots => "VolumeSnapshot",
            Self::GroupSnapshots => "VolumeGroupSnapshot",
            Self::Monitoring => "ServiceMonitor",
            Self::VolumeAttributesClasses => "VolumeAttributesClass",
            Self::ReferenceGrants => "ReferenceGrant",
        }
    }

    /// Returns the group and version that the operator uses, and the resources that a complete API includes.
    pub fn resources(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Snapshots => (
                "snapshot.storage.k8s.io/v1",
                &["volumesnapshots", "volumesnapshotcontents", "volumesnapshotclasses"],
            ),
            Self::GroupSnapshots => (
                "groupsnapshot.storage.k8s.io/v1",
                &[
                    "volumegroupsnapshots",
                    "volumegroupsnapshotcontents",
                    "volumegroupsnapshotclasses",
                ],
            ),
            Self::Monitoring => ("monitoring.coreos.com/v1", &["servicemonitors", "prometheusrules"]),
            Self::VolumeAttributesClasses => ("storage.k8s.io/v1", &["volumeattributesclasses"]),
            Self::ReferenceGrants => ("gateway.networking.k8s.io/v1beta1", &["referencegrants"]),
        }
    }
}

/// Optional APIs that the cluster serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_excessive_bools, reason = "facts, each for itself")]
pub struct OptionalApis {
    /// VolumeSnapshots and their classes.
    pub snapshots: bool,
    /// VolumeGroupSnapshots and their classes.
    pub group_snapshots: bool,
    /// ServiceMonitors and PrometheusRules.
    pub monitoring: bool,
    /// VolumeAttributesClasses.
    pub volume_attributes_classes: bool,
    /// ReferenceGrants. No pod template depends on them: only the spec determines whether they are used.
    #[serde(skip)]
    pub reference_grants: bool,
}

impl FromIterator<OptionalApi> for OptionalApis {
    fn from_iter<T: IntoIterator<Item = OptionalApi>>(served: T) -> Self {
        served
            .into_iter()
            .fold(Self::default(), |apis, api| apis.with(api, true))
    }
}

impl OptionalApis {
    /// Returns the same set with a different value for `api`.
    #[must_use]
    pub fn with(mut self, api: OptionalApi, served: bool) -> Self {
        match api {
            OptionalApi::Snapshots => self.snapshots = served,
            OptionalApi::GroupSnapshots => self.group_snapshots = served,
            OptionalApi::Monitoring => self.monitoring = served,
            OptionalApi::VolumeAttributesClasses => self.volume_attributes_classes = served,
            OptionalApi::ReferenceGrants => self.reference_grants = served,
        }
        self
    }

    /// Returns the APIs that pod templates depend on.
    #[must_use]
    pub fn of_pod_templates(self) -> Self {
        self.with(OptionalApi::Monitoring, false)
            .with(OptionalApi::ReferenceGrants, false)
    }

    /// Whether the cluster serves `api`.
    pub fn has(self, api: OptionalApi) -> bool {
        match api {
            OptionalApi::Snapshots => self.snapshots,
            OptionalApi::GroupSnapshots => self.group_snapshots,
            OptionalApi::Monitoring => self.monitoring,
            OptionalApi::VolumeAttributesClasses => self.volume_attributes_classes,
            OptionalApi::ReferenceGrants => self.reference_grants,
        }
    }
}
