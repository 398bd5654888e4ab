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

use super::list_cache::ListCache;
use crate::args::Args;
use crate::clouds::Clouds;
use crate::disabled_capabilities::DisabledCapabilities;
use crate::operations::{Deadline, Operations, Progress};
use crate::pvc_annotations::PvcAnnotations;
use crate::topology::ZoneNames;

/// The constant settings of the controller.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    pub args: Args,
    /// The disabled capabilities.
    pub disabled: DisabledCapabilities,
    /// The client for the annotations of claims; `None` if annotations are ignored.
    pub claims: Option<PvcAnnotations>,
    /// The source of the random numbers of list tokens.
    pub sources: Sources,
}

/// The Controller service. Cheap to clone; clones share the sessions and the running operations.
#[derive(Debug, Clone)]
pub struct ControllerService {
    pub(super) clouds: Clouds,
    pub(super) operations: Operations,
    pub(super) settings: Arc<Settings>,
    pub(super) volume_lists: ListCache<ListedVolume>,
    pub(super) health_lists: ListCache<VolumeHealth>,
    pub(super) snapshot_lists: ListCache<super::snapshots::ListedSnapshot>,
}

impl ControllerService {
    pub fn new(clouds: Clouds, operations: Operations, settings: Settings) -> Self {
        Self {
            clouds,
            operations,
            settings: Arc::new(settings),
            volume_lists: ListCache::default(),
            health_lists: ListCache::default(),
            snapshot_lists: ListCache::default(),
        }
    }

    pub(crate) fn clouds(&self) -> &Clouds {
        &self.clouds
    }

    pub(crate) fn operations(&self) -> &Operations {
        &self.operations
    }

    /// Whether objects of other clusters must not be deleted.
    pub(crate) fn protects_other_clusters(&self) -> bool {
        self.settings.args.protect_other_clusters
    }

    pub(crate) fn cluster(&self) -> &str {
        &self.settings.args.cluster
    }

    /// Returns the zone names of a cloud.
    pub(super) fn zone_names(&self, config: &CloudConfig) -> ZoneNames {
        ZoneNames::new(&config.topology, self.settings.args.zone_labels)
    }

    pub(super) fn disabled(&self) -> &DisabledCapabilities {
        &self.settings.disabled
    }

    /// Returns the advertised capabilities. They are constant for the life of the process, because sidecars query them
    /// once.
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

/// Adds the last known state of `volume`, an id or the name of a new volume, to the description of the operation.
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
