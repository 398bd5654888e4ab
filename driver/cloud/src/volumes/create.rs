//! A volume by its name: found, made, waited for.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::ROUNDS;
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
        if let Some(difference) = difference(volume, new, self.config().block_storage.ignore_volume_az) {
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
                name: Some(&new.name),
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
}

/// The end of a creation: the volume, or its disappearance. An errored volume is an end, too.
fn made(id: &VolumeId, volume: Option<&Volume>) -> Option<Result<Volume, CloudError>> {
    match volume {
        None => Some(Err(CloudError::no_volume(id))),
        Some(volume) if matches!(volume.status, VolumeStatus::Creating | VolumeStatus::Downloading) => None,
        Some(volume) => Some(Ok(volume.clone())),
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
mod tests;
