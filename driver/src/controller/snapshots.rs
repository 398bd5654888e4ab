// SPDX-License-Identifier: Apache-2.0
//! Snapshots: to CSI, Cinder's snapshots and backups are both snapshots.

pub(super) mod create;
pub(super) mod delete;
mod listed;
pub(super) mod read;
mod zones;

use std::collections::BTreeMap;

use cinder_cloud::{Cloud, PointInTime, Snapshot};
use csi_proto::csi::v1 as csi;
use tonic::Status;

use super::{ControllerService, encode};
use crate::parameters::{METADATA_CLUSTER, metadata_keys};
use crate::status;
pub(super) use listed::ListedSnapshot;
pub(super) use zones::topology;

impl ControllerService {
    /// Encodes a snapshot with the zone in its metadata.
    pub(crate) fn encode_snapshot(&self, cloud: &Cloud, snapshot: &Snapshot) -> csi::Snapshot {
        let zone = snapshot.metadata.get(metadata_keys::ZONE).map(String::as_str);
        encode::point_in_time(&PointInTime::Snapshot(snapshot.clone()), topology(self, cloud, zone))
    }

    /// `FAILED_PRECONDITION` for an object of another cluster, if such objects are protected.
    ///
    /// An object without a cluster was imported by an administrator and is not protected.
    pub(crate) fn refuse_foreign(
        &self,
        kind: &str,
        id: &str,
        metadata: &BTreeMap<String, String>,
    ) -> Result<(), Status> {
        self.refuse_cluster(kind, id, metadata.get(METADATA_CLUSTER).map(String::as_str))
    }

    /// Like `refuse_foreign`, for the name of a cluster.
    pub(crate) fn refuse_cluster(&self, kind: &str, id: &str, cluster: Option<&str>) -> Result<(), Status> {
        let args = &self.settings.args;
        match cluster.filter(|cluster| args.protect_other_clusters && *cluster != args.cluster) {
            Some(cluster) => Err(status::foreign_object(kind, id, cluster)),
            None => Ok(()),
        }
    }
}
