// SPDX-License-Identifier: Apache-2.0
//! The controller service, and what its calls share.

use std::future::{Ready, ready};
use std::sync::Arc;

use cinder_cloud::{Cloud, CloudConfig, ListedVolume};
use csi_proto::csi::v1::controller_service_capability::{Rpc, Type, rpc};
use csi_proto::csi::v1::{
    ControllerGetCapabilitiesRequest, ControllerGetCapabilitiesResponse, ControllerServiceCapability, VolumeHealth,
};
use csi_sources::Sources;
use tonic::Status;

use super::walk::Walks;
use crate::args::Args;
use crate::clouds::Clouds;
use crate::disabled_capabilities::DisabledCapabilities;
use crate::operations::{Deadline, Operations, Progress};
use crate::pvc_annotations::PvcAnnotations;
use crate::topology::ZoneNames;

/// The settings of the controller. They do not change.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The flags of the process.
    pub args: Args,
    /// The capabilities that are turned off.
    pub disabled: DisabledCapabilities,
    /// The reader of claims' annotations; without it they are not read.
    pub claims: Option<PvcAnnotations>,
    /// The source of the numbers of walks through lists.
    pub sources: Sources,
}

/// The service. Cheap to clone; clones share the clouds' sessions and the running operations.
#[derive(Debug, Clone)]
pub struct ControllerService {
    pub(super) clouds: Clouds,
    pub(super) operations: Operations,
    pub(super) settings: Arc<Settings>,
    pub(super) volume_walks: Walks<ListedVolume>,
    pub(super) health_walks: Walks<VolumeHealth>,
    pub(super) snapshot_walks: Walks<super::snapshots::ListedSnapshot>,
}

impl ControllerService {
    /// A service on these clouds.
    pub fn new(clouds: Clouds, operations: Operations, settings: Settings) -> Self {
        Self {
            clouds,
            operations,
            settings: Arc::new(settings),
            volume_walks: Walks::default(),
            health_walks: Walks::default(),
            snapshot_walks: Walks::default(),
        }
    }

    pub(crate) fn clouds(&self) -> &Clouds {
        &self.clouds
    }

    pub(crate) fn operations(&self) -> &Operations {
        &self.operations
    }

    /// Whether what bears the mark of another cluster is left alone.
    pub(crate) fn protects_other_clusters(&self) -> bool {
        self.settings.args.protect_other_clusters
    }

    /// The name of the cluster that the driver serves.
    pub(crate) fn cluster(&self) -> &str {
        &self.settings.args.cluster
    }

    /// How a cloud's zones are named.
    pub(super) fn zone_names(&self, config: &CloudConfig) -> ZoneNames {
        ZoneNames::new(&config.topology, self.settings.args.zone_labels)
    }

    pub(super) fn disabled(&self) -> &DisabledCapabilities {
        &self.settings.disabled
    }

    /// The working capabilities. They are fixed for the life of the process, because sidecars request them once.
    pub(super) fn capabilities(
        &self,
        _request: ControllerGetCapabilitiesRequest,
        _deadline: Deadline,
    ) -> Ready<Result<ControllerGetCapabilitiesResponse, Status>> {
        let mut capabilities = vec![
            rpc::Type::CreateDeleteVolume,
            rpc::Type::PublishUnpublishVolume,
            rpc::Type::ListVolumes,
            rpc::Type::ListVolumesPublishedNodes,
            rpc::Type::GetVolume,
            rpc::Type::ExpandVolume,
            rpc::Type::CloneVolume,
            rpc::Type::CreateDeleteSnapshot,
            rpc::Type::ListSnapshots,
            rpc::Type::GetSnapshot,
            rpc::Type::GetCapacity,
            rpc::Type::PublishReadonly,
            rpc::Type::ModifyVolume,
            rpc::Type::GetVolumeHealth,
            rpc::Type::ListVolumeHealth,
            rpc::Type::SingleNodeMultiWriter,
        ];
        capabilities.retain(|kind| self.disabled().advertises(kind.as_str_name()));
        let capability = |kind: rpc::Type| ControllerServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: kind as i32 })),
        };
        let capabilities = capabilities.into_iter().map(capability).collect();
        ready(Ok(ControllerGetCapabilitiesResponse { capabilities }))
    }
}

/// Lets those who wait for an operation read what the cloud was last seen doing with `volume`, an id or a new volume's name.
pub(super) fn follow(progress: &Progress, cloud: &Cloud, volume: impl Into<String>) {
    let (cloud, volume) = (cloud.clone(), volume.into());
    progress.follow(move || {
        let wait = cloud.progress(&volume)?;
        Some(format!(
            "volume {} was last seen {}, {:.1} s after the request",
            wait.id,
            wait.status,
            wait.waited.as_secs_f64()
        ))
    });
}
