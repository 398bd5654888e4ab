// SPDX-License-Identifier: Apache-2.0
//! The last observations of a migration. Each of them takes many requests.

use std::time::Duration;

use cinder_operator_core::migration::{Migration, check::AdoptionFinding};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::old_pods::OldPods;

/// The last observations of the migration of one driver.
#[derive(Debug, Default)]
pub(crate) struct MigrationMemory {
    observations: Mutex<Observations>,
    /// The pods of the Go driver.
    pub(super) old_pods: OldPods,
}

#[derive(Debug, Default)]
struct Observations {
    /// The state of the migration, and when it was reached.
    progress: Option<(Migration, Instant)>,
    /// The findings of the check before the migration, with the generation of the spec.
    findings: Option<(Option<i64>, Vec<AdoptionFinding>, Instant)>,
    /// The installations in other namespaces.
    elsewhere: Option<(Vec<String>, Instant)>,
    /// When no other installation was found, with the generation of the spec.
    settled: Option<(Option<i64>, Instant)>,
}

impl MigrationMemory {
    /// The findings of the check before a migration with this generation of the spec, unless they are older than
    /// `within`.
    pub(crate) fn findings(&self, generation: Option<i64>, within: Duration) -> Option<Vec<AdoptionFinding>> {
        let observations = self.observations.lock();
        let (checked, findings, at) = observations.findings.as_ref()?;
        (*checked == generation && at.elapsed() < within).then(|| findings.clone())
    }

    pub(crate) fn remember_findings(&self, generation: Option<i64>, findings: &[AdoptionFinding]) {
        self.observations.lock().findings = Some((generation, findings.to_vec(), Instant::now()));
    }

    /// The installations in other namespaces, unless they are older than `within`.
    pub(super) fn elsewhere(&self, within: Duration) -> Option<Vec<String>> {
        let observations = self.observations.lock();
        let (installations, at) = observations.elsewhere.as_ref()?;
        (at.elapsed() < within).then(|| installations.clone())
    }

    pub(super) fn remember_elsewhere(&self, installations: &[String]) {
        self.observations.lock().elsewhere = Some((installations.to_vec(), Instant::now()));
    }

    /// Records that no other installation exists, so that it is not searched in every reconcile.
    pub(crate) fn remember_settled(&self, generation: Option<i64>) {
        self.observations.lock().settled = Some((generation, Instant::now()));
    }

    /// Whether no other installation existed with this generation of the spec, not longer than `within` ago.
    pub(crate) fn is_settled(&self, generation: Option<i64>, within: Duration) -> bool {
        let settled = self.observations.lock().settled;
        settled.is_some_and(|(checked, at)| checked == generation && at.elapsed() < within)
    }

    /// How long the migration has been in this state.
    pub(super) fn time_in_state(&self, migration: &Migration) -> Duration {
        let mut observations = self.observations.lock();
        let progress = &mut observations.progress;
        let known = progress.take().filter(|(known, _)| known == migration);
        let (_, since) = progress.insert(known.unwrap_or_else(|| (migration.clone(), Instant::now())));
        since.elapsed()
    }
}
