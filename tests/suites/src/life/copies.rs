// SPDX-License-Identifier: Apache-2.0
//! Snapshots, group snapshots, and volumes from snapshots or volumes.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use csi_proto::csi::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};
use csi_proto::csi::v1::{
    CreateSnapshotRequest, CreateVolumeGroupSnapshotRequest, DeleteSnapshotRequest, DeleteVolumeGroupSnapshotRequest,
    Snapshot, Volume, VolumeContentSource, VolumeGroupSnapshot,
};
use harness::wait_for_some;

use super::Life;

/// Source of a new volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A snapshot or backup with this id.
    Snapshot(String),
    /// A volume with this id.
    Volume(String),
}

impl From<&Source> for VolumeContentSource {
    fn from(source: &Source) -> Self {
        let r#type = match source {
            Source::Snapshot(id) => Type::Snapshot(SnapshotSource {
                snapshot_id: id.clone(),
            }),
            Source::Volume(id) => Type::Volume(VolumeSource { volume_id: id.clone() }),
        };
        Self { r#type: Some(r#type) }
    }
}

impl Life {
    /// Calls CreateSnapshot repeatedly until the snapshot is ready, as the snapshotter does.
    pub async fn snapshot(&self, name: &str, volume: &Volume, parameters: &[(&str, &str)]) -> Result<Snapshot> {
        wait_for_some(
            &format!("snapshot {name} to be ready"),
            self.retries.call_timeout,
            async || {
                let snapshot = self.begin_snapshot(name, volume, parameters).await?;
                Ok(Some(snapshot).filter(|snapshot| snapshot.ready_to_use))
            },
        )
        .await
    }

    /// Calls CreateSnapshot with retries; the snapshot may not be ready yet.
    pub async fn begin_snapshot(&self, name: &str, volume: &Volume, parameters: &[(&str, &str)]) -> Result<Snapshot> {
        let request = CreateSnapshotRequest {
            name: name.to_owned(),
            source_volume_id: volume.volume_id.clone(),
            parameters: map(parameters),
            ..CreateSnapshotRequest::default()
        };
        let call = async || self.controller.clone().create_snapshot(request.clone()).await;
        let answer = self.retries.repeat("CreateSnapshot", call).await?;
        answer.snapshot.context("CreateSnapshot answers without a snapshot")
    }

    /// Calls DeleteSnapshot with the snapshotter's retries.
    pub async fn delete_snapshot(&self, id: &str) -> Result<()> {
        let request = DeleteSnapshotRequest {
            snapshot_id: id.to_owned(),
            ..DeleteSnapshotRequest::default()
        };
        let call = async || self.controller.clone().delete_snapshot(request.clone()).await;
        self.retries.repeat("DeleteSnapshot", call).await.map(drop)
    }

    /// Calls CreateVolumeGroupSnapshot repeatedly until it is ready, as the snapshotter does.
    pub async fn group_snapshot(
        &self,
        name: &str,
        volumes: &[&Volume],
        parameters: &[(&str, &str)],
    ) -> Result<VolumeGroupSnapshot> {
        let request = CreateVolumeGroupSnapshotRequest {
            name: name.to_owned(),
            source_volume_ids: volumes.iter().map(|volume| volume.volume_id.clone()).collect(),
            parameters: map(parameters),
            ..CreateVolumeGroupSnapshotRequest::default()
        };
        let call = async || self.groups.clone().create_volume_group_snapshot(request.clone()).await;
        let what = format!("group snapshot {name} to be ready");
        wait_for_some(&what, self.retries.call_timeout, async || {
            let answer = self.retries.repeat("CreateVolumeGroupSnapshot", call).await?;
            let made = answer.group_snapshot;
            let made = made.context("CreateVolumeGroupSnapshot answers without a group snapshot")?;
            Ok(Some(made).filter(|made| made.ready_to_use))
        })
        .await
    }

    /// Calls DeleteVolumeGroupSnapshot with the snapshotter's retries.
    pub async fn delete_group_snapshot(&self, group_snapshot: &VolumeGroupSnapshot) -> Result<()> {
        let members = group_snapshot.snapshots.iter();
        let request = DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: group_snapshot.group_snapshot_id.clone(),
            snapshot_ids: members.map(|member| member.snapshot_id.clone()).collect(),
            ..DeleteVolumeGroupSnapshotRequest::default()
        };
        let call = async || self.groups.clone().delete_volume_group_snapshot(request.clone()).await;
        self.retries.repeat("DeleteVolumeGroupSnapshot", call).await.map(drop)
    }
}

pub(super) fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|&(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}
