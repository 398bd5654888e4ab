//! The work behind accepted calls: it takes the time that the latencies say, moves data and devices where there is a
//! backing folder, and ends with a change of state.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::backing::BackingError;
use crate::cloud::Cloud;
use crate::state::{AttachmentStatus, LoopDevice, Mapping, Snapshot, SnapshotStatus, Volume, VolumeStatus};

/// How long Nova waits for a guest that keeps its device, unless the latencies say otherwise.
const RELEASE: Duration = Duration::from_secs(20);

/// Why a piece of work is going to fail, where a rule says so.
pub(crate) type Doom = Option<String>;

/// `creating` to `available`, or to `error`. Half of the time goes to the scheduler; what fails, fails there.
pub(crate) fn create_volume(cloud: &Arc<Cloud>, volume: Volume, request_id: String, doom: Doom) {
    let cloud = Arc::clone(cloud);
    Arc::clone(&cloud).spawn(async move {
        let half = cloud.latencies().create / 2;
        sleep(half).await;
        if doom.is_none() && !cloud.change(|world| world.schedule(&volume.id)) {
            return;
        }
        sleep(half).await;
        let reason = match (doom, &cloud.backing) {
            (Some(reason), _) => Some(reason),
            (None, Some(backing)) => {
                let source = volume.snapshot_id.as_ref().or(volume.source_volume_id.as_ref());
                backing
                    .create(&volume.id, volume.size, source.map(String::as_str))
                    .await
                    .err()
                    .map(|error| text(&error))
            }
            (None, None) => None,
        };
        cloud.change(|world| {
            world.end_create(&volume.id, reason.is_some());
            if let Some(reason) = &reason {
                world.tell(&volume.id, &request_id, "VOLUME_VOLUME_001_001", reason);
            }
        });
    });
}

/// `deleting` to gone, or to `error_deleting`.
pub(crate) fn delete_volume(cloud: &Arc<Cloud>, volume_id: String, request_id: String, doom: Doom) {
    let cloud = Arc::clone(cloud);
    Arc::clone(&cloud).spawn(async move {
        sleep(cloud.latencies().delete).await;
        let reason = match (doom, &cloud.backing) {
            (Some(reason), _) => Some(reason),
            (None, Some(backing)) => {
                let snapshots: Vec<String> = cloud.read(|world| {
                    let of_volume = world
                        .snapshots
                        .values()
                        .filter(|snapshot| snapshot.volume_id == volume_id);
                    of_volume.map(|snapshot| snapshot.id.clone()).collect()
                });
                let mut failed = backing.remove(&volume_id).err();
                for snapshot in snapshots {
                    failed = backing.remove(&snapshot).err().or(failed);
                }
                failed.map(|error| text(&error))
            }
            (None, None) => None,
        };
        cloud.change(|world| {
            world.end_delete(&volume_id, reason.is_some());
            if let Some(reason) = &reason {
                world.tell(&volume_id, &request_id, "VOLUME_VOLUME_003_001", reason);
            }
        });
    });
}

/// `extending` to the new size, or to `error_extending`.
pub(crate) fn extend_volume(cloud: &Arc<Cloud>, volume_id: String, size: u64, request_id: String, doom: Doom) {
    let cloud = Arc::clone(cloud);
    Arc::clone(&cloud).spawn(async move {
        sleep(cloud.latencies().extend).await;
        let reason = match (doom, &cloud.backing) {
            (Some(reason), _) => Some(reason),
            (None, Some(backing)) => {
                let devices: Vec<LoopDevice> = cloud.read(|world| {
                    world
                        .mappings_of(&volume_id)
                        .iter()
                        .filter_map(|mapping| mapping.loop_device.clone())
                        .collect()
                });
                backing
                    .grow(&volume_id, size, &devices)
                    .await
                    .err()
                    .map(|error| text(&error))
            }
            (None, None) => None,
        };
        cloud.change(|world| {
            world.end_extend(&volume_id, reason.is_some());
            if let Some(reason) = &reason {
                world.tell(&volume_id, &request_id, "VOLUME_VOLUME_004_001", reason);
            }
        });
    });
}

/// `creating` to `available`. The data are those of the moment at which the snapshot becomes available.
pub(crate) fn create_snapshot(cloud: &Arc<Cloud>, snapshot: Snapshot, doom: Doom) {
    let cloud = Arc::clone(cloud);
    Arc::clone(&cloud).spawn(async move {
        sleep(cloud.latencies().create).await;
        let failed = match &cloud.backing {
            _ if doom.is_some() => true,
            Some(backing) => backing
                .create(&snapshot.id, snapshot.size, Some(&snapshot.volume_id))
                .await
                .is_err(),
            None => false,
        };
        cloud.change(|world| world.end_snapshot(&snapshot.id, failed));
    });
}

/// `deleting` to gone.
pub(crate) fn delete_snapshot(cloud: &Arc<Cloud>, snapshot_id: String) {
    let cloud = Arc::clone(cloud);
    Arc::clone(&cloud).spawn(async move {
        sleep(cloud.latencies().delete).await;
        if let Some(backing) = &cloud.backing
            && let Err(error) = backing.remove(&snapshot_id)
        {
            tracing::warn!(
                snapshot = snapshot_id,
                error = text(&error),
                "the data of a snapshot stay behind"
            );
        }
        cloud.change(|world| world.end_delete_snapshot(&snapshot_id));
    });
}

/// `reserved` over `attaching` to `in-use`; or back to `available`, without a trace in Nova.
pub(crate) fn attach(cloud: &Arc<Cloud>, mapping: Mapping, doom: Doom) {
    let cloud = Arc::clone(cloud);
    Arc::clone(&cloud).spawn(async move {
        let half = cloud.latencies().attach / 2;
        sleep(half).await;
        let connected = cloud.change(|world| world.connect(&mapping.attachment_id)).is_ok();
        sleep(half).await;
        if doom.is_some() || !connected {
            cloud.change(|world| world.fail_attach(&mapping));
            return;
        }
        match plug(&cloud, &mapping).await {
            Ok(device) => cloud.change(|world| world.end_attach(&mapping, device)),
            Err(error) => {
                tracing::warn!(volume = mapping.volume_id, error = text(&error), "an attachment failed");
                cloud.change(|world| world.fail_attach(&mapping));
            }
        }
    });
}

/// Makes the loop device of a mapping, where the server has a place for it.
async fn plug(cloud: &Cloud, mapping: &Mapping) -> Result<Option<LoopDevice>, BackingError> {
    let by_id = cloud.read(|world| {
        world
            .server(&mapping.server_id)
            .ok()
            .and_then(|server| server.spec.by_id.clone())
    });
    match (&cloud.backing, by_id) {
        (Some(backing), Some(by_id)) => backing.attach(&mapping.volume_id, &by_id).await.map(Some),
        _ => Ok(None),
    }
}

/// `detaching` to `available`; or back to `in-use` where the guest keeps the device.
pub(crate) fn detach(cloud: &Arc<Cloud>, mapping: Mapping, doom: Doom) {
    let cloud = Arc::clone(cloud);
    Arc::clone(&cloud).spawn(async move {
        let latencies = cloud.latencies();
        sleep(latencies.detach).await;
        let patience = if latencies.release.is_zero() {
            RELEASE
        } else {
            latencies.release
        };
        let released = match (&cloud.backing, &mapping.loop_device) {
            _ if doom.is_some() => false,
            (Some(backing), Some(device)) => match backing.detach(device, patience).await {
                Ok(()) => true,
                Err(error) => {
                    tracing::warn!(
                        volume = mapping.volume_id,
                        error = text(&error),
                        "a detachment is rolled back"
                    );
                    false
                }
            },
            _ => true,
        };
        if !released {
            cloud.change(|world| world.fail_detach(&mapping));
            return;
        }
        cloud.change(|world| world.end_detach(&mapping));
        sleep(latencies.settle).await;
        cloud.change(|world| world.remove_mapping(&mapping));
    });
}

/// Makes true what the state of an earlier run says: devices of attached volumes exist, and what was under way goes on.
pub(crate) async fn resume(cloud: &Arc<Cloud>) {
    let state = cloud.read(crate::world::World::state);
    let request_id = || "req-of-an-earlier-run".to_owned();
    for volume in &state.volumes {
        match (volume.status, volume.extending) {
            (VolumeStatus::Creating, _) => create_volume(cloud, volume.clone(), request_id(), None),
            (VolumeStatus::Deleting, _) => delete_volume(cloud, volume.id.clone(), request_id(), None),
            (VolumeStatus::Extending, Some((size, _))) => {
                extend_volume(cloud, volume.id.clone(), size, request_id(), None);
            }
            _ => {}
        }
    }
    for snapshot in &state.snapshots {
        match snapshot.status {
            SnapshotStatus::Creating => create_snapshot(cloud, snapshot.clone(), None),
            SnapshotStatus::Deleting => delete_snapshot(cloud, snapshot.id.clone()),
            SnapshotStatus::Available | SnapshotStatus::Error => {}
        }
    }
    for mut mapping in state.mappings {
        let attachment = state.attachments.iter().find(|known| known.id == mapping.attachment_id);
        match attachment.map(|attachment| attachment.status) {
            // Cinder's record went before the end of the run, Nova's was about to.
            None => cloud.change(|world| world.remove_mapping(&mapping)),
            Some(AttachmentStatus::Reserved | AttachmentStatus::Attaching) => attach(cloud, mapping, None),
            Some(AttachmentStatus::Attached) => {
                match plug(cloud, &mapping).await {
                    Ok(device) => mapping.loop_device = device,
                    Err(error) => {
                        tracing::warn!(
                            volume = mapping.volume_id,
                            error = text(&error),
                            "an attachment has no device"
                        );
                    }
                }
                cloud.change(|world| {
                    if let Some(known) = world.mapping_mut(&mapping.id) {
                        known.loop_device.clone_from(&mapping.loop_device);
                    }
                });
                if mapping.detaching {
                    detach(cloud, mapping, None);
                }
            }
        }
    }
}

/// An error with its causes, in one line.
fn text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
