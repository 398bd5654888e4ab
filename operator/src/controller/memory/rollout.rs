// SPDX-License-Identifier: Apache-2.0

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use cinder_csi_crds::CinderCSIDriverStatus;
use tokio::time::Instant;

/// The state of the nodes that no object records, or not yet.
#[derive(Debug, Default)]
pub(crate) struct RolloutMemory {
    /// The nodes in the last written status that were broken before their pods are replaced. The watch reports that status later.
    broken_before: Option<Vec<String>>,
    /// Since when nodes have had no pod, or a Ready pod without a registration.
    absences: BTreeMap<String, Instant>,
}

impl RolloutMemory {
    /// The nodes that were broken before their pods are replaced, by the last written status, else by the one that was read.
    pub(crate) fn broken_before(&self, read: Option<&CinderCSIDriverStatus>) -> Vec<String> {
        let read = read.and_then(|status| status.nodes.as_ref());
        self.broken_before
            .clone()
            .or_else(|| Some(read?.broken_before.clone()))
            .unwrap_or_default()
    }

    /// Records the nodes of a written status.
    pub(crate) fn remember_broken(&mut self, written: &CinderCSIDriverStatus) {
        let nodes = written.nodes.as_ref();
        self.broken_before = Some(nodes.map(|nodes| nodes.broken_before.clone()).unwrap_or_default());
    }

    /// How long each of these nodes has been without the driver, as far as this process has observed. Forgets all other nodes.
    pub(crate) fn absence_times(&mut self, without: &BTreeSet<&str>) -> BTreeMap<String, Duration> {
        self.absences.retain(|node, _| without.contains(node.as_str()));
        for node in without {
            self.absences.entry((*node).to_owned()).or_insert_with(Instant::now);
        }
        let absences = self.absences.iter();
        absences.map(|(node, since)| (node.clone(), since.elapsed())).collect()
    }
}
