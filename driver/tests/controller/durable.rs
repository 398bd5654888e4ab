// SPDX-License-Identifier: Apache-2.0
//! Tables of all strings that outlive a process: strings that the driver writes to OpenStack, returns to Kubernetes or
//! accepts as flags.
//!
//! A change of an entry needs a migration for existing objects.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;

use cinder_cloud::{CloudConfig, CloudError, CloudOptions, Connect, HttpClient, SendError, metadata_keys};
use cinder_csi_driver::args::Args;
use clap::CommandFactory;
use csi_proto::csi::v1::group_controller_client::GroupControllerClient;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};
use csi_proto::csi::v1::{
    ControllerModifyVolumeRequest, ControllerPublishVolumeRequest, CreateSnapshotRequest,
    CreateVolumeGroupSnapshotRequest, CreateVolumeRequest, Volume, VolumeContentSource,
};
use openstack_sim::GroupType;
use parking_lot::Mutex;
use serde_json::Value;
use sim_network::SimNetwork;
use tokio_util::bytes::Bytes;
use tonic::codegen::http::{Request, Response};

use crate::support::{Driver, NODE, capability, cloud, create_request, patient, publish_request, zones};

/// A network that records the strings in requests.
#[derive(Debug, Clone)]
struct Recorder {
    network: SimNetwork,
    written: Arc<Mutex<BTreeSet<String>>>,
}

#[derive(Debug)]
struct Line {
    client: Arc<dyn HttpClient>,
    written: Arc<Mutex<BTreeSet<String>>>,
}

impl Connect for Recorder {
    fn connect(&self, config: &CloudConfig, options: &CloudOptions) -> Result<Arc<dyn HttpClient>, CloudError> {
        Ok(Arc::new(Line {
            client: self.network.connect(config, options)?,
            written: Arc::clone(&self.written),
        }))
    }
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, SendError>> + Send + 'a>>;

impl HttpClient for Line {
    fn send(&self, request: Request<Bytes>, limit: usize) -> Answer<'_> {
        if let Ok(Value::Object(body)) = serde_json::from_slice(request.body()) {
            let mut written = self.written.lock();
            for (key, value) in &body {
                note(&mut written, key, value);
            }
        }
        self.client.send(request, limit)
    }
}

/// Records the strings that identify an object later, each with its location: `volume metadata …`.
fn note(written: &mut BTreeSet<String>, place: &str, value: &Value) {
    let Value::Object(fields) = value else { return };
    for (key, value) in fields {
        match (key.as_str(), value) {
            ("name" | "description", Value::String(text)) => {
                written.insert(format!("{place} {key}: {}", without_ids(text)));
            }
            ("metadata", Value::Object(metadata)) => {
                for (key, value) in metadata {
                    let value = value.as_str().unwrap_or_default();
                    written.insert(format!("{place} metadata {}: {}", without_ids(key), without_ids(value)));
                }
            }
            _ => {}
        }
    }
    if place == "metadata" {
        for (key, value) in fields {
            let value = value.as_str().unwrap_or_default();
            written.insert(format!("metadata {}: {}", without_ids(key), without_ids(value)));
        }
    }
}

/// Replaces every UUID by `{id}`.
fn without_ids(text: &str) -> String {
    const LENGTH: usize = 36;
    let (mut rest, mut out) = (text, String::new());
    while let Some(first) = rest.chars().next() {
        let is_id = rest.get(..LENGTH).is_some_and(|start| {
            let dashes = start.match_indices('-').map(|(at, _)| at).eq([8, 13, 18, 23]);
            dashes && start.chars().all(|letter| letter == '-' || letter.is_ascii_hexdigit())
        });
        let length = if is_id { LENGTH } else { first.len_utf8() };
        out.push_str(if is_id { "{id}" } else { &rest[..length] });
        rest = &rest[length..];
    }
    out
}

/// The strings in OpenStack with their locations, and with `{id}` for each id.
const WRITTEN: [&str; 46] = [
    "backup description: Created by OpenStack Cinder CSI driver",
    "backup metadata cinder.csi.openstack.org/cluster: test",
    "backup metadata cinder.csi.openstack.org/volume-mode: Filesystem",
    "backup metadata csi.storage.k8s.io/volumesnapshot/name: point",
    "backup metadata csi.storage.k8s.io/volumesnapshot/namespace: space",
    "backup metadata csi.storage.k8s.io/volumesnapshotcontent/name: content",
    "backup metadata type: backup",
    "backup name: snapshot-backup",
    "group description: Made by the OpenStack Cinder CSI driver for one snapshot of several volumes. Cluster: test.",
    "group description: Made by the OpenStack Cinder CSI driver for one snapshot of several volumes. Group snapshot {id}.",
    "group name: groupsnapshot-1",
    "group_snapshot description: Made by the OpenStack Cinder CSI driver for one snapshot of several volumes. Volumes: 1. Cluster: test.",
    "group_snapshot name: groupsnapshot-1",
    "metadata cinder.csi.openstack.org.read-only-at.{id}: pending",
    "metadata cinder.csi.openstack.org.read-only-at.{id}: {id}",
    "metadata cinder.csi.openstack.org/cluster: test",
    "metadata cinder.csi.openstack.org/requested-zones: nova",
    "metadata cinder.csi.openstack.org/source-backup: {id}",
    "metadata cinder.csi.openstack.org/volume-mode: Filesystem",
    "metadata team: storage",
    "snapshot description: Created by OpenStack Cinder CSI driver",
    "snapshot description: Freezes the data for backup snapshot-backup",
    "snapshot metadata cinder.csi.openstack.org/cluster: test",
    "snapshot metadata cinder.csi.openstack.org/temporary-for-backup: snapshot-backup",
    "snapshot metadata cinder.csi.openstack.org/volume-mode: Filesystem",
    "snapshot metadata cinder.csi.openstack.org/zone: nova",
    "snapshot metadata csi.storage.k8s.io/volumesnapshot/name: point",
    "snapshot metadata csi.storage.k8s.io/volumesnapshot/namespace: space",
    "snapshot metadata csi.storage.k8s.io/volumesnapshotcontent/name: content",
    "snapshot metadata type: backup",
    "snapshot name: snapshot-backup",
    "snapshot name: snapshot-snapshot",
    "volume description: Created by OpenStack Cinder CSI driver",
    "volume metadata cinder.csi.openstack.org/cluster: test",
    "volume metadata cinder.csi.openstack.org/requested-multiattach: true",
    "volume metadata cinder.csi.openstack.org/requested-zones: nova",
    "volume metadata cinder.csi.openstack.org/source-backup: {id}",
    "volume metadata cinder.csi.openstack.org/volume-mode: Filesystem",
    "volume metadata csi.storage.k8s.io/pv/name: pvc-1",
    "volume metadata csi.storage.k8s.io/pvc/name: claim",
    "volume metadata csi.storage.k8s.io/pvc/namespace: space",
    "volume name: copy-0",
    "volume name: copy-1",
    "volume name: copy-2",
    "volume name: pvc-1",
    "volume name: shared",
];

#[tokio::test(start_paused = true)]
async fn strings_written_to_openstack_are_stable() {
    let sim = cloud(|config| config.group_types = vec![GroupType::consistent("together")]).await;
    let recorder = Recorder {
        network: SimNetwork::of(&sim),
        written: Arc::default(),
    };
    let driver = Driver::start_on(
        recorder.clone(),
        sim.sources().clone(),
        &sim.access().cloud_conf(),
        |_| {},
    );
    let object = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        let pairs = pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned()));
        pairs.collect()
    };
    let claim = object(&[
        ("csi.storage.k8s.io/pvc/name", "claim"),
        ("csi.storage.k8s.io/pvc/namespace", "space"),
        ("csi.storage.k8s.io/pv/name", "pvc-1"),
    ]);
    let first = driver
        .create(CreateVolumeRequest {
            parameters: claim,
            accessibility_requirements: Some(zones(&["nova"], &["nova"])),
            ..create_request("pvc-1")
        })
        .await
        .expect("a volume");
    let id = first.volume_id.clone();
    let attributes = ControllerModifyVolumeRequest {
        volume_id: id.clone(),
        mutable_parameters: object(&[("metadata.team", "storage")]),
        ..ControllerModifyVolumeRequest::default()
    };
    let modified = driver.controller().controller_modify_volume(patient(attributes)).await;
    modified.expect("modified");
    let read_only = ControllerPublishVolumeRequest {
        readonly: true,
        volume_capability: Some(capability(Mode::SingleNodeReaderOnly)),
        ..publish_request(&id, NODE)
    };
    let attached = driver.controller().controller_publish_volume(patient(read_only)).await;
    attached.expect("attached");
    driver.unpublish(&id, NODE).await.expect("detached");
    let mut sources = vec![Type::Volume(VolumeSource { volume_id: id.clone() })];
    for kind in ["snapshot", "backup"] {
        let mut parameters = object(&[
            ("csi.storage.k8s.io/volumesnapshot/name", "point"),
            ("csi.storage.k8s.io/volumesnapshot/namespace", "space"),
            ("csi.storage.k8s.io/volumesnapshotcontent/name", "content"),
        ]);
        parameters.insert("type".to_owned(), kind.to_owned());
        let snapshot = loop {
            let request = CreateSnapshotRequest {
                source_volume_id: id.clone(),
                name: format!("snapshot-{kind}"),
                parameters: parameters.clone(),
                ..CreateSnapshotRequest::default()
            };
            let created = driver
                .controller()
                .create_snapshot(patient(request))
                .await
                .expect("made");
            let created = created.into_inner().snapshot.expect("a snapshot");
            if created.ready_to_use {
                break created;
            }
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        };
        let snapshot_id = snapshot.snapshot_id;
        sources.push(Type::Snapshot(SnapshotSource { snapshot_id }));
    }
    let mut copies: Vec<Volume> = Vec::new();
    for (number, source) in sources.into_iter().enumerate() {
        let copy = CreateVolumeRequest {
            volume_content_source: Some(VolumeContentSource { r#type: Some(source) }),
            ..create_request(&format!("copy-{number}"))
        };
        copies.push(driver.create(copy).await.expect("a copy"));
    }
    let shared = CreateVolumeRequest {
        volume_capabilities: vec![capability(Mode::MultiNodeReaderOnly)],
        ..create_request("shared")
    };
    // The driver always sends this metadata, whether or not the types of the cloud allow multiattach.
    drop(driver.create(shared).await);
    let group = CreateVolumeGroupSnapshotRequest {
        name: "groupsnapshot-1".into(),
        source_volume_ids: vec![id.clone()],
        parameters: object(&[("group-type", "together")]),
        ..CreateVolumeGroupSnapshotRequest::default()
    };
    let group = GroupControllerClient::new(driver.channel())
        .create_volume_group_snapshot(patient(group))
        .await;
    group.expect("a group snapshot");
    let written = recorder.written.lock().clone();
    let written: Vec<&str> = written.iter().map(String::as_str).collect();
    assert_eq!(written, WRITTEN);
}

/// Metadata keys that the driver reads and that the test above does not write.
#[test]
fn metadata_keys_match_earlier_versions() {
    let metadata_keys = [metadata_keys::FAILURE_SEEN, metadata_keys::CINDERS_SOURCE_BACKUP];
    assert_eq!(
        metadata_keys,
        ["cinder.csi.openstack.org/failure-seen", "src_backup_id",]
    );
}

const FLAGS: [&str; 49] = [
    "additional-topology",
    "attach-timeout",
    "availability-zone",
    "cloud-config",
    "cloud-name",
    "cluster",
    "default-fs-type",
    "dev-dir",
    "device-in-use-timeout",
    "disable-capability",
    "driver-name",
    "endpoint",
    "health-endpoint",
    "http-endpoint",
    "instance-id",
    "kube-api-burst",
    "kube-api-qps",
    "kubeconfig",
    "kubelet-dir",
    "log-flush-frequency",
    "log-format",
    "log-level",
    "master",
    "max-volumes-per-node",
    "metadata-url",
    "min-resync-period",
    "node-service-no-os-client",
    "nodeid",
    "proc-dir",
    "project-id",
    "protect-other-clusters",
    "provide-controller-service",
    "provide-node-service",
    "pvc-annotations",
    "register",
    "request-timeout",
    "reserved-volumes",
    "search-order",
    "secure-metrics",
    "sys-dir",
    "tls-cipher-suites",
    "tls-min-version",
    "unregister",
    "user-agent",
    "v",
    "vmodule",
    "volume-metadata",
    "with-topology",
    "zone-labels",
];

#[test]
fn flags_used_in_manifests_are_known() {
    let command = Args::command();
    let flags: BTreeSet<&str> = command.get_arguments().filter_map(|flag| flag.get_long()).collect();
    assert_eq!(flags.into_iter().collect::<Vec<_>>(), FLAGS);
}

#[tokio::test(start_paused = true)]
async fn strings_stored_by_kubernetes_are_stable() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let request = CreateVolumeRequest {
        parameters: BTreeMap::from([("mkfsOptions".to_owned(), "-O ^has_journal".to_owned())]),
        ..create_request("pvc-1")
    };
    let first = driver.create(request).await.expect("a volume");
    // The handle is Cinder's id.
    assert_eq!(first.volume_id, sim.state().volumes[0].id);
    let copy = CreateVolumeRequest {
        volume_content_source: Some(VolumeContentSource {
            r#type: Some(Type::Volume(VolumeSource {
                volume_id: first.volume_id.clone(),
            })),
        }),
        ..create_request("pvc-2")
    };
    let copy = driver.create(copy).await.expect("a copy");
    let read_only = ControllerPublishVolumeRequest {
        readonly: true,
        volume_capability: Some(capability(Mode::SingleNodeReaderOnly)),
        ..publish_request(&copy.volume_id, NODE)
    };
    let published = driver.controller().controller_publish_volume(patient(read_only)).await;
    let published = published.expect("attached").into_inner().publish_context;
    let first_published = driver.publish(&first.volume_id, NODE).await.expect("attached");
    let shown = |context: &BTreeMap<String, String>| -> Vec<String> {
        let pairs = context.iter().map(|(key, value)| format!("{key}: {value}"));
        pairs.collect()
    };
    let segments: Vec<String> = (first.accessible_topology.iter())
        .flat_map(|topology| shown(&topology.segments))
        .collect();
    assert_eq!(segments, ["topology.cinder.csi.openstack.org/zone: nova"]);
    assert_eq!(
        shown(&first.volume_context),
        ["mkfs-options: -O ^has_journal", "mkfsOptions: -O ^has_journal"]
    );
    assert_eq!(
        shown(&copy.volume_context),
        ["cinder.csi.openstack.org/resizeRequired: true"]
    );
    assert_eq!(
        shown(&first_published),
        ["DevicePath: /dev/vdc", "cinder.csi.openstack.org/size-bytes: 1",]
    );
    assert_eq!(
        shown(&published),
        [
            "DevicePath: /dev/vdb",
            "cinder.csi.openstack.org/size-bytes: 1",
            "readonly: true",
        ]
    );
}
