//! Creation and deletion, each to its end.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::block_storage::{BlockStorage, Created, NewVolume, Volume, VolumeStatus};
use crate::cloud::Inner;
use crate::error::CloudError;
use crate::ids::VolumeId;
use crate::pace::Kind;
use crate::retry::jitter;
use crate::watch::Wait;

/// After an uncertain answer to a creation, the name is looked up after each of these pauses: Cinder may still be at it.
const LOOKUPS: [Duration; 4] = [
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];
/// How often a request is made anew after the obstacle to it has gone.
const ROUNDS: u32 = 5;
/// How long an operation that somebody else began may stand in the way.
pub(crate) const SETTLE_LIMIT: Duration = Duration::from_mins(2);
/// How long the removal of a volume that failed to be made may take.
const CLEAN_UP_LIMIT: Duration = Duration::from_mins(1);

/// What a volume found by name means for a creation.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// It is the one, and complete.
    Ready,
    /// It is the one, and on its way.
    Coming,
    /// It is on its way out, the name will be free.
    Going,
    /// It failed, and the same request made it.
    OursFailed,
    /// It failed, and somebody else made it, or it cannot be deleted.
    Failed,
    /// It is another one.
    Other(String),
}

impl Inner {
    /// See [`crate::Cloud::create_volume`].
    pub(crate) async fn create_volume(&self, new: &NewVolume) -> Result<Created, CloudError> {
        let cinder = BlockStorage::new(&self.transport);
        let deadline = Instant::now() + self.options.operation_timeout;
        let mut rounds = 0;
        loop {
            rounds += 1;
            let started = Instant::now();
            let Some(volume) = self.find(new).await? else {
                let volume = match cinder.create(new).await {
                    Ok(volume) => volume,
                    Err(error) if error.is_uncertain() => self.look_up(new, error).await?,
                    Err(error) => return Err(error),
                };
                return self.wait_created(new, volume, false, started, deadline).await;
            };
            match self.judge(&volume, new) {
                Found::Ready => return Ok(Created { volume, adopted: true }),
                Found::Coming => return self.wait_created(new, volume, true, started, deadline).await,
                Found::Other(difference) => {
                    return Err(CloudError::AlreadyExists {
                        name: new.name.clone(),
                        volume: volume.id,
                        difference,
                    });
                }
                Found::Going if rounds < ROUNDS => self.wait_gone(&volume.id, started, deadline).await?,
                Found::OursFailed if rounds < ROUNDS => {
                    tracing::warn!(volume = %volume.id, name = %new.name, "removing a volume that failed in an earlier creation");
                    self.delete_volume(&volume.id).await?;
                }
                Found::Going | Found::OursFailed | Found::Failed => {
                    return Err(CloudError::VolumeFailed {
                        message: self.message(&volume.id).await,
                        volume: volume.id,
                        status: volume.status.to_string(),
                        removed: false,
                        elapsed: started.elapsed(),
                    });
                }
            }
        }
    }

    /// The volume of the wanted name that a creation goes on with.
    async fn find(&self, new: &NewVolume) -> Result<Option<Volume>, CloudError> {
        let named = BlockStorage::new(&self.transport)
            .all(&[("name", new.name.clone())], None)
            .await?;
        Ok(choose(named.into_iter().filter(|volume| volume.name == new.name)))
    }

    /// Finds out what became of a creation whose answer was lost. Nothing is made here: without a trace the error goes to the
    /// caller, whose next attempt looks for the name first.
    async fn look_up(&self, new: &NewVolume, error: CloudError) -> Result<Volume, CloudError> {
        tracing::warn!(%error, name = %new.name, "looking for the volume by name after an uncertain creation");
        for pause in LOOKUPS {
            sleep(jitter(pause)).await;
            match self.find(new).await {
                Ok(Some(volume)) if is_ours(&volume, new) => return Ok(volume),
                Ok(_) => {}
                Err(lookup) => tracing::warn!(error = %lookup, name = %new.name, "the look by name failed"),
            }
        }
        Err(error)
    }

    fn judge(&self, volume: &Volume, new: &NewVolume) -> Found {
        match &volume.status {
            VolumeStatus::Deleting => return Found::Going,
            VolumeStatus::Error if is_ours(volume, new) && volume.attachments.is_empty() => return Found::OursFailed,
            VolumeStatus::Error | VolumeStatus::ErrorDeleting => return Found::Failed,
            _ => {}
        }
        if let Some(difference) = difference(volume, new, self.config.block_storage.ignore_volume_az) {
            return Found::Other(difference);
        }
        match &volume.status {
            VolumeStatus::Creating | VolumeStatus::Downloading => Found::Coming,
            _ => Found::Ready,
        }
    }

    async fn wait_created(
        &self,
        new: &NewVolume,
        volume: Volume,
        adopted: bool,
        started: Instant,
        deadline: Instant,
    ) -> Result<Created, CloudError> {
        let id = volume.id.clone();
        let created = if let Some(result) = made(&id, Some(&volume)) {
            result?
        } else {
            let wait = Wait {
                kind: Kind::Create,
                volume: &id,
                status: Some(volume.status.clone()),
                started,
                deadline,
                looked: None,
                what: format!("volume {id} ({})", new.name),
            };
            self.watch.until(wait, |volume| made(&id, volume)).await?
        };
        if created.status != VolumeStatus::Error {
            return Ok(Created {
                volume: created,
                adopted,
            });
        }
        let message = self.message(&id).await;
        let elapsed = started.elapsed();
        let removal = if adopted && !is_ours(&created, new) {
            Some("it was made by somebody else and stays".to_owned())
        } else {
            let removal = tokio::time::timeout(CLEAN_UP_LIMIT, self.delete_volume(&id)).await;
            match removal {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(format!("its removal failed: {error}")),
                Err(_) => Some("its removal is not finished".to_owned()),
            }
        };
        Err(CloudError::VolumeFailed {
            volume: id,
            status: created.status.to_string(),
            removed: removal.is_none(),
            message: [message, removal.unwrap_or_default()]
                .into_iter()
                .filter(|text| !text.is_empty())
                .collect::<Vec<_>>()
                .join("; "),
            elapsed,
        })
    }

    /// What Cinder tells users about a failed volume. Never fails: it only adds to an error.
    async fn message(&self, id: &VolumeId) -> String {
        BlockStorage::new(&self.transport)
            .messages(id)
            .await
            .unwrap_or_else(|error| {
                tracing::debug!(%error, volume = %id, "Cinder's messages about the volume could not be read");
                String::new()
            })
    }

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

    async fn wait_gone(&self, id: &VolumeId, started: Instant, deadline: Instant) -> Result<(), CloudError> {
        let wait = Wait {
            kind: Kind::Delete,
            volume: id,
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

    async fn not_deleted(&self, id: &VolumeId, status: &VolumeStatus, started: Instant) -> CloudError {
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

    /// Waits until the volume has left the state of transition in which it was seen; bounded by [`SETTLE_LIMIT`], too.
    pub(crate) async fn settle(
        &self,
        volume: &Volume,
        deadline: Instant,
        what: String,
    ) -> Result<Option<Volume>, CloudError> {
        let started = Instant::now();
        let wait = Wait {
            kind: Kind::Settle,
            volume: &volume.id,
            status: Some(volume.status.clone()),
            started,
            deadline: deadline.min(started + SETTLE_LIMIT),
            looked: None,
            what,
        };
        self.watch
            .until(wait, |now| match now {
                Some(now) if now.status.is_transition() => None,
                other => Some(Ok(other.cloned())),
            })
            .await
    }
}

/// The end of a creation: the volume, or its disappearance. An errored volume is an end, too.
fn made(id: &VolumeId, volume: Option<&Volume>) -> Option<Result<Volume, CloudError>> {
    match volume {
        None => Some(Err(CloudError::no_volume(id))),
        Some(volume) if matches!(volume.status, VolumeStatus::Creating | VolumeStatus::Downloading) => None,
        Some(volume) => Some(Ok(volume.clone())),
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

/// Whether this very request, or an earlier attempt at it, made the volume: the name and all our metadata, the cluster's included.
fn is_ours(volume: &Volume, new: &NewVolume) -> bool {
    volume.name == new.name
        && !new.metadata.is_empty()
        && new
            .metadata
            .iter()
            .all(|(key, value)| volume.metadata.get(key) == Some(value))
}

/// Of several volumes of one name the one to go on with: complete before coming before failed, then the oldest.
fn choose(volumes: impl Iterator<Item = Volume>) -> Option<Volume> {
    volumes.min_by_key(|volume| {
        let rank = match volume.status {
            VolumeStatus::Available | VolumeStatus::InUse => 0,
            VolumeStatus::Creating | VolumeStatus::Downloading => 2,
            VolumeStatus::Deleting => 3,
            VolumeStatus::Error => 4,
            VolumeStatus::ErrorDeleting => 5,
            _ => 1,
        };
        (rank, volume.created_at.clone(), volume.id.clone())
    })
}

/// How a volume differs from what is asked for, in words; `None` when it fits.
fn difference(volume: &Volume, new: &NewVolume, ignore_zone: bool) -> Option<String> {
    if volume.size != new.size {
        return Some(format!("size {} is wanted, it has {}", new.size, volume.size));
    }
    let type_by_id = |name: &str| VolumeId::new(name).is_uuid();
    if let (Some(wanted), Some(found)) = (&new.volume_type, &volume.volume_type)
        && wanted != found
        // A type may be wanted by id, and Cinder shows names.
        && !type_by_id(wanted)
    {
        return Some(format!("type {wanted} is wanted, it has {found}"));
    }
    let found = volume.availability_zone.as_deref()?;
    let zones: Vec<&str> = if new.acceptable_zones.is_empty() {
        new.availability_zone.iter().map(String::as_str).collect()
    } else {
        new.acceptable_zones.iter().map(String::as_str).collect()
    };
    if ignore_zone || zones.is_empty() || zones.contains(&found) {
        return None;
    }
    Some(format!("zone {} is wanted, it is in {found}", zones.join(" or ")))
}

#[cfg(test)]
#[path = "volumes_tests.rs"]
mod tests;
