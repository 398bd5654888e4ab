// SPDX-License-Identifier: Apache-2.0
//! The APIs that not every cluster serves. They come with CustomResourceDefinitions or with later versions of Kubernetes.

use serde::{Deserialize, Serialize};

/// An API that not every cluster serves.
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
}

impl OptionalApi {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Snapshots,
        Self::GroupSnapshots,
        Self::Monitoring,
        Self::VolumeAttributesClasses,
    ];

    /// Its name in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Snapshots => "VolumeSnapshot",
            Self::GroupSnapshots => "VolumeGroupSnapshot",
            Self::Monitoring => "ServiceMonitor",
            Self::VolumeAttributesClasses => "VolumeAttributesClass",
        }
    }

    /// The group and version that the operator uses, and the resources that make the API complete.
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
        }
    }
}

/// Which optional APIs the cluster serves.
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
}

impl FromIterator<OptionalApi> for OptionalApis {
    fn from_iter<T: IntoIterator<Item = OptionalApi>>(served: T) -> Self {
        served
            .into_iter()
            .fold(Self::default(), |apis, api| apis.with(api, true))
    }
}

impl OptionalApis {
    /// The same, but for `api`.
    #[must_use]
    pub fn with(mut self, api: OptionalApi, served: bool) -> Self {
        match api {
            OptionalApi::Snapshots => self.snapshots = served,
            OptionalApi::GroupSnapshots => self.group_snapshots = served,
            OptionalApi::Monitoring => self.monitoring = served,
            OptionalApi::VolumeAttributesClasses => self.volume_attributes_classes = served,
        }
        self
    }

    /// Whether `api` is served.
    pub fn has(self, api: OptionalApi) -> bool {
        match api {
            OptionalApi::Snapshots => self.snapshots,
            OptionalApi::GroupSnapshots => self.group_snapshots,
            OptionalApi::Monitoring => self.monitoring,
            OptionalApi::VolumeAttributesClasses => self.volume_attributes_classes,
        }
    }
}
