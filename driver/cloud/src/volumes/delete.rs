//! A volume by its id, until it is gone.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::ROUNDS;
use crate::block_storage::{BlockStorage, Volume, VolumeStatus};
use crate::cloud::Inner;
use crate::error::CloudError;
use crate::ids::VolumeId;
use crate::pace::Kind;
use crate::retry::jitter;
use crate::watch::Wait;

impl Inner {
    /// See [`crate::Cloud::delete_volume`].
    pub(crate) async fn delete_volume(&self, id: &VolumeId) -> Result<(), CloudError> {
        if !id.is_uuid() {
            return Ok(());
        }
        let cinder = BlockStorage::new(&self.transport);
        let deadline = Instant::now() + self.options.operation_timeout;
        let mut rounds = 0;
        loop {
            rounds += 1;
            let started = Instant::now();
            let refusal = match cinder.delete(id).await {
                Ok(answer) if answer.missing() => return Ok(()),
                Ok(_) => return self.wait_gone(id, started, deadline).await,
                Err(error @ (CloudError::BadRequest(_) | CloudError::Conflict(_))) => error,
                Err(error) if error.is_uncertain() => error,
                Err(error) => return Err(error),
            };
            // Refused, or the answer was lost: the volume tells why.
            let Some(volume) = cinder.volume(id).await? else {
                return Ok(());
            };
            match &volume.status {
                VolumeStatus::Deleting => return self.wait_gone(id, started, deadline).await,
                VolumeStatus::InUse => return Err(in_use(&volume, &refusal)),
                // Cinder takes no second deletion of it.
                VolumeStatus::ErrorDeleting => return Err(self.not_deleted(id, &volume.status, started).await),
                VolumeStatus::Creating
                | VolumeStatus::Downloading
                | VolumeStatus::Reserved
                | VolumeStatus::Attaching
                | VolumeStatus::Detaching
                    if rounds < ROUNDS =>
                {
                    self.settle(&volume, deadline, format!("volume {id}"))
                        .await
                        .map_err(|error| match error {
                            CloudError::Timeout { .. } => in_use(&volume, &refusal),
                            other => other,
                        })?;
                }
                _ if !volume.attachments.is_empty() => return Err(in_use(&volume, &refusal)),
                _ if rounds < ROUNDS && refusal.is_uncertain() => sleep(jitter(Duration::from_secs(1))).await,
                _ => {
                    return Err(match refusal {
                        CloudError::BadRequest(failure) | CloudError::Conflict(failure)
                            if failure.fault.contains("snapshot") && failure.fault.contains("dependent")
                                || failure.fault.contains("have snapshots")
                                    && volume.status == VolumeStatus::Available =>
                        {
                            CloudError::VolumeHasDependents {
                                volume: id.clone(),
                                failure,
                            }
                        }
                        other => other,
                    });
                }
            }
        }
    }

    pub(super) async fn wait_gone(&self, id: &VolumeId, started: Instant, deadline: Instant) -> Result<(), CloudError> {
        let wait = Wait {
            kind: Kind::Delete,
            volume: id,
            name: None,
            status: Some(VolumeStatus::Deleting),
            started,
            deadline,
            looked: None,
            what: format!("volume {id}"),
        };
        let left = self.watch.until(wait, |volume| match volume {
            None => Some(Ok(None)),
            Some(volume) if volume.status == VolumeStatus::Deleting => None,
            Some(volume) => Some(Ok(Some(volume.status.clone()))),
        });
        match left.await? {
            None => Ok(()),
            Some(status) => Err(self.not_deleted(id, &status, started).await),
        }
    }

    pub(super) async fn not_deleted(&self, id: &VolumeId, status: &VolumeStatus, started: Instant) -> CloudError {
        let mut message = self.message(id).await;
        if *status == VolumeStatus::ErrorDeleting {
            let separator = if message.is_empty() { "" } else { "; " };
            let remedy = "an administrator has to find out why and reset its status to available or error";
            message = format!("{message}{separator}{remedy}");
        }
        CloudError::VolumeFailed {
            volume: id.clone(),
            status: status.to_string(),
            message,
            removed: false,
            elapsed: started.elapsed(),
        }
    }
}

fn in_use(volume: &Volume, refusal: &CloudError) -> CloudError {
    CloudError::VolumeInUse {
        volume: volume.id.clone(),
        status: volume.status.to_string(),
        servers: volume.servers(),
        request_id: refusal.request_id().map(str::to_owned),
    }
}
