// SPDX-License-Identifier: Apache-2.0
//! Invalid requests are refused without a request to any cloud.

use std::collections::BTreeMap;

use csi_proto::csi::v1::group_controller_client::GroupControllerClient;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};
use csi_proto::csi::v1::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerModifyVolumeRequest, ControllerPublishVolumeRequest,
    CreateSnapshotRequest, CreateVolumeGroupSnapshotRequest, CreateVolumeRequest, Topology, TopologyRequirement,
    VolumeCapability, VolumeContentSource,
};
use openstack_sim::Sim;
use tonic::{Code, Status};

use crate::clouds::{REGION, two_clouds};
use crate::support::{Driver, GIB, NODE, UNKNOWN, ZONE, capability, cloud, create_request, patient, publish_request};

#[derive(Debug, Clone)]
enum Invalid {
    Create(CreateVolumeRequest),
    Snapshot(CreateSnapshotRequest),
    Publish(ControllerPublishVolumeRequest),
    Expand(ControllerExpandVolumeRequest),
    Modify(ControllerModifyVolumeRequest),
    Group(CreateVolumeGroupSnapshotRequest),
}

impl Invalid {
    async fn send(self, driver: &Driver) -> Result<(), Status> {
        let mut controller = driver.controller();
        match self {
            Self::Create(request) => controller.create_volume(patient(request)).await.map(drop),
            Self::Snapshot(request) => controller.create_snapshot(patient(request)).await.map(drop),
            Self::Publish(request) => controller.controller_publish_volume(patient(request)).await.map(drop),
            Self::Expand(request) => controller.controller_expand_volume(patient(request)).await.map(drop),
            Self::Modify(request) => controller.controller_modify_volume(patient(request)).await.map(drop),
            Self::Group(request) => {
                let mut groups = GroupControllerClient::new(driver.channel());
                groups.create_volume_group_snapshot(patient(request)).await.map(drop)
            }
        }
    }
}

fn map(key: &str, value: &str) -> BTreeMap<String, String> {
    [(key.to_owned(), value.to_owned())].into()
}

fn range(required_bytes: i64, limit_bytes: i64) -> CapacityRange {
    CapacityRange {
        required_bytes,
        limit_bytes,
    }
}

fn snapshot_source(id: &str) -> VolumeContentSource {
    let snapshot_id = id.into();
    VolumeContentSource {
        r#type: Some(Type::Snapshot(SnapshotSource { snapshot_id })),
    }
}

fn volume_source(id: &str) -> VolumeContentSource {
    let volume_id = id.into();
    VolumeContentSource {
        r#type: Some(Type::Volume(VolumeSource { volume_id })),
    }
}

fn without_access_type() -> VolumeCapability {
    VolumeCapability {
        access_type: None,
        ..capability(Mode::SingleNodeWriter)
    }
}

/// The nodes of both clouds, in zone `nova`.
fn in_both_regions() -> TopologyRequirement {
    let node = |region: &str| Topology {
        segments: [(REGION, region), (ZONE, "nova")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
    };
    TopologyRequirement {
        requisite: vec![node("east"), node("west")],
        preferred: vec![node("west")],
    }
}

type Change = fn(&mut CreateVolumeRequest);

/// Each field of CreateVolume with invalid values.
const CREATE: [(&str, Code, Change); 26] = [
    ("no name", Code::InvalidArgument, |new| new.name.clear()),
    ("long name", Code::InvalidArgument, |new| new.name = "n".repeat(129)),
    ("control character in the name", Code::InvalidArgument, |new| {
        new.name = "a\u{0}b".into();
    }),
    ("no capability", Code::InvalidArgument, |new| {
        new.volume_capabilities.clear();
    }),
    ("no access type", Code::InvalidArgument, |new| {
        new.volume_capabilities = vec![without_access_type()];
    }),
    ("unknown access mode", Code::InvalidArgument, |new| {
        new.volume_capabilities = vec![capability(Mode::Unknown)];
    }),
    ("empty range", Code::InvalidArgument, |new| {
        new.capacity_range = Some(range(0, 0));
    }),
    ("negative size", Code::InvalidArgument, |new| {
        new.capacity_range = Some(range(-1, 0));
    }),
    ("size above the limit", Code::InvalidArgument, |new| {
        new.capacity_range = Some(range(2 * GIB, GIB));
    }),
    ("limit below one GiB", Code::OutOfRange, |new| {
        new.capacity_range = Some(range(0, GIB - 1));
    }),
    ("enormous size", Code::OutOfRange, |new| {
        new.capacity_range = Some(range(i64::MAX, 0));
    }),
    ("empty source", Code::InvalidArgument, |new| {
        new.volume_content_source = Some(VolumeContentSource { r#type: None });
    }),
    ("empty snapshot id", Code::InvalidArgument, |new| {
        new.volume_content_source = Some(snapshot_source(""));
    }),
    ("empty volume id", Code::InvalidArgument, |new| {
        new.volume_content_source = Some(volume_source(""));
    }),
    ("invalid snapshot id", Code::NotFound, |new| {
        new.volume_content_source = Some(snapshot_source("snapshot-1"));
    }),
    ("invalid volume id", Code::NotFound, |new| {
        new.volume_content_source = Some(volume_source("volume-1"));
    }),
    ("unknown mutable parameter", Code::InvalidArgument, |new| {
        new.mutable_parameters = map("tpye", "fast");
    }),
    ("invalid mutable parameter", Code::InvalidArgument, |new| {
        new.mutable_parameters = map("migration-policy", "always");
    }),
    ("reserved mutable metadata", Code::InvalidArgument, |new| {
        new.mutable_parameters = map("metadata.readonly", "x");
    }),
    ("invalid parameter", Code::InvalidArgument, |new| {
        new.parameters = map("allowVolumeModeChange", "perhaps");
    }),
    ("invalid metadata of the class", Code::InvalidArgument, |new| {
        new.parameters = map("appendVolumeMetadata", "no JSON");
    }),
    ("reserved metadata of the class", Code::InvalidArgument, |new| {
        new.parameters = map("appendVolumeMetadata", r#"{"readonly": "x"}"#);
    }),
    ("different options of mkfs", Code::InvalidArgument, |new| {
        new.parameters = map("mkfsOptions", "-m 1");
        new.parameters.extend(map("mkfs-options", "-m 2"));
    }),
    ("forbidden option of mkfs", Code::InvalidArgument, |new| {
        new.parameters = map("mkfsOptions", "/dev/sda");
    }),
    ("unreachable zone", Code::ResourceExhausted, |new| {
        new.parameters = map("availability", "elsewhere");
    }),
    ("unknown cloud", Code::InvalidArgument, |new| {
        new.secrets = map("cloud", "north");
    }),
];

fn creations() -> Vec<(String, Code, Invalid)> {
    let mut all = Vec::new();
    for (what, code, change) in CREATE {
        let plain = CreateVolumeRequest {
            accessibility_requirements: Some(in_both_regions()),
            ..create_request("pvc-1")
        };
        let copy = CreateVolumeRequest {
            volume_content_source: Some(volume_source(UNKNOWN)),
            ..plain.clone()
        };
        for (kind, mut request) in [("volume", plain), ("copy", copy)] {
            change(&mut request);
            all.push((format!("{kind} with {what}"), code, Invalid::Create(request)));
        }
    }
    all
}

fn snapshots() -> Vec<(String, Code, Invalid)> {
    let valid = CreateSnapshotRequest {
        name: "snapshot-1".into(),
        source_volume_id: UNKNOWN.into(),
        ..CreateSnapshotRequest::default()
    };
    let with = |key: &str, value: &str| CreateSnapshotRequest {
        parameters: map(key, value),
        ..valid.clone()
    };
    let of_volume = |id: &str| CreateSnapshotRequest {
        source_volume_id: id.into(),
        ..valid.clone()
    };
    let named = |name: String| CreateSnapshotRequest { name, ..valid.clone() };
    let cases = [
        ("no name", Code::InvalidArgument, named(String::new())),
        ("long name", Code::InvalidArgument, named("n".repeat(129))),
        ("no volume", Code::InvalidArgument, of_volume("")),
        ("invalid volume id", Code::NotFound, of_volume("volume-1")),
        ("invalid type", Code::InvalidArgument, with("type", "bakcup")),
        ("invalid switch", Code::InvalidArgument, with("force-create", "perhaps")),
        (
            "invalid metadata",
            Code::InvalidArgument,
            with("appendVolumeMetadata", "no JSON"),
        ),
        (
            "invalid pace",
            Code::InvalidArgument,
            with("backup-max-duration-seconds-per-gb", "fast"),
        ),
    ];
    cases
        .into_iter()
        .map(|(what, code, request)| (format!("snapshot with {what}"), code, Invalid::Snapshot(request)))
        .collect()
}

fn attachments() -> Vec<(String, Code, Invalid)> {
    let with = |volume_capability| ControllerPublishVolumeRequest {
        volume_capability,
        ..publish_request(UNKNOWN, NODE)
    };
    let cases = [
        ("no volume", Code::InvalidArgument, publish_request("", NODE)),
        ("invalid volume id", Code::NotFound, publish_request("volume-1", NODE)),
        ("no node", Code::InvalidArgument, publish_request(UNKNOWN, "")),
        ("invalid node id", Code::NotFound, publish_request(UNKNOWN, "node-1")),
        ("no capability", Code::InvalidArgument, with(None)),
        (
            "no access type",
            Code::InvalidArgument,
            with(Some(without_access_type())),
        ),
        (
            "unknown access mode",
            Code::InvalidArgument,
            with(Some(capability(Mode::Unknown))),
        ),
    ];
    cases
        .into_iter()
        .map(|(what, code, request)| (format!("publish with {what}"), code, Invalid::Publish(request)))
        .collect()
}

fn expansions() -> Vec<(String, Code, Invalid)> {
    let expand = |volume_id: &str, capacity_range, volume_capability| ControllerExpandVolumeRequest {
        volume_id: volume_id.into(),
        capacity_range,
        volume_capability,
        ..ControllerExpandVolumeRequest::default()
    };
    let good = Some(range(GIB, 0));
    let cases = [
        ("no volume", Code::InvalidArgument, expand("", good, None)),
        ("invalid volume id", Code::NotFound, expand("volume-1", good, None)),
        ("no range", Code::InvalidArgument, expand(UNKNOWN, None, None)),
        (
            "empty range",
            Code::InvalidArgument,
            expand(UNKNOWN, Some(range(0, 0)), None),
        ),
        (
            "negative size",
            Code::InvalidArgument,
            expand(UNKNOWN, Some(range(-1, 0)), None),
        ),
        (
            "enormous size",
            Code::OutOfRange,
            expand(UNKNOWN, Some(range(i64::MAX, 0)), None),
        ),
        (
            "no access type",
            Code::InvalidArgument,
            expand(UNKNOWN, good, Some(without_access_type())),
        ),
    ];
    cases
        .into_iter()
        .map(|(what, code, request)| (format!("expansion with {what}"), code, Invalid::Expand(request)))
        .collect()
}

fn modifications() -> Vec<(String, Code, Invalid)> {
    let modify = |volume_id: &str, mutable_parameters| ControllerModifyVolumeRequest {
        volume_id: volume_id.into(),
        mutable_parameters,
        ..ControllerModifyVolumeRequest::default()
    };
    let good = map("type", "fast");
    let cases = [
        ("no volume", Code::InvalidArgument, modify("", good.clone())),
        ("invalid volume id", Code::NotFound, modify("volume-1", good)),
        ("no parameter", Code::InvalidArgument, modify(UNKNOWN, BTreeMap::new())),
        (
            "unknown parameter",
            Code::InvalidArgument,
            modify(UNKNOWN, map("tpye", "fast")),
        ),
        ("empty type", Code::InvalidArgument, modify(UNKNOWN, map("type", ""))),
        (
            "reserved metadata",
            Code::InvalidArgument,
            modify(UNKNOWN, map("metadata.readonly", "x")),
        ),
    ];
    cases
        .into_iter()
        .map(|(what, code, request)| (format!("modification with {what}"), code, Invalid::Modify(request)))
        .collect()
}

fn group_snapshots() -> Vec<(String, Code, Invalid)> {
    let group = |name: &str, source_volume_ids: Vec<String>| CreateVolumeGroupSnapshotRequest {
        name: name.into(),
        source_volume_ids,
        ..CreateVolumeGroupSnapshotRequest::default()
    };
    let many = (0..101)
        .map(|number| format!("00000000-0000-4000-8000-{number:012}"))
        .collect();
    let cases = [
        ("no name", Code::InvalidArgument, group("", vec![UNKNOWN.into()])),
        ("no volume", Code::InvalidArgument, group("group-1", Vec::new())),
        (
            "invalid volume id",
            Code::NotFound,
            group("group-1", vec!["volume-1".into(), UNKNOWN.into()]),
        ),
        ("many volumes", Code::FailedPrecondition, group("group-1", many)),
    ];
    cases
        .into_iter()
        .map(|(what, code, request)| (format!("group snapshot with {what}"), code, Invalid::Group(request)))
        .collect()
}

/// Sends every invalid request, and returns the ones that were not refused as expected or reached a cloud.
async fn unexpected(driver: &Driver, sims: &[&Sim]) -> Vec<String> {
    let cases = [
        creations(),
        snapshots(),
        attachments(),
        expansions(),
        modifications(),
        group_snapshots(),
    ];
    let mut unexpected = Vec::new();
    for (what, code, request) in cases.into_iter().flatten() {
        for sim in sims {
            sim.clear_log();
        }
        let status = request.send(driver).await.expect_err(&what);
        if status.code() != code {
            unexpected.push(format!("{what}: {status}"));
        }
        let requests: Vec<&str> = sims
            .iter()
            .flat_map(|sim| sim.log())
            .map(|entry| entry.operation)
            .collect();
        if !requests.is_empty() {
            unexpected.push(format!("{what}: sent {}", requests.join(", ")));
        }
    }
    unexpected
}

#[tokio::test(start_paused = true)]
async fn invalid_requests_reach_no_cloud() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    assert_eq!(unexpected(&driver, &[&sim]).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn invalid_requests_reach_none_of_two_clouds() {
    let (east, west, driver) = two_clouds().await;
    assert_eq!(unexpected(&driver, &[&east, &west]).await, [""; 0]);
}
