// SPDX-License-Identifier: Apache-2.0
//! Creates a volume, or adopts the one that an earlier attempt created under the same name.

use tokio::time::Instant;

use super::classify::{
    ExistingVolume, Reason, choose_volume, classify_existing, failed_creation, find_duplicates, is_ours, marks_are_own,
    requested_zones,
};
use crate::api::block_storage::{BlockStorage, CreatedVolume, Filling, NewVolume, Volume, VolumeStatus};
use crate::context::Context;
use crate::error::{CloudError, ObjectKind};
use crate::ids::VolumeId;
use crate::metadata_keys;
use crate::operations::ROUNDS;
use crate::operations::capacity::find_type;
use crate::operations::creation::find_after_uncertain_creation;
use crate::operations::deletion::{final_if_removed, remove_remains, wait_deleted};
use crate::operations::messages::{cinder_messages, join_texts};
use crate::operations::volumes::delete::delete_volume;
use crate::operations::volumes::source::{mode_mark, resolve_request};
use crate::poll::schedule::Kind;
use crate::poll::{PollVerdict, Wait};

/// See [`crate::Cloud::create_volume`].
pub(crate) async fn create_volume(cx: &Context, new: &NewVolume) -> Result<CreatedVolume, CloudError> {
    let created = find_or_create(cx, new).await?;
    cx.note_created(created.volume.id.as_str());
    Ok(created)
}

async fn find_or_create(cx: &Context, new: &NewVolume) -> Result<CreatedVolume, CloudError> {
    let deadline = Instant::now() + cx.options.operation_timeout;
    let mut rounds = 0;
    loop {
        rounds += 1;
        let started = Instant::now();
        let Some(mut volume) = find_existing(cx, new).await? else {
            check_type(cx, new).await?;
            let volume = request_volume(cx, new).await?;
            let created = wait_created(cx, new, volume, false, started, deadline).await?;
            let created = verify_multiattach(cx, new, created).await?;
            return restore_metadata(cx, new, created).await;
        };
        let ignore_zone = cx.config().block_storage.ignore_volume_az;
        let mut class = classify_existing(&volume, new, ignore_zone);
        if class == ExistingVolume::Pending {
            volume = wait_created(cx, new, volume, true, started, deadline).await?.volume;
            // The source and the zone are unknown before the end of the creation.
            class = classify_existing(&volume, new, ignore_zone);
        }
        match class {
            ExistingVolume::Ready => return restore_metadata(cx, new, CreatedVolume { volume, adopted: true }).await,
            ExistingVolume::Other(Reason::Different(difference)) => {
                return Err(CloudError::AlreadyExists {
                    name: new.name.clone(),
                    volume: volume.id,
                    difference,
                });
            }
            // An earlier attempt may have created it, so a final error could leak it. It may be in use, so it is not
            // removed.
            ExistingVolume::Other(Reason::EarlierAttempt(difference)) => {
                return Err(CloudError::Busy {
                    kind: ObjectKind::Volume,
                    id: volume.id.to_string(),
                    status: format!("{} and may come from an earlier attempt: {difference}", volume.status),
                    wanted: "deleted by hand, if nothing uses it,",
                });
            }
            ExistingVolume::Deleting if rounds < ROUNDS => {
                wait_deleted::<Volume>(cx, &volume.id, started, deadline).await?;
            }
            ExistingVolume::Discard(reason) if rounds < ROUNDS => {
                tracing::warn!(volume = %volume.id, name = %new.name, reason, "removing a volume of an earlier attempt");
                delete_volume(cx, &volume.id).await?;
            }
            ExistingVolume::Pending
            | ExistingVolume::Deleting
            | ExistingVolume::Discard(_)
            | ExistingVolume::Other(Reason::Failed) => {
                return Err(CloudError::VolumeFailed {
                    message: cinder_messages(cx, volume.id.as_str()).await,
                    volume: volume.id,
                    status: volume.status.to_string(),
                    removed: false,
                    elapsed: started.elapsed(),
                });
            }
        }
    }
}

/// Refuses a multiattach volume of a type without multiattach, if the type is known before the creation.
async fn check_type(cx: &Context, new: &NewVolume) -> Result<(), CloudError> {
    let Some(wanted) = new.volume_type.as_deref().filter(|_| new.multiattach) else {
        return Ok(());
    };
    match find_type(cx, wanted).await {
        Ok(Some(found)) if found.is_for_one_server() => Err(CloudError::NotMultiattach {
            volume_type: found.name,
        }),
        Ok(_) => Ok(()),
        Err(error) => {
            tracing::debug!(%error, wanted, "the type could not be read; its volume is checked when it is made");
            Ok(())
        }
    }
}

/// Requests the volume. A 404 for its type, zone or source is an error like a 400; after an uncertain response the name
/// decides.
async fn request_volume(cx: &Context, new: &NewVolume) -> Result<Volume, CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    let mut request = resolve_request(cx, new).await?;
    let mut answer = cinder.create(&request.new, &request.filling).await;
    if let Err(CloudError::BadRequest(failure)) = &answer
        && request.filling != Filling::Nothing
        && request.new.availability_zone.is_some()
        && failure.fault.to_ascii_lowercase().contains("zone")
    {
        // Many clouds create copies in the zone of their source only. Cinder refuses another zone (400) and chooses one
        // itself now. The zone of the result is checked later.
        tracing::debug!(name = %new.name, fault = failure.fault, "leaving the zone of the copy to Cinder");
        request.new.availability_zone = None;
        answer = cinder.create(&request.new, &request.filling).await;
    }
    match answer {
        Err(error) if error.is_uncertain() => {
            let find = || async { Ok(find_existing(cx, new).await?.filter(|found| is_ours(found, new))) };
            find_after_uncertain_creation(cx, ObjectKind::Volume, &new.name, error, find).await
        }
        answer => answer,
    }
}

/// Removes a new volume without multiattach, if multiattach is required.
async fn verify_multiattach(
    cx: &Context,
    new: &NewVolume,
    created: CreatedVolume,
) -> Result<CreatedVolume, CloudError> {
    if !new.multiattach || created.volume.multiattach {
        return Ok(created);
    }
    let id = &created.volume.id;
    let removal = remove_remains::<Volume>(cx, id).await;
    let error = CloudError::NotMultiattach {
        volume_type: created.volume.volume_type.clone().unwrap_or_default(),
    };
    Err(final_if_removed(error, ObjectKind::Volume, id, removal))
}

/// Writes the requested metadata again to a volume that was restored from a backup, because Cinder replaced it with the
/// metadata of the backed up volume.
async fn restore_metadata(
    cx: &Context,
    new: &NewVolume,
    mut created: CreatedVolume,
) -> Result<CreatedVolume, CloudError> {
    let volume = &mut created.volume;
    let Some(backup) = volume.source_backup().map(str::to_owned) else {
        return Ok(created);
    };
    if marks_are_own(volume) && is_ours(volume, new) {
        return Ok(created);
    }
    let mut own = new.metadata.clone();
    own.extend(new.mutable_metadata.clone());
    own.insert(metadata_keys::SOURCE_BACKUP.to_owned(), backup);
    own.extend(mode_mark(new));
    // Also without a required zone: the restored mark describes another volume.
    let zones = requested_zones(new).or_else(|| volume.availability_zone.clone());
    own.extend(zones.map(|zones| (metadata_keys::REQUESTED_ZONES.to_owned(), zones)));
    if new.multiattach || volume.metadata.contains_key(metadata_keys::REQUESTED_MULTIATTACH) {
        own.insert(
            metadata_keys::REQUESTED_MULTIATTACH.to_owned(),
            new.multiattach.to_string(),
        );
    }
    BlockStorage::new(&cx.transport)
        .merge_metadata(&volume.id, &own)
        .await?;
    volume.metadata.extend(own);
    Ok(created)
}

/// Finds the volume with which the creation continues, by its name.
async fn find_existing(cx: &Context, new: &NewVolume) -> Result<Option<Volume>, CloudError> {
    let named = BlockStorage::new(&cx.transport).volumes_named(&new.name).await?;
    let created = find_duplicates(&named, new);
    if !created.is_empty() {
        tracing::warn!(
            name = %new.name,
            volumes = created.join(", "),
            "several volumes were made for one: Cinder carried out an earlier request late; the claim gets one of them, the others \
             have to be deleted by hand"
        );
    }
    Ok(choose_volume(named.into_iter()))
}

async fn wait_created(
    cx: &Context,
    new: &NewVolume,
    volume: Volume,
    adopted: bool,
    started: Instant,
    deadline: Instant,
) -> Result<CreatedVolume, CloudError> {
    let id = volume.id.clone();
    let created = if let PollVerdict::Done(result) = judge_creation(&id, Some(&volume)) {
        result?
    } else {
        let wait = Wait {
            kind: Kind::Create,
            id: &id,
            name: Some(&new.name),
            status: Some(volume.status.clone()),
            started,
            deadline,
            at_most_every: None,
            what: format!("volume {id} ({})", new.name),
        };
        cx.watch.until(wait, |volume| judge_creation(&id, volume)).await?
    };
    if !failed_creation(&created.status) {
        return Ok(CreatedVolume {
            volume: created,
            adopted,
        });
    }
    let message = cinder_messages(cx, id.as_str()).await;
    let elapsed = started.elapsed();
    let removal = if adopted && !is_ours(&created, new) {
        Some("another caller created it; not deleted".to_owned())
    } else {
        remove_remains::<Volume>(cx, &id).await.err()
    };
    Err(CloudError::VolumeFailed {
        volume: id,
        status: created.status.to_string(),
        removed: removal.is_none(),
        message: join_texts(&message, &removal.unwrap_or_default()),
        elapsed,
    })
}

/// A creation ends with a complete volume, with a failed one, or with a deletion. A 404 ends it only after the database
/// lag.
fn judge_creation(id: &VolumeId, volume: Option<&Volume>) -> PollVerdict<Volume> {
    match volume {
        None => PollVerdict::Unchanged(Err(CloudError::no_volume(id))),
        Some(volume) if volume.status.is_coming() => PollVerdict::Pending,
        Some(volume) if volume.status == VolumeStatus::Deleting => PollVerdict::Done(Err(CloudError::no_volume(id))),
        Some(volume) => PollVerdict::Done(Ok(volume.clone())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn creation_fails_when_volume_is_deleted() {
        let seen = |status: &str| {
            let volume = json!({"id": "1", "size": 1, "status": status});
            let volume: Volume = serde_json::from_value(volume).expect("a volume");
            judge_creation(&volume.id, Some(&volume))
        };
        assert!(matches!(
            seen("deleting"),
            PollVerdict::Done(Err(CloudError::NotFound { .. }))
        ));
        assert!(matches!(seen("available"), PollVerdict::Done(Ok(_))));
        assert!(matches!(seen("creating"), PollVerdict::Pending));
    }
}
