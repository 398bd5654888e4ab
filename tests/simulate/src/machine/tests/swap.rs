// SPDX-License-Identifier: Apache-2.0
//! Replaces a disk by another one while the real node service runs.

use cinder_csi_driver::node::{NodeConfig, NodeService};
use cinder_csi_driver::operations::{Limits, Operations};
use csi_proto::csi::v1::node_server::Node as _;
use csi_proto::csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, access_mode::Mode};
use csi_proto::csi::v1::{NodePublishVolumeRequest, VolumeCapability};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tonic::Request;

use super::*;

/// Forwards the events of the node.
#[derive(Debug)]
struct EventForwarder(UnboundedSender<String>);

impl Observer for EventForwarder {
    fn note(&self, _node: &str, what: &str) {
        drop(self.0.send(what.to_owned()));
    }

    fn violation(&self, _violation: &Violation) {}
}

#[tokio::test(start_paused = true)]
async fn publish_never_exposes_replacement_disk() {
    let (sender, mut notes) = unbounded_channel();
    let violations = Violations::observed_by(Arc::new(EventForwarder(sender)));
    let machine = node("node-1", 1, &violations);
    machine.plug(VOLUME, Medium::blank(), GIB);
    // Programs take longer.
    machine.set_faults(Faults {
        hang: 1_000_000,
        hang_limit: Duration::from_secs(5),
        ..Faults::default()
    });
    let host = host(&machine);
    let service = NodeService::new(NodeConfig::default(), host.clone(), Operations::new(Limits::default()));
    let request = NodePublishVolumeRequest {
        volume_id: VOLUME.into(),
        staging_target_path: STAGING.into(),
        target_path: POD.into(),
        readonly: true,
        volume_capability: Some(VolumeCapability {
            access_mode: Some(AccessMode {
                mode: Mode::SingleNodeWriter.into(),
            }),
            access_type: Some(AccessType::Block(BlockVolume {})),
        }),
        ..NodePublishVolumeRequest::default()
    };
    let published = tokio::spawn(async move { service.node_publish_volume(Request::new(request)).await });
    while !notes.recv().await.expect("the node lives").contains("--setro") {}
    machine.unplug(VOLUME);
    machine.plug(OTHER, Medium::blank(), GIB);
    let other = find(&host, OTHER).await;
    let published = published.await.expect("it does not panic");
    published.expect_err("the volume is gone");
    assert_ne!(
        host.device_number(Path::new(POD)).await.expect("it answers"),
        Some(other.number)
    );
    assert!(!find(&host, OTHER).await.read_only, "nothing was done to it");
}
