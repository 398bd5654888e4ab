// SPDX-License-Identifier: Apache-2.0
//! The init program of the virtual machine. Calls the driver's node service as the kubelet does, and requests changes
//! of disks from the host by lines that begin with `VM `.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use csi_proto::csi::v1::node_client::NodeClient;
use csi_proto::csi::v1::volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode};
use csi_proto::csi::v1::{
    CapacityRange, NodeExpandVolumeRequest, NodeGetInfoRequest, NodeGetVolumeStatsRequest, NodePublishVolumeRequest,
    NodeStageVolumeRequest, NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, VolumeCapability,
};
use tonic::transport::{Channel, Endpoint};

/// Each bus with a volume on it, and whether the emulated hardware supports online growth.
const VOLUMES: [(&str, &str, bool); 3] = [
    ("virtio", "0cf2a1d9-6b1c-4c3e-9d3f-5a8f2f3d7e10", true),
    ("scsi", "7b7c1f60-aaaa-4bbb-8ccc-1234567890ab", true),
    ("nvme", "f687ace9-3024-4eaa-a111-0123456789ab", false),
];
const GROWN: i64 = 512 << 20;
/// Long, because the emulated machine is slow.
const CONNECT_LIMIT: Duration = Duration::from_mins(1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let address = std::env::args()
        .nth(1)
        .context("the address of the driver is missing")?;
    let outcome = scenario(&address).await;
    match &outcome {
        Ok(()) => say("DONE"),
        Err(error) => say(&format!("FAILED {error:#}")),
    }
    outcome
}

fn say(line: &str) {
    println!("VM {line}");
    drop(std::io::stdout().flush());
}

async fn scenario(address: &str) -> Result<()> {
    let mut node = connect(address).await?;
    let info = node.node_get_info(NodeGetInfoRequest {}).await?.into_inner();
    let zones = info
        .accessible_topology
        .map(|topology| topology.segments)
        .unwrap_or_default();
    say(&format!(
        "INFO id={} volumes={} zone={}",
        info.node_id,
        info.max_volumes_per_node,
        zones.into_values().collect::<Vec<_>>().join(",")
    ));
    for (bus, volume, grows) in VOLUMES {
        life(&mut node, bus, volume, grows)
            .await
            .with_context(|| format!("the volume on {bus}"))?;
    }
    Ok(())
}

async fn connect(address: &str) -> Result<NodeClient<Channel>> {
    let endpoint = Endpoint::from_shared(address.to_owned())?;
    let connected = async {
        loop {
            match endpoint.connect().await {
                Ok(channel) => break channel,
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    };
    let channel = tokio::time::timeout(CONNECT_LIMIT, connected)
        .await
        .context("the driver does not listen")?;
    Ok(NodeClient::new(channel))
}

async fn life(node: &mut NodeClient<Channel>, bus: &str, volume: &str, grows: bool) -> Result<()> {
    let capability = Some(VolumeCapability {
        access_mode: Some(AccessMode {
            mode: Mode::SingleNodeWriter.into(),
        }),
        access_type: Some(AccessType::Mount(MountVolume {
            fs_type: "ext4".into(),
            ..MountVolume::default()
        })),
    });
    let (staging, target) = (format!("/run/{bus}/staging"), format!("/run/{bus}/pod/mount"));
    say(&format!("PLUG {bus} {volume}"));
    // The search for the device begins before the disk is plugged in.
    let stage = NodeStageVolumeRequest {
        volume_id: volume.into(),
        staging_target_path: staging.clone(),
        volume_capability: capability.clone(),
        ..NodeStageVolumeRequest::default()
    };
    node.node_stage_volume(stage).await?;
    let publish = NodePublishVolumeRequest {
        volume_id: volume.into(),
        staging_target_path: staging.clone(),
        target_path: target.clone(),
        volume_capability: capability,
        ..NodePublishVolumeRequest::default()
    };
    node.node_publish_volume(publish).await?;
    let data = Path::new(&target).join("data");
    fs::write(&data, bus)?;
    let before = size(node, volume, &target).await?;
    if grows {
        say(&format!("GROW {bus} {volume}"));
        let expand = NodeExpandVolumeRequest {
            volume_id: volume.into(),
            volume_path: target.clone(),
            capacity_range: Some(CapacityRange {
                required_bytes: GROWN,
                limit_bytes: 0,
            }),
            ..NodeExpandVolumeRequest::default()
        };
        let bytes = node.node_expand_volume(expand).await?.into_inner().capacity_bytes;
        let after = size(node, volume, &target).await?;
        ensure!(bytes == GROWN, "the volume has {bytes} bytes");
        if after < before + GROWN / 3 {
            bail!("the mounted ext4 had {before} bytes and has {after}");
        }
    }
    ensure!(fs::read_to_string(&data)? == bus, "the data is another");
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let device = mounts
        .lines()
        .find(|line| line.contains(&staging))
        .and_then(|line| line.split(" - ext4 ").nth(1)?.split(' ').next())
        .context("the volume is not in the list of mounts")?;
    say(&format!("USED {bus} {device}"));
    let unpublish = NodeUnpublishVolumeRequest {
        volume_id: volume.into(),
        target_path: target,
    };
    node.node_unpublish_volume(unpublish).await?;
    let unstage = NodeUnstageVolumeRequest {
        volume_id: volume.into(),
        staging_target_path: staging,
    };
    node.node_unstage_volume(unstage).await?;
    Ok(())
}

async fn size(node: &mut NodeClient<Channel>, volume: &str, path: &str) -> Result<i64> {
    let request = NodeGetVolumeStatsRequest {
        volume_id: volume.into(),
        volume_path: path.into(),
        ..NodeGetVolumeStatsRequest::default()
    };
    let usage = node.node_get_volume_stats(request).await?.into_inner().usage;
    Ok(usage.first().context("no usage")?.total)
}
