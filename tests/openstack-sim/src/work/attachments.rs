// SPDX-License-Identifier: Apache-2.0
//! Attachments: attach and detach, including loop devices.

use std::sync::Arc;
use std::time::Duration;

use super::{FailureMessage, text};
use crate::backing::BackingError;
use crate::cloud::Cloud;
use crate::state::{LoopDevice, Mapping};
use crate::world::DeviceChanges;

/// Default time for which Nova waits for a guest that does not release its device.
const RELEASE: Duration = Duration::from_secs(20);

/// Ends `reserved` and `attaching` with `in-use`, or returns to `available` without a record in Nova.
pub(crate) fn attach(cloud: &Arc<Cloud>, mapping: Mapping, doom: FailureMessage) {
    let cloud = Arc::clone(cloud);
    Arc::clone(&cloud).spawn(async move {
        cloud.takes(|latencies| latencies.attach / 2).await;
        let connected = cloud.change(|world| world.connect(&mapping.attachment_id)).is_ok();
        cloud.takes(|latencies| latencies.attach / 2 + latencies.connect).await;
        if doom.is_some() || !connected {
            cloud.change(|world| world.fail_attach(&mapping));
            return;
        }
        match plug(&cloud, &mapping).await {
            Ok(device) => {
                if let Some(device) = cloud.change(|world| world.end_attach(&mapping, device)) {
                    unplug(&cloud, &device).await;
                }
            }
            Err(error) => {
                tracing::warn!(volume = mapping.volume_id, error = text(&error), "an attachment failed");
                cloud.change(|world| world.fail_attach(&mapping));
            }
        }
    });
}

/// Creates the loop device of a mapping, if the server has a folder for it.
pub(super) async fn plug(cloud: &Cloud, mapping: &Mapping) -> Result<Option<LoopDevice>, BackingError> {
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

/// Creates and removes the devices that a change of a server's state requires.
pub(crate) fn move_devices(cloud: &Arc<Cloud>, changes: DeviceChanges) {
    if cloud.backing.is_none() {
        return;
    }
    let cloud = Arc::clone(cloud);
    Arc::clone(&cloud).spawn(async move {
        for device in changes.unplug {
            unplug(&cloud, &device).await;
        }
        for mapping in changes.plug {
            match plug(&cloud, &mapping).await {
                Ok(device) => cloud.change(|world| {
                    if let Some(known) = world.mapping_mut(&mapping.id) {
                        known.loop_device = device;
                    }
                }),
                Err(error) => {
                    tracing::warn!(
                        volume = mapping.volume_id,
                        error = text(&error),
                        "an attachment has no device"
                    );
                }
            }
        }
    });
}

/// Removes the device of a deleted attachment.
async fn unplug(cloud: &Cloud, device: &LoopDevice) {
    if let Some(backing) = &cloud.backing
        && let Err(error) = backing.detach(device, RELEASE).await
    {
        tracing::warn!(error = text(&error), "the device of an attachment remains");
    }
}

/// Ends `detaching` with `available`, or returns to `in-use` if the guest does not release the device.
pub(crate) fn detach(cloud: &Arc<Cloud>, mapping: Mapping, doom: FailureMessage) {
    let cloud = Arc::clone(cloud);
    Arc::clone(&cloud).spawn(async move {
        cloud.takes(|latencies| latencies.detach).await;
        let release = cloud.latencies().release;
        let patience = if release.is_zero() { RELEASE } else { release };
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
        cloud.takes(|latencies| latencies.settle).await;
        cloud.change(|world| world.remove_mapping(&mapping));
    });
}
