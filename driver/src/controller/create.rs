// SPDX-License-Identifier: Apache-2.0
//! CreateVolume: a volume of the given name, made once however often it is asked for.

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
use crate::status::Act;
use crate::topology::Zones;
use crate::{fields, status};

/// What is asked for; equal requests are one operation.
#[derive(Debug, Clone, PartialEq)]
struct WantedVolume {
    new: NewVolume,
    zones: Zones,
    /// The claim whose annotations count.
    claim: Option<(String, String)>,
    /// What nodes are told of it.
    context: BTreeMap<String, String>,
}

/// Everything that the request alone tells is checked before any look-up: a refused request must not find the volume of an
/// earlier, good one. `OK` means that the volume is `available`.
pub(super) async fn create(
    service: &ControllerService,
    request: CreateVolumeRequest,
    deadline: Deadline,
) -> Result<CreateVolumeResponse, Status> {
    let asked = request
        .accessibility_requirements
        .as_ref()
        .filter(|_| service.settings.args.with_topology);
    let source = request.volume_content_source.clone().map(source).transpose()?;
    let clouds = &service.clouds;
    let place = clouds.place(&request.secrets, asked, source.as_ref(), &request.name);
    let CloudChoice { cloud, requirement } = with_deadline(deadline, "the choice of the cloud", place).await??;
    let request = CreateVolumeRequest {
        accessibility_requirements: requirement,
        ..request
    };
    let wanted = read(service, &cloud.config(), request)?;
    let target = Target::Name(wanted.new.name.clone());
    service
        .operations
        .run("CreateVolume", target, wanted.clone(), deadline, |progress| {
            let service = service.clone();
            async move {
                let cloud = cloud.check().await?;
                progress.set("looking for the volume by its name, else making it and waiting until it is available");
                follow(&progress, &cloud, wanted.new.name.as_str());
                let wanted = hinted(&service, &cloud, wanted).await?;
                let created = cloud.create_volume(wanted.new.clone()).await;
                let created = created.map_err(|error| status::cloud(Act::Create, &error))?;
                answer(&service, &cloud, &wanted, created).await
            }
        })
        .await
}

fn read(
    service: &ControllerService,
    config: &CloudConfig,
    request: CreateVolumeRequest,
) -> Result<WantedVolume, Status> {
    fields::required_name("name", &request.name)?;
    let accesses = Access::of_all("volume_capabilities", &request.volume_capabilities)?;
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
        Zones::of(request.accessibility_requirements.as_ref(), &service.zone_names(config))
    } else {
        Zones::default()
    };
    let mut wanted = WantedVolume {
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
            // A repeated request may prefer another zone; where the class names one, no other will do.
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
    mutable.apply(&mut wanted.new);
    // What may be changed later is kept apart, and goes before.
    for (key, value) in templates {
        if !wanted.new.mutable_metadata.contains_key(&key) {
            wanted.new.metadata.insert(key, value);
        }
    }
    if let Some(zone) = parameters
        .availability
        .filter(|zone| !reachable(config, &wanted.zones, zone))
    {
        return Err(status::zone_impossible(unreachable_text(
            "parameter availability",
            &zone,
            &wanted.zones,
        )));
    }
    Ok(wanted)
}

/// Returns how pods use the volume; `None` where the request has both modes.
fn volume_mode(accesses: &[Access]) -> Option<VolumeMode> {
    let block = accesses.first()?.block;
    let is_one = accesses.iter().all(|access| access.block == block);
    is_one.then_some(if block {
        VolumeMode::Block
    } else {
        VolumeMode::Filesystem
    })
}

/// The options of mkfs in the volume context, under the keys of this driver and of cinder-csi-plugin after 1.36. Nodes of either driver
/// may format the volume.
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

/// Refuses options that no node would give to mkfs. A volume without a file system needs none, and one whose file system is not named
/// gets what the node's flag says: the options have to suit one of them.
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

/// What is wanted with the hints of the claim's annotations, where they are read. Without them nothing is made: a volume cannot be
/// moved afterwards. A hint that cannot be followed is the claim's mistake as long as there is no volume
/// of this name, and without meaning once there is ours.
async fn hinted(service: &ControllerService, cloud: &Cloud, mut wanted: WantedVolume) -> Result<WantedVolume, Status> {
    let (Some(claims), Some((namespace, name))) = (&service.settings.claims, &wanted.claim) else {
        return Ok(wanted);
    };
    let hints = claims.hints(namespace, name).await;
    let hints = hints.map_err(|error| status::claim_unread(&error))?;
    match hints.find(cloud, &service.settings.args.cluster).await {
        Ok(found) => {
            wanted.context.extend(found.context());
            wanted.new.same_host = found.affinity;
            wanted.new.different_host = found.anti_affinity;
            Ok(wanted)
        }
        Err(HintError::Cloud(error)) => Err(status::cloud(Act::Create, &error)),
        Err(error) => {
            let there = cloud.volumes_named(&wanted.new.name).await;
            let there = there.map_err(|error| status::cloud(Act::Create, &error))?;
            // Hints place what is made: the volume has its place, even if one that it was to lie beside is gone since.
            if there.iter().any(|volume| is_placed(volume, &wanted.new)) {
                return Ok(wanted);
            }
            Err(status::hint_impossible(&error, !there.is_empty()))
        }
    }
}

/// Whether a volume of the wanted name is ours and will not be made again.
fn is_placed(volume: &Volume, new: &NewVolume) -> bool {
    let cluster = |metadata: &BTreeMap<String, String>| metadata.get(METADATA_CLUSTER).cloned();
    cluster(&volume.metadata) == cluster(&new.metadata)
        && matches!(volume.status, VolumeStatus::Available | VolumeStatus::InUse)
}

/// What the volume is to be filled with. An id that none of OpenStack's objects can have is found missing when it is looked for.
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

/// The answer is made from what Cinder has, never from what was asked for: it may place a volume elsewhere. A new volume
/// that no pod could reach is removed again; one that was there before may hold data and is never touched.
async fn answer(
    service: &ControllerService,
    cloud: &Cloud,
    wanted: &WantedVolume,
    created: CreatedVolume,
) -> Result<CreateVolumeResponse, Status> {
    let CreatedVolume { volume, adopted } = created;
    let misplaced = volume.availability_zone.as_deref().and_then(|zone| {
        let what = format!("volume {}", volume.id);
        if !reachable(&cloud.config(), &wanted.zones, zone) {
            return Some(unreachable_text(&what, zone, &wanted.zones));
        }
        // A repeated request would not take it for the same one, so that this one must not hand it out.
        let fits = cloud.config().block_storage.ignore_volume_az || wanted.new.fits_zone(zone);
        (!fits).then(|| elsewhere_text(&what, zone, &wanted.new))
    });
    if let Some(text) = misplaced {
        if adopted {
            return Err(status::already_exists(text));
        }
        cloud
            .delete_volume(&volume.id)
            .await
            .map_err(|error| status::clean_up(&error))?;
        return Err(status::zone_impossible(text));
    }
    let topology = match (
        service.settings.args.with_topology,
        cloud.config().block_storage.ignore_volume_az,
    ) {
        (false, _) => Vec::new(),
        (true, true) => wanted.zones.as_asked(),
        (true, false) => wanted.zones.of_volume(volume.availability_zone.as_deref()),
    };
    let mut volume = encode::volume(&ListedVolume::from(&volume), topology);
    volume.volume_context.extend(wanted.context.clone());
    Ok(CreateVolumeResponse { volume: Some(volume) })
}

fn reachable(config: &CloudConfig, zones: &Zones, zone: &str) -> bool {
    config.block_storage.ignore_volume_az || zones.allow(zone)
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
