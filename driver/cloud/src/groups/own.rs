//! The groups that we make: how they are known, when they may be touched, and how they go.
//!
//! A volume that leaves a group while its snapshot is taken is missing in it. Which process takes the snapshot is nowhere written, so
//! age tells: an attempt ends within the operation timeout, and it takes a group up only while the group is younger than that. A group
//! of twice that age, and of the time that the last request may take, is no attempt's any more.

use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::Instant;

use super::poll::is_settled;
use crate::block_storage::{BlockStorage, Group, GroupSnapshotRecord, GroupType};
use crate::cloud::Inner;
use crate::error::{CloudError, ObjectKind};
use crate::ids::VolumeId;
use crate::watch::timestamp;

/// How the description of every group snapshot and every group of ours begins. Behind it are the number of volumes of the one, and the id
/// of the snapshot of the other once it is known.
pub(super) const MARK: &str = "Made by the OpenStack Cinder CSI driver for one snapshot of several volumes.";

pub(super) fn is_own(group: &Group) -> bool {
    group.description.starts_with(MARK)
}

/// Whether a group snapshot bears our mark. Only such a one is removed without being asked for by its id.
pub(super) fn is_own_snapshot(record: &GroupSnapshotRecord) -> bool {
    record.description.starts_with(MARK)
}

/// The description of a group snapshot of so many volumes.
pub(super) fn description_of_snapshot(volumes: usize) -> String {
    format!("{MARK} Volumes: {volumes}.")
}

/// How many volumes a group snapshot of ours was made for: it has fewer members when one left the group too early. Those of earlier versions
/// do not tell.
pub(super) fn members_wanted(record: &GroupSnapshotRecord) -> Option<usize> {
    let rest = record.description.strip_prefix(MARK)?;
    rest.strip_prefix(" Volumes: ")?.strip_suffix('.')?.parse().ok()
}

/// The description of the group of a group snapshot.
fn description_of(id: &str) -> String {
    format!("{MARK} Group snapshot {id}.")
}

impl Inner {
    /// Our group of this name, if an earlier attempt left one that can be used; others of the name are removed.
    pub(super) async fn own_group(
        &self,
        name: &str,
        group_type: &GroupType,
        deadline: Instant,
    ) -> Result<Option<Group>, CloudError> {
        let all = BlockStorage::new(&self.transport).groups().await?;
        let mut usable: Option<Group> = None;
        for found in all.iter().filter(|group| group.name == name && is_own(group)) {
            let Some(group) = self.group_settled(&found.id, deadline).await? else {
                continue;
            };
            let is_good = group.status == "available" && group.type_id == group_type.id;
            let age = self.age(&group.created_at);
            if is_good && usable.is_none() && age < self.options.operation_timeout {
                usable = Some(group);
            } else if is_good && age < self.attempts_end() {
                return Err(CloudError::Busy {
                    kind: ObjectKind::Group,
                    id: group.id,
                    status: "in use by an earlier attempt at its snapshot, which may still be under way".to_owned(),
                    wanted: "unused",
                });
            } else {
                self.dissolve_if_own(&found.id, deadline).await?;
            }
        }
        Ok(usable)
    }

    /// Deletes what an earlier attempt at the group snapshot of this name left, its volumes aside.
    pub(super) async fn dissolve_groups_named(&self, name: &str, deadline: Instant) -> Result<(), CloudError> {
        let all = BlockStorage::new(&self.transport).groups().await?;
        for found in all.iter().filter(|group| group.name == name && is_own(group)) {
            self.dissolve_if_own(&found.id, deadline).await?;
        }
        Ok(())
    }

    /// Takes the volumes out of the group of a complete group snapshot, if it is ours, and notes there whose group it was. What the
    /// volumes' statuses do not allow now is left to the next call: a volume that stays in the group cannot be deleted.
    pub(super) async fn free_volumes(&self, record: &GroupSnapshotRecord, deadline: Instant) -> Result<(), CloudError> {
        let cinder = BlockStorage::new(&self.transport);
        let Some(group) = cinder.group(&record.group_id).await?.filter(is_own) else {
            return Ok(());
        };
        let description = description_of(&record.id);
        if group.volumes.is_empty() && group.description == description {
            return Ok(());
        }
        cinder
            .update_group(&group.id, &[], &group.volumes, Some(&description))
            .await?;
        match self.group_settled(&group.id, deadline).await? {
            Some(left) if !left.volumes.is_empty() => Err(CloudError::Busy {
                kind: ObjectKind::Group,
                id: left.id,
                status: left.status,
                wanted: "empty",
            }),
            _ => Ok(()),
        }
    }

    /// Empties and deletes a group that was seen or made just now, if it is ours, and waits until it is gone. Its volumes stay as they are.
    pub(super) async fn dissolve_if_own(&self, id: &str, deadline: Instant) -> Result<(), CloudError> {
        let cinder = BlockStorage::new(&self.transport);
        let Some(group) = self.group_made(id, deadline).await?.filter(is_own) else {
            return Ok(());
        };
        if !group.volumes.is_empty() {
            cinder.update_group(id, &[], &group.volumes, None).await?;
            let emptied = self.group_settled(id, deadline).await?;
            if emptied.is_none_or(|emptied| !emptied.volumes.is_empty()) {
                return Err(CloudError::Busy {
                    kind: ObjectKind::Group,
                    id: id.to_owned(),
                    status: group.status,
                    wanted: "empty",
                });
            }
        }
        cinder.delete_group(id).await?;
        self.group_gone(id, deadline).await
    }

    /// Deletes the group that a group snapshot which is no longer there has left behind.
    pub(super) async fn dissolve_group_of(&self, group_snapshot: &str, deadline: Instant) -> Result<(), CloudError> {
        let all = BlockStorage::new(&self.transport).groups().await?;
        let description = description_of(group_snapshot);
        for group in all.iter().filter(|group| group.description == description) {
            self.dissolve_if_own(&group.id, deadline).await?;
        }
        Ok(())
    }

    /// How old something of Cinder's is by Cinder's own clock; nothing where it tells no time that can be read.
    pub(super) fn age(&self, created_at: &str) -> Duration {
        let created = timestamp(created_at);
        let age = created.map(|created| self.transport.time_of_cinder().duration_since(created));
        age.and_then(|age| Duration::try_from(age).ok()).unwrap_or_default()
    }

    /// Takes a volume out of a group of ours in which a killed process left it. `false`: it is in none, or in one that is not ours.
    ///
    /// # Errors
    ///
    /// Fails with [`CloudError::Busy`] while a process may be at work on the group's snapshot.
    pub(crate) fn leave_own_group<'a>(&'a self, volume: &'a VolumeId) -> BoxFuture<'a, Result<bool, CloudError>> {
        // In a box, for it is seldom needed by those who might.
        Box::pin(self.take_out(volume))
    }

    async fn take_out(&self, volume: &VolumeId) -> Result<bool, CloudError> {
        let cinder = BlockStorage::new(&self.transport);
        if !cinder.knows_groups().await? {
            return Ok(false);
        }
        let Some(found) = cinder
            .grouped_volume(volume)
            .await?
            .filter(|found| !found.group_id.is_empty())
        else {
            return Ok(false);
        };
        let Some(group) = cinder.group(&found.group_id).await?.filter(is_own) else {
            return Ok(false);
        };
        if !self.is_abandoned(&group).await? {
            return Err(CloudError::Busy {
                kind: ObjectKind::Volume,
                id: volume.to_string(),
                status: format!("in group {} for a snapshot that may still be taken", group.id),
                wanted: "in no group",
            });
        }
        tracing::warn!(%volume, group = group.id, "taking a volume out of the group of an abandoned snapshot");
        let deadline = Instant::now() + self.options.operation_timeout;
        cinder
            .update_group(&group.id, &[], std::slice::from_ref(volume), None)
            .await?;
        let left = self.group_settled(&group.id, deadline).await?;
        let out = left.as_ref().is_none_or(|left| !left.volumes.contains(volume));
        if out && left.is_some_and(|left| left.volumes.is_empty()) {
            // Refused while its snapshot exists, with which it goes.
            let _ = self.dissolve_if_own(&group.id, deadline).await;
        }
        Ok(out)
    }

    /// Whether volumes may leave a group of ours: its snapshot is complete, or no attempt can be at work on it in any process.
    async fn is_abandoned(&self, group: &Group) -> Result<bool, CloudError> {
        let all = BlockStorage::new(&self.transport).group_snapshots().await?;
        let mut cut = all.iter().filter(|snapshot| snapshot.group_id == group.id).peekable();
        if cut.peek().is_some() {
            return Ok(cut.all(|snapshot| is_settled(&snapshot.status)));
        }
        Ok(self.age(&group.created_at) >= self.attempts_end())
    }

    /// From which age on no attempt is at work on a group.
    fn attempts_end(&self) -> Duration {
        2 * self.options.operation_timeout + self.options.request_timeout
    }
}
