// SPDX-License-Identifier: Apache-2.0
//! CreateVolume: creates a volume, or adopts the volume that an earlier attempt created under the same name.

use std::collections::BTreeMap;

use cinder_cloud::{
    Cloud, CloudConfig, CreatedVolume, ListedVolume, NewVolume, Source, Volume, VolumeId, VolumeMode, VolumeStatus,
};
use csi_host::{FsType, MkfsOptionError, MkfsOptions};
use csi_proto::csi::v1::volume_capability::AccessType;
use csi_proto::csi::v1::volume_content_source::{self, SnapshotSource, VolumeSource};
use csi_proto::csi::v1::{CreateVolumeRequest, CreateVolumeResponse, VolumeCapability, VolumeContentSource};
use tonic::Status;

use super::{ControllerService, encode, follow, size};
use crate::capability::Access;
use crate::clouds::CloudChoice;
use crate::operations::{Deadline, Target, with_deadline};
use crate::parameters::{
    CreateParameters, DESCRIPTION, GO_MKFS_OPTIONS, METADATA_CLUSTER, MKFS_OPTIONS, MutableParameters,
};
use crate::pvc_annotations::HintError;
use crate::status::CloudAction;
use crate::topology::Zones;
use crate::{fields, status};

/// A decoded request. Equal requests are one operation.
#[derive(Debug, Clone, PartialEq)]
struct DesiredVolume {
    new: NewVolume,
    zones: Zones,
    /// Namespace and name of the claim with the placement annotations.
    claim: Option<(String, String)>,
    /// The volume context for nodes.
    context: BTreeMap<String, String>,
}

/// Creates a volume. `OK` means that the volume is `available`.
///
/// The request is decoded and validated before any query for the volume. A refused request must not return the volume
/// of an earlier, valid one. Only the choice between several clouds may query them before.
pub(super) async fn create(
    service: &ControllerService,
    request: CreateVolumeRequest,
    deadline: Deadline,
) -> Result<CreateVolumeResponse, Status> {
    let requested = request
        .accessibility_requirements
        .as_ref()
        .filter(|_| service.settings.args.with_topology);
    let source = request.volume_content_source.clone().map(source).transpose()?;
    let clouds = &service.clouds;
    let place = clouds.choose_for_volume(&request.secrets, requested, source.as_ref(), &request.name);
    let CloudChoice { cloud, requirement } = with_deadline(deadline, "the choice of the cloud", place).await??;
    let request = CreateVolumeRequest {
        accessibility_requirements: requirement,
        ..request
    };
    let desired = decode_request(service, &cloud.config(), request)?;
    let target = Target::Name(desired.new.name.clone());
    service
        .operations
        .run("CreateVolume", target, desired.clone(), deadline, |progress| {
            let service = service.clone();
            async move {
                let cloud = cloud.check().await?;
                progress.set("looking for the volume by its name, else making it and waiting until it is available");
                follow(&progress, &cloud, desired.new.name.as_str());
                let desired = apply_hints(&service, &cloud, desired).await?;
                let created = cloud.create_volume(desired.new.clone()).await;
                let created = created.map_err(|error| status::from_cloud(CloudAction::Create, &error))?;
                build_response(&service, &cloud, &desired, created).await
            }
        })
        .await
}

fn decode_request(
    service: &ControllerService,
    config: &CloudConfig,
    request: CreateVolumeRequest,
) -> Result<DesiredVolume, Status> {
    fields::required_name("name", &request.name)?;
    let accesses = Access::decode_all("volume_capabilities", &request.volume_capabilities)?;
    let mutable = MutableParameters::decode(&request.mutable_parameters)
        .map_err(|error| status::invalid("mutable_parameters", error))?;
    let source = request.volume_content_source.map(source).transpose()?;
    let parameters =
        CreateParameters::decode(request.parameters).map_err(|error| status::invalid("parameters", error))?;
    for key in parameters.unknown() {
        tracing::warn!(
            parameter = key,
            "this parameter of the StorageClass is not known and has no effect"
        );
    }
    let templates = parameters
        .templates(&service.settings.args.volume_metadata, &service.settings.args.cluster)
        .map_err(|error| status::invalid("parameters", error))?;
    let claim = parameters.claim().filter(|_| service.settings.claims.is_some());
    let claim = claim.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
    let context = mkfs_context(&parameters, &request.volume_capabilities)
        .map_err(|error| status::invalid("parameters", error))?;
    let size = size::size(request.capacity_range.as_ref())?;
    let zones = if service.settings.args.with_topology {
        Zones::from_requirement(request.accessibility_requirements.as_ref(), &service.zone_names(config))
    } else {
        Zones::default()
    };
    let mut desired = DesiredVolume {
        new: NewVolume {
            name: request.name,
            size,
            largest: size::largest(request.capacity_range.as_ref()),
            source,
            mode: volume_mode(&accesses),
            allow_mode_change: parameters.allow_mode_change,
            multiattach: accesses.iter().any(|access| access.multi_node),
            availability_zone: parameters
                .availability
                .clone()
                .or_else(|| zones.first().map(str::to_owned)),
            // A repeated request may prefer another zone. If the class specifies a zone, only that zone is acceptable.
            acceptable_zones: match &parameters.availability {
                Some(zone) => vec![zone.clone()],
                None => zones.required().to_vec(),
            },
            description: DESCRIPTION.into(),
            metadata: parameters.metadata(&service.settings.args.cluster),
            same_host: Vec::new(),
            different_host: Vec::new(),
            mutable_metadata: BTreeMap::new(),
            volume_type: parameters.volume_type,
        },
        zones,
        claim,
        context,
    };
    mutable.apply(&mut desired.new);
    // Mutable metadata is stored separately and has precedence.
    for (key, value) in templates {
        if !desired.new.mutable_metadata.contains_key(&key) {
            desired.new.metadata.insert(key, value);
        }
    }
    if let Some(zone) = parameters
        .availability
        .filter(|zone| !is_reachable(config, &desired.zones, zone))
    {
        return Err(status::zone_impossible(unreachable_text(
            "parameter availability",
            &zone,
            &desired.zones,
        )));
    }
    Ok(desired)
}

/// Returns how pods use the volume; `None` if the request has both modes.
fn volume_mode(accesses: &[Access]) -> Option<VolumeMode> {
    let block = accesses.first()?.block;
    let is_one = accesses.iter().all(|access| access.block == block);
    is_one.then_some(if block {
        VolumeMode::Block
    } else {
        VolumeMode::Filesystem
    })
}

/// Returns the volume context with the options of mkfs.
///
/// The keys are those of this driver and of cinder-csi-plugin after 1.36, because nodes of either driver may format the
/// volume.
fn mkfs_context(
    parameters: &CreateParameters,
    capabilities: &[VolumeCapability],
) -> Result<BTreeMap<String, String>, String> {
    let Some(text) = parameters.mkfs_options()? else {
        return Ok(BTreeMap::new());
    };
    let options = MkfsOptions::parse(text);
    check_mkfs(&options, capabilities).map_err(|error| error.to_string())?;
    let pairs = [(MKFS_OPTIONS, text.to_owned()), (GO_MKFS_OPTIONS, options.to_string())];
    Ok(pairs.map(|(key, value)| (key.to_owned(), value)).into())
}

/// Rejects options that no node would pass to mkfs.
///
/// A volume without a file system needs none. If the request has no file system, the node's flag selects one, so the
/// options must be valid for at least one file system.
fn check_mkfs(options: &MkfsOptions, capabilities: &[VolumeCapability]) -> Result<(), MkfsOptionError> {
    for capability in capabilities {
        let Some(AccessType::Mount(mount)) = &capability.access_type else {
            continue;
        };
        let check = |fs_type| options.arguments(fs_type, &[], "").map(drop);
        match FsType::from_name(&mount.fs_type) {
            Some(fs_type) => check(fs_type)?,
            None => check(FsType::Ext4)
                .or_else(|error| check(FsType::Xfs).or_else(|_| check(FsType::Btrfs)).map_err(|_| error))?,
        }
    }
    Ok(())
}

/// Adds the hints of the claim's annotations, if annotations are enabled.
///
/// If the hints cannot be read, no volume is created, because a volume cannot be moved later. Invalid hints are an
/// error of the claim while no volume of this name exists. They are ignored after the volume was created.
async fn apply_hints(
    service: &ControllerService,
    cloud: &Cloud,
    mut desired: DesiredVolume,
) -> Result<DesiredVolume, Status> {
    let (Some(claims), Some((namespace, name))) = (&service.settings.claims, &desired.claim) else {
        return Ok(desired);
    };
    let hints = claims.hints(namespace, name).await;
    let hints = hints.map_err(|error| status::claim_unread(&error))?;
    match hints.resolve(cloud, &service.settings.args.cluster).await {
        Ok(resolved) => {
            desired.context.extend(resolved.context());
            desired.new.same_host = resolved.affinity;
            desired.new.different_host = resolved.anti_affinity;
            Ok(desired)
        }
        Err(HintError::Cloud(error)) => Err(status::from_cloud(CloudAction::Create, &error)),
        Err(error) => {
            let existing = cloud.volumes_named(&desired.new.name).await;
            let existing = existing.map_err(|error| status::from_cloud(CloudAction::Create, &error))?;
            // Hints concern the placement of a new volume. This volume is placed already, even if a volume in its hints
            // was deleted later.
            if existing.iter().any(|volume| is_placed(volume, &desired.new)) {
                return Ok(desired);
            }
            Err(status::hint_impossible(&error, !existing.is_empty()))
        }
    }
}

/// Whether an existing volume belongs to this cluster and is complete.
fn is_placed(volume: &Volume, new: &NewVolume) -> bool {
    let cluster = |metadata: &BTreeMap<String, String>| metadata.get(METADATA_CLUSTER).cloned();
    cluster(&volume.metadata) == cluster(&new.metadata)
        && matches!(volume.status, VolumeStatus::Available | VolumeStatus::InUse)
}

/// Parses the source of the volume. An id that is not a valid OpenStack id is reported as missing by the later query.
fn source(source: VolumeContentSource) -> Result<Source, Status> {
    const FIELD: &str = "volume_content_source";
    match source.r#type {
        Some(volume_content_source::Type::Snapshot(SnapshotSource { snapshot_id })) => {
            fields::required(FIELD, &snapshot_id)?;
            Ok(Source::PointInTime(snapshot_id))
        }
        Some(volume_content_source::Type::Volume(VolumeSource { volume_id })) => {
            fields::required(FIELD, &volume_id)?;
            Ok(Source::Volume(VolumeId::new(volume_id)))
        }
        None => Err(status::invalid(FIELD, "it names neither a snapshot nor a volume")),
    }
}

/// Builds the response from the volume in Cinder, not from the request, because Cinder may choose another zone.
///
/// A new volume that no pod could reach is deleted. An adopted volume may contain data and is never deleted.
async fn build_response(
    service: &ControllerService,
    cloud: &Cloud,
    desired: &DesiredVolume,
    created: CreatedVolume,
) -> Result<CreateVolumeResponse, Status> {
    let CreatedVolume { volume, adopted } = created;
    let misplaced = volume.availability_zone.as_deref().and_then(|zone| {
        let what = format!("volume {}", volume.id);
        if !is_reachable(&cloud.config(), &desired.zones, zone) {
            return Some(unreachable_text(&what, zone, &desired.zones));
        }
        // A repeated request would reject this volume, so this request must not return it.
        let fits = cloud.config().block_storage.ignore_volume_az || desired.new.fits_zone(zone);
        (!fits).then(|| elsewhere_text(&what, zone, &desired.new))
    });
    if let Some(text) = misplaced {
        if adopted {
            return Err(status::already_exists(text));
        }
        cloud
            .delete_volume(&volume.id)
            .await
            .map_err(|error| status::cleanup_failed(&error))?;
        return Err(status::zone_impossible(text));
    }
    let topology = match (
        service.settings.args.with_topology,
        cloud.config().block_storage.ignore_volume_az,
    ) {
        (false, _) => Vec::new(),
        (true, true) => desired.zones.requested_topology(),
        (true, false) => desired.zones.accessible_from(volume.availability_zone.as_deref()),
    };
    let mut volume = encode::volume(&ListedVolume::from(&volume), topology);
    volume.volume_context.extend(desired.context.clone());
    Ok(CreateVolumeResponse { volume: Some(volume) })
}

fn is_reachable(config: &CloudConfig, zones: &Zones, zone: &str) -> bool {
    config.block_storage.ignore_volume_az || zones.allows(zone)
}

fn unreachable_text(what: &str, zone: &str, zones: &Zones) -> String {
    format!(
        "{what}: zone {zone} is not among those from which the volume must be reachable ({}); where zones of compute and \
         storage have different names, name them by zone-map or set ignore-volume-az in cloud.conf (of a CinderCSIDriver: availabilityZoneMap of its \
         cloud, blockStorage.ignoreVolumeAZ)",
        zones.required().join(", ")
    )
}

fn elsewhere_text(what: &str, zone: &str, new: &NewVolume) -> String {
    format!(
        "{what}: Cinder made it in zone {zone} although {} was asked for; name a zone of Cinder's that has what is wanted, or set \
         ignore-volume-az in cloud.conf",
        new.availability_zone.as_deref().unwrap_or("another one")
    )
}

#[cfg(test)]
mod tests;
