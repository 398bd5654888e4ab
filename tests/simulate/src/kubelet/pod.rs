// SPDX-License-Identifier: Apache-2.0
//! Operations of pods on a volume: they write keys, with and without `fsync`, and read all keys.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use csi_host::Machine;
use csi_proto::csi::v1::NodeGetVolumeStatsRequest;
use csi_proto::csi::v1::volume_usage::Unit;
use tonic::Code;

use super::{Client, Mounting};
use crate::cluster::VolumeMode;

/// Maximum pause between two operations of a pod.
const PAUSE: Duration = Duration::from_secs(40);

impl Mounting {
    /// Runs this number of operations; the first and the last one are reads.
    pub(super) async fn run_operations(&mut self, acts: u64) {
        let schedule = self.cluster.schedule.clone();
        self.read();
        for _ in 0..acts {
            let time = schedule.between(Duration::ZERO, PAUSE);
            schedule
                .event(time, || format!("the pod of {} does something", self.claim.volume))
                .await;
            let at = usize::try_from(schedule.below(self.targets.len() as u64)).unwrap_or_default();
            match schedule.below(16) {
                0..6 => self.write(at, true),
                6..12 => self.write(at, false),
                12..14 => self.read(),
                14 => self.ask_usage(at).await,
                _ => self.ask_limit().await,
            }
            self.expand().await;
        }
        self.read();
        self.note("is no longer needed by its pod");
    }

    fn write(&mut self, at: usize, is_synced: bool) {
        let volume = self.claim.volume.clone();
        let (path, is_read_only) = (self.targets[at].path.clone(), self.targets[at].is_read_only);
        let key = self.cluster.backend.key(&volume);
        let written = if is_synced {
            self.machine().write(&path, key)
        } else {
            self.machine().write_cached(&path, key)
        };
        self.note(&format!(
            "gets key {key}{}: {written:?}",
            if is_synced { "" } else { " without fsync" }
        ));
        match written {
            // The kernel refuses writes to a block device only if no publish target is writable.
            Ok(()) if is_read_only && !(self.is_block() && self.targets.iter().any(|target| !target.is_read_only)) => {
                self.wrong(&format!(
                    "it is published read-only at {}, and can be written",
                    path.display()
                ));
            }
            Ok(()) if is_synced => self.cluster.backend.record_durable(&volume, [key]),
            Ok(()) => {
                self.cached.insert(key);
            }
            Err(_) if is_read_only || self.is_excused() => {}
            Err(error) => self.wrong(&format!("{} cannot be written: {error}", path.display())),
        }
    }

    fn read(&mut self) {
        let paths: Vec<PathBuf> = self.targets.iter().map(|target| target.path.clone()).collect();
        for path in paths {
            let read = self.machine().read(&path);
            match read.map(|keys| self.cluster.backend.compare(&self.claim.volume, &keys)) {
                Ok(Ok(())) => self.has_read = true,
                Ok(Err(difference)) => self.wrong(&difference),
                Err(error) => self.check_unreadable(&path, &error),
            }
        }
    }

    fn check_unreadable(&self, path: &std::path::Path, error: &io::Error) {
        if !self.is_excused() {
            self.wrong(&format!("{} cannot be read: {error}", path.display()));
        }
    }

    async fn ask_usage(&self, at: usize) {
        let path = &self.targets[at].path;
        let request = NodeGetVolumeStatsRequest {
            volume_id: self.claim.volume.clone(),
            volume_path: path.display().to_string(),
            ..NodeGetVolumeStatsRequest::default()
        };
        let call = |mut client: Client, request| async move { client.node_get_volume_stats(request).await };
        match self.node.call(request, call).await {
            Ok(answer) => {
                let total = answer.usage.iter().find(|usage| usage.unit() == Unit::Bytes);
                let total = total.and_then(|usage| u64::try_from(usage.total).ok());
                let actual = self.machine().statvfs(path).ok().map(|usage| usage.bytes_total);
                if !self.is_block() && total != actual && !self.is_excused() {
                    self.wrong(&format!(
                        "NodeGetVolumeStats says {total:?}, and it has {actual:?} bytes"
                    ));
                }
            }
            Err(status) => {
                self.note(&format!("has no figures: {:?}: {}", status.code(), status.message()));
                if status.code() == Code::NotFound && !self.is_excused() {
                    self.wrong(&format!("NodeGetVolumeStats says that it is not at {}", path.display()));
                }
            }
        }
    }

    fn is_block(&self) -> bool {
        self.claim.mode == VolumeMode::Block
    }
}
