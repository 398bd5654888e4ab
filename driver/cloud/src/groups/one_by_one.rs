//! Snapshots of several volumes, taken one by one: not of one moment, for whoever asks for that by name.
//!
//! Cinder knows nothing of such a group. Its id follows from its name, and every member bears it, with the number of members, in its
//! metadata: so a repeated creation or deletion finds what an earlier one has left, whenever that was killed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use sha2::{Digest, Sha256};

use super::{GroupSnapshot, MOST_VOLUMES, PARALLEL};
use crate::block_storage::{BlockStorage, NewSnapshot, Snapshot, Volume};
use crate::cloud::Inner;
use crate::error::{CloudError, ObjectKind};
use crate::ids::{GroupSnapshotId, SnapshotId, VolumeId};
use crate::marks;

/// What snapshots taken one by one shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewOneByOne {
    /// The name of all of them together, by which a repeated creation finds the first one's.
    pub name: String,
    /// The volumes.
    pub volumes: BTreeSet<VolumeId>,
    /// Whether they are taken of volumes that are in use, too.
    pub force: bool,
    /// A description for people.
    pub description: String,
    /// Metadata of each member.
    pub metadata: BTreeMap<String, String>,
    /// Whether each member bears its volume's zone, as [`marks::ZONE`].
    pub mark_zones: bool,
}

/// The version of the UUIDs that are made of names. Those that Cinder gives are random ones, of version 4.
const OWN_VERSION: usize = 8;

/// The id of the group of this name.
pub(super) fn id_of(name: &str) -> GroupSnapshotId {
    let digest = Sha256::digest(name.as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    let id = uuid::Builder::from_custom_bytes(bytes).into_uuid();
    GroupSnapshotId::new(id.hyphenated().to_string())
}

/// Whether an id is one of ours, of which Cinder has no object.
pub(super) fn is_own_id(id: &GroupSnapshotId) -> bool {
    id.is_uuid() && uuid::Uuid::try_parse(id.as_str()).is_ok_and(|id| id.get_version_num() == OWN_VERSION)
}

/// How many members the group has, as its member tells.
fn expected(member: &Snapshot) -> usize {
    let told = member.metadata.get(marks::GROUP_SNAPSHOT_MEMBERS);
    told.and_then(|told| told.parse().ok()).unwrap_or(usize::MAX)
}

fn name_of(group: &str, volume: &VolumeId) -> String {
    format!("{group}-{volume}")
}

impl Inner {
    /// See [`crate::Cloud::create_one_by_one`].
    pub(crate) async fn create_one_by_one(
        &self,
        new: &NewOneByOne,
        patience: Duration,
    ) -> Result<GroupSnapshot, CloudError> {
        if let Some(volume) = new.volumes.iter().find(|volume| !volume.is_uuid()) {
            return Err(CloudError::no_volume(volume));
        }
        if new.volumes.len() > MOST_VOLUMES {
            return Err(CloudError::CannotGroup {
                name: new.name.clone(),
                reason: format!("it has {} volumes, and {MOST_VOLUMES} are the most", new.volumes.len()),
            });
        }
        let id = id_of(&new.name);
        let there = self.members_of(&id).await?;
        refuse_others(new, &id, &there)?;
        if there.is_empty() {
            self.refuse_cut_together(new).await?;
        }
        let complete = |member: &Snapshot| member.status.is_complete();
        // By volume: after a lost answer there may be two of one volume, and none of another.
        let taken: BTreeSet<&VolumeId> = there.iter().map(|member| &member.volume_id).collect();
        let is_whole = there.len() == new.volumes.len() && taken.len() == there.len();
        if is_whole && there.iter().all(complete) {
            return Ok(of_members(id, there));
        }
        // One that is there may have come to an error: the look at each decides.
        let volumes = self.volumes_of(new).await?;
        let taken = stream::iter(volumes)
            .map(|volume| {
                let id = &id;
                async move { self.take_member(new, id, &volume, patience).await }
            })
            .buffered(PARALLEL);
        // To the end, whatever becomes of some: what was asked for is known then, and nothing comes afterwards.
        let taken: Vec<Result<Snapshot, CloudError>> = taken.collect().await;
        let mut failure: Option<CloudError> = None;
        let mut snapshots = Vec::new();
        for one in taken {
            match one {
                Ok(snapshot) => snapshots.push(snapshot),
                // One that does not pass is told before one that does.
                Err(error) if failure.as_ref().is_none_or(|known| passes(known) && !passes(&error)) => {
                    failure = Some(error);
                }
                Err(_) => {}
            }
        }
        let Some(error) = failure else {
            return Ok(of_members(id, snapshots));
        };
        // What passes is gone on with by the next attempt. Nobody may come back for the rest.
        if !passes(&error)
            && let Err(left) = self.delete_one_by_one(&id, &BTreeSet::new()).await
        {
            return Err(CloudError::SnapshotFailed {
                kind: ObjectKind::GroupSnapshot,
                id: id.to_string(),
                status: "incomplete".to_owned(),
                message: format!("{error}; the removal of its other members failed: {left}"),
                removed: false,
            });
        }
        Err(error)
    }

    /// The group with the members that are there; `None` when there is none.
    pub(super) async fn one_by_one(&self, id: &GroupSnapshotId) -> Result<Option<GroupSnapshot>, CloudError> {
        let members = self.members_of(id).await?;
        Ok((!members.is_empty()).then(|| of_members(id.clone(), members)))
    }

    /// Deletes all members and waits until they are gone. Where `named` are named, no other one may be there.
    pub(super) async fn delete_one_by_one(
        &self,
        id: &GroupSnapshotId,
        named: &BTreeSet<SnapshotId>,
    ) -> Result<(), CloudError> {
        let members: BTreeSet<SnapshotId> = self.members_of(id).await?.into_iter().map(|member| member.id).collect();
        if members.is_empty() {
            return Ok(());
        }
        self.refuse_other_members(id, &members, named).await?;
        let deleted = stream::iter(members)
            .map(|member| async move { self.delete_snapshot(&member).await })
            .buffered(PARALLEL);
        // As many as possible, whatever becomes of some.
        let deleted: Vec<Result<(), CloudError>> = deleted.collect().await;
        deleted.into_iter().collect()
    }

    /// [`CloudError::OtherMembers`] unless the group has no member but those that are named, and those that are missing are gone:
    /// an earlier deletion may have been cut short.
    pub(super) async fn refuse_other_members(
        &self,
        id: &GroupSnapshotId,
        members: &BTreeSet<SnapshotId>,
        named: &BTreeSet<SnapshotId>,
    ) -> Result<(), CloudError> {
        if named.is_empty() {
            return Ok(());
        }
        let mut differ = !members.is_subset(named);
        for missing in named.difference(members).filter(|missing| missing.is_uuid()) {
            differ = differ || BlockStorage::new(&self.transport).snapshot(missing).await?.is_some();
        }
        if differ {
            return Err(CloudError::OtherMembers {
                id: id.clone(),
                members: members.iter().cloned().collect(),
            });
        }
        Ok(())
    }

    /// Refuses to cut together what was taken one by one under the same name.
    pub(super) async fn refuse_taken_one_by_one(&self, name: &str) -> Result<(), CloudError> {
        let id = id_of(name);
        if self.members_of(&id).await?.is_empty() {
            return Ok(());
        }
        Err(exists(
            name,
            &id,
            "its members were taken one by one, and snapshots of one moment are wanted",
        ))
    }

    async fn refuse_cut_together(&self, new: &NewOneByOne) -> Result<(), CloudError> {
        if !BlockStorage::new(&self.transport).knows_groups().await? {
            return Ok(());
        }
        match self.group_snapshot_named(&new.name).await? {
            None => Ok(()),
            Some(found) => Err(exists(
                &new.name,
                &GroupSnapshotId::new(found.id),
                "it was cut at one moment, and members taken one by one are wanted",
            )),
        }
    }

    async fn members_of(&self, id: &GroupSnapshotId) -> Result<Vec<Snapshot>, CloudError> {
        let cinder = BlockStorage::new(&self.transport);
        cinder.marked_snapshots(marks::GROUP_SNAPSHOT, id.as_str()).await
    }

    /// The volumes, all of which must be there before anything is made.
    async fn volumes_of(&self, new: &NewOneByOne) -> Result<Vec<Volume>, CloudError> {
        let cinder = BlockStorage::new(&self.transport);
        let looks = stream::iter(new.volumes.iter().cloned())
            .map(|id| async move { cinder.volume(&id).await?.ok_or_else(|| CloudError::no_volume(&id)) })
            .buffered(PARALLEL);
        let looks: Vec<Result<Volume, CloudError>> = looks.collect().await;
        looks.into_iter().collect()
    }

    async fn take_member(
        &self,
        new: &NewOneByOne,
        id: &GroupSnapshotId,
        volume: &Volume,
        patience: Duration,
    ) -> Result<Snapshot, CloudError> {
        let mut metadata = new.metadata.clone();
        metadata.insert(marks::GROUP_SNAPSHOT.to_owned(), id.to_string());
        metadata.insert(marks::GROUP_SNAPSHOT_MEMBERS.to_owned(), new.volumes.len().to_string());
        if let Some(zone) = volume.availability_zone.clone().filter(|_| new.mark_zones) {
            metadata.insert(marks::ZONE.to_owned(), zone);
        }
        let wanted = NewSnapshot {
            name: name_of(&new.name, &volume.id),
            volume_id: volume.id.clone(),
            force: new.force,
            description: new.description.clone(),
            metadata,
        };
        let taken = self.create_snapshot(&wanted, Some(patience)).await?;
        if taken.group() == Some(id.as_str()) {
            return Ok(taken);
        }
        Err(CloudError::SnapshotExists {
            kind: ObjectKind::Snapshot,
            id: taken.id.to_string(),
            name: wanted.name,
            difference: format!("it is no member of group snapshot {id}"),
        })
    }
}

/// Refuses members of other volumes than those asked for.
fn refuse_others(new: &NewOneByOne, id: &GroupSnapshotId, there: &[Snapshot]) -> Result<(), CloudError> {
    let sources: BTreeSet<&VolumeId> = there.iter().map(|member| &member.volume_id).collect();
    let wanted: BTreeSet<&VolumeId> = new.volumes.iter().collect();
    let sized = there.iter().all(|member| expected(member) == wanted.len());
    if sized && sources.is_subset(&wanted) {
        return Ok(());
    }
    let list = |ids: &BTreeSet<&VolumeId>| ids.iter().map(|id| id.as_str()).collect::<Vec<_>>().join(", ");
    Err(exists(
        &new.name,
        id,
        &format!(
            "snapshots of volumes {} are wanted; {} of {} members are there, of volumes {}",
            list(&wanted),
            there.len(),
            there.first().map_or(0, expected),
            list(&sources)
        ),
    ))
}

fn exists(name: &str, id: &GroupSnapshotId, difference: &str) -> CloudError {
    CloudError::SnapshotExists {
        kind: ObjectKind::GroupSnapshot,
        id: id.to_string(),
        name: name.to_owned(),
        difference: difference.to_owned(),
    }
}

/// Whether the next, equal attempt may succeed without anybody changing anything.
fn passes(error: &CloudError) -> bool {
    error.is_transient()
        || matches!(
            error,
            CloudError::Conflict(_)
                | CloudError::Busy { .. }
                | CloudError::Timeout { .. }
                | CloudError::Auth(_)
                | CloudError::Unauthenticated(_)
                | CloudError::NoEndpoint { .. }
                | CloudError::Setup(_)
        )
}

fn of_members(id: GroupSnapshotId, mut snapshots: Vec<Snapshot>) -> GroupSnapshot {
    snapshots.sort_by(|one, other| one.volume_id.cmp(&other.volume_id));
    let earliest = snapshots.iter().map(|member| &member.created_at).min();
    GroupSnapshot {
        id,
        // What was written before this is in all of them.
        created_at: earliest.cloned().unwrap_or_default(),
        members: snapshots.iter().map(expected).max().unwrap_or_default(),
        snapshots,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_name_is_always_the_same_and_none_that_cinder_gives() {
        let id = id_of("groupsnapshot-1");
        assert_eq!(id, id_of("groupsnapshot-1"));
        assert_ne!(id, id_of("groupsnapshot-2"));
        assert!(is_own_id(&id), "{id}");
        for other in [&csi_sources::Sources::system().uuid().to_string(), "no-uuid", ""] {
            assert!(!is_own_id(&GroupSnapshotId::new(other)), "{other}");
        }
    }
}
