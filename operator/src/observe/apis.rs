//! Which optional APIs the cluster serves. They come with CustomResourceDefinitions or with later versions of Kubernetes,
//! and may come and go while the operator runs.

/// An API that not every cluster serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
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

/// Which optional APIs the cluster serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
