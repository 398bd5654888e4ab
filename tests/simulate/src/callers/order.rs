// SPDX-License-Identifier: Apache-2.0
//! Claims of users: size, source, mode, and the class that selects a cloud.

use std::time::Duration;

use cinder_csi_driver::parameters::{SECRET_CLOUD, TOPOLOGY_ZONE};
use cinder_csi_driver::topology::REGION;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::volume_content_source::{self, SnapshotSource, VolumeSource};
use csi_proto::csi::v1::{CapacityRange, CreateVolumeRequest, Topology, TopologyRequirement, VolumeContentSource};

use crate::clouds::{CloudName, ENCRYPTED, SHARED, WEST_NAME, ZONES};
use crate::cluster::{Cluster, GIB, Secrets, VolumeMode};
use crate::ledger::ResourceState;

/// Limits of calls in real installations.
const LIMITS: [Duration; 3] = [Duration::from_secs(15), Duration::from_mins(1), Duration::from_mins(3)];

/// The source of a new volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    Nothing,
    Snapshot(String),
    Volume(String),
}

/// The request of a claim.
#[derive(Debug, Clone)]
pub(super) struct Order {
    pub(super) name: String,
    pub(super) bytes: i64,
    pub(super) mode: VolumeMode,
    pub(super) access: Mode,
    /// Topology in which the volume must be usable.
    pub(super) requirement: Option<TopologyRequirement>,
    pub(super) secrets: Secrets,
    /// Volume type; `None` is the type of the source, or Cinder's default.
    pub(super) volume_type: Option<&'static str>,
    pub(super) source: Source,
    /// Limit of one call.
    pub(super) limit: Duration,
}

impl Order {
    /// Draws a claim with a random size, source, mode and class.
    pub(super) fn draw(cluster: &Cluster) -> Self {
        let schedule = &cluster.schedule;
        let limit = schedule.one_of(&LIMITS);
        let source = source(cluster);
        let cloud = match &source {
            Source::Nothing if schedule.chance(750) => CloudName::Home,
            Source::Nothing => CloudName::West,
            Source::Snapshot(id) | Source::Volume(id) => cluster.clouds.cloud_of(id),
        };
        let modes = [
            VolumeMode::Filesystem("ext4"),
            VolumeMode::Filesystem("xfs"),
            VolumeMode::Filesystem("btrfs"),
            VolumeMode::Block,
        ];
        let mut order = Order {
            name: volume_name(cluster),
            // Cinder rounds up to whole GiB.
            bytes: GIB * i64::from(u8::try_from(1 + schedule.below(3)).unwrap_or(1))
                - schedule.one_of(&[0, 0, 1 << 20]),
            // A copy has the mode of its source.
            mode: match &source {
                Source::Nothing => schedule.one_of(&modes),
                Source::Snapshot(id) | Source::Volume(id) => cluster.backend.mode(id).unwrap_or_default(),
            },
            access: Mode::SingleNodeMultiWriter,
            requirement: None,
            secrets: Secrets::new(),
            volume_type: None,
            source,
            limit,
        };
        // Cinder copies only into the type of the source.
        let is_encrypted = order.source == Source::Nothing && schedule.chance(200);
        order.volume_type = is_encrypted.then_some(ENCRYPTED);
        choose_access(cluster, &mut order);
        choose_cloud(cluster, &mut order, cloud);
        order
    }

    pub(super) fn request(&self) -> CreateVolumeRequest {
        let source = match &self.source {
            Source::Nothing => None,
            Source::Snapshot(id) => Some(volume_content_source::Type::Snapshot(SnapshotSource {
                snapshot_id: id.clone(),
            })),
            Source::Volume(id) => Some(volume_content_source::Type::Volume(VolumeSource {
                volume_id: id.clone(),
            })),
        };
        CreateVolumeRequest {
            name: self.name.clone(),
            capacity_range: Some(CapacityRange {
                required_bytes: self.bytes,
                limit_bytes: 0,
            }),
            volume_capabilities: vec![self.mode.capability(self.access)],
            parameters: (self.volume_type.map(|name| ("type".to_owned(), name.to_owned())))
                .into_iter()
                .collect(),
            accessibility_requirements: self.requirement.clone(),
            secrets: self.secrets.clone(),
            volume_content_source: source.map(|source| VolumeContentSource { r#type: Some(source) }),
            ..CreateVolumeRequest::default()
        }
    }
}

/// Draws a snapshot or a volume of another claim, or no source.
fn source(cluster: &Cluster) -> Source {
    let schedule = &cluster.schedule;
    let book = cluster.ledger.book();
    let made = |known: &ResourceState| match known {
        ResourceState::Made(id) => Some(id.clone()),
        _ => None,
    };
    let snapshots: Vec<String> = book.snapshots.values().filter_map(made).collect();
    let volumes: Vec<String> = book.volumes.values().filter_map(made).collect();
    drop(book);
    let pick = |ids: &[String]| {
        let at = usize::try_from(schedule.below(ids.len() as u64)).unwrap_or_default();
        ids.get(at).cloned()
    };
    match schedule.below(10) {
        0..2 => pick(&snapshots).map_or(Source::Nothing, Source::Snapshot),
        2 => pick(&volumes).map_or(Source::Nothing, Source::Volume),
        _ => Source::Nothing,
    }
}

/// Returns the name of a new claim: sometimes one that another cluster uses too.
fn volume_name(cluster: &Cluster) -> String {
    foreign_name(cluster, "pvc").unwrap_or_else(|| format!("pvc-{}", cluster.schedule.sources().uuid()))
}

pub(super) fn snapshot_name(cluster: &Cluster, kind: &str) -> String {
    foreign_name(cluster, kind).unwrap_or_else(|| format!("{kind}-{}", cluster.schedule.sources().uuid()))
}

fn foreign_name(cluster: &Cluster, kind: &str) -> Option<String> {
    let schedule = &cluster.schedule;
    if !schedule.chance(20) {
        return None;
    }
    let names = cluster.clouds.foreign_names();
    let names: Vec<&str> = names.into_iter().filter(|name| name.starts_with(kind)).collect();
    let name = schedule.one_of(&names);
    let book = cluster.ledger.book();
    let is_free = !book.volumes.contains_key(name) && !book.snapshots.contains_key(name);
    is_free.then(|| name.to_owned())
}

fn choose_access(cluster: &Cluster, order: &mut Order) {
    let schedule = &cluster.schedule;
    order.access = schedule.one_of(&[
        Mode::SingleNodeWriter,
        Mode::SingleNodeMultiWriter,
        Mode::SingleNodeSingleWriter,
    ]);
    let can_share = order.mode == VolumeMode::Block && order.source == Source::Nothing && order.volume_type.is_none();
    if can_share && schedule.chance(400) {
        order.access = Mode::MultiNodeMultiWriter;
        order.volume_type = Some(SHARED);
    }
}

/// Draws how the request selects the cloud: by topology, by the secrets of the class, or by default.
fn choose_cloud(cluster: &Cluster, order: &mut Order, cloud: CloudName) {
    let schedule = &cluster.schedule;
    let zones: &[&str] = match cloud {
        // Cinder copies only into the zone of the source.
        CloudName::Home if order.source == Source::Nothing => &ZONES,
        CloudName::Home => &[],
        CloudName::West => &[WEST_NAME],
    };
    let region = match cloud {
        CloudName::Home => "RegionOne",
        CloudName::West => "RegionTwo",
    };
    let topology = |zone: Option<&str>| {
        let segments = [(REGION, Some(region)), (TOPOLOGY_ZONE, zone)].into_iter();
        let segments = segments.filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
        Topology {
            segments: segments.collect(),
        }
    };
    match schedule.below(4) {
        0 if cloud == CloudName::Home => {}
        1 if cloud == CloudName::West => {
            order.secrets = [(SECRET_CLOUD.to_owned(), WEST_NAME.to_owned())].into();
        }
        2 => order.secrets = cluster.clouds.secrets(cloud),
        _ => {
            let mut zones: Vec<Option<&str>> = zones.iter().map(|zone| Some(*zone)).collect();
            zones.retain(|_| schedule.chance(700));
            if zones.is_empty() {
                zones.push(None);
            }
            let requisite: Vec<Topology> = zones.into_iter().map(topology).collect();
            order.requirement = Some(TopologyRequirement {
                preferred: requisite.clone(),
                requisite,
            });
        }
    }
}
