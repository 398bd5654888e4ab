// SPDX-License-Identifier: Apache-2.0
//! Decodes and validates a CreateVolume request, as far as no cloud is needed.

use std::collections::BTreeMap;

use cinder_cloud::{NewVolume, Source, VolumeId, VolumeMode};
use csi_host::{FsType, MkfsOptionError, MkfsOptions};
use csi_proto::csi::v1::volume_capability::AccessType;
use csi_proto::csi::v1::volume_content_source::{self, SnapshotSource, VolumeSource};
use csi_proto::csi::v1::{CreateVolumeRequest, TopologyRequirement, VolumeCapability, VolumeContentSource};
use tonic::Status;

use super::super::{Settings, size};
use crate::capability::Access;
use crate::parameters::{CreateParameters, DESCRIPTION, GO_MKFS_OPTIONS, MKFS_OPTIONS, MutableParameters};
use crate::topology::Zones;
use crate::{fields, status};

/// A valid request, before the choice of its cloud.
#[derive(Debug)]
pub(super) struct CreateRequest {
    pub(super) secrets: BTreeMap<String, String>,
    /// The requested topology; `None` if topology is disabled.
    pub(super) requirement: Option<TopologyRequirement>,
    /// The zone of the class, which overrides any topology.
    pub(super) availability: Option<String>,
    /// The volume, without zones.
    pub(super) desired: DesiredVolume,
}

/// The desired volume in the chosen cloud. Equal requests are one operation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DesiredVolume {
    pub(super) new: NewVolume,
    pub(super) zones: Zones,
    /// Namespace and name of the claim with the placement annotations.
    pub(super) claim: Option<(String, String)>,
    /// The volume context for nodes.
    pub(super) context: BTreeMap<String, String>,
}

impl CreateRequest {
    pub(super) fn decode(request: CreateVolumeRequest, settings: &Settings) -> Result<Self, Status> {
        fields::required_name("name", &request.name)?;
        let accesses = Access::decode_all("volume_capabilities", &request.volume_capabilities)?;
        let mutable = MutableParameters::decode(&request.mutable_parameters)
            .map_err(|error| status::invalid("mutable_parameters", error))?;
        let source = request.volume_content_source.map(decode_source).transpose()?;
        let parameters =
            CreateParameters::decode(request.parameters).map_err(|error| status::invalid("parameters", error))?;
        for key in parameters.unknown() {
            tracing::warn!(
                parameter = key,
                "this parameter of the StorageClass is not known and has no effect"
            );
        }
        let templates = parameters
            .templates(&settings.args.volume_metadata, &settings.args.cluster)
            .map_err(|error| status::invalid("parameters", error))?;
        let claim = parameters.claim().filter(|_| settings.claims.is_some());
        let claim = claim.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
        let context = mkfs_context(&parameters, &request.volume_capabilities)
            .map_err(|error| status::invalid("parameters", error))?;
        let mut new = NewVolume {
            name: request.name,
            size: size::size(request.capacity_range.as_ref())?,
            largest: size::largest(request.capacity_range.as_ref()),
            source,
            mode: volume_mode(&accesses),
            allow_mode_change: parameters.allow_mode_change,
            multiattach: accesses.iter().any(|access| access.multi_node),
            availability_zone: None,
            acceptable_zones: Vec::new(),
            description: DESCRIPTION.into(),
            metadata: parameters.metadata(&settings.args.cluster),
            same_host: Vec::new(),
            different_host: Vec::new(),
            mutable_metadata: BTreeMap::new(),
            volume_type: parameters.volume_type,
        };
        mutable.apply(&mut new);
        // Mutable metadata is stored separately and has precedence.
        for (key, value) in templates {
            if !new.mutable_metadata.contains_key(&key) {
                new.metadata.insert(key, value);
            }
        }
        Ok(Self {
            secrets: request.secrets,
            requirement: request
                .accessibility_requirements
                .filter(|_| settings.args.with_topology),
            availability: parameters.availability,
            desired: DesiredVolume {
                new,
                zones: Zones::default(),
                claim,
                context,
            },
        })
    }
}

/// Parses the source of the volume. An id that is not a UUID belongs to no resource.
fn decode_source(source: VolumeContentSource) -> Result<Source, Status> {
    const FIELD: &str = "volume_content_source";
    match source.r#type {
        Some(volume_content_source::Type::Snapshot(SnapshotSource { snapshot_id })) => {
            fields::required(FIELD, &snapshot_id)?;
            if !VolumeId::new(snapshot_id.as_str()).is_uuid() {
                return Err(status::not_found("snapshot", &snapshot_id));
            }
            Ok(Source::PointInTime(snapshot_id))
        }
        Some(volume_content_source::Type::Volume(VolumeSource { volume_id })) => {
            let volume = VolumeId::new(fields::required(FIELD, &volume_id)?);
            if !volume.is_uuid() {
                return Err(status::not_found("volume", volume.as_str()));
            }
            Ok(Source::Volume(volume))
        }
        None => Err(status::invalid(FIELD, "it names neither a snapshot nor a volume")),
    }
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
/// The result has a key for this driver and one for cinder-csi-plugin after 1.36, because a node of either driver may
/// format the volume.
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
