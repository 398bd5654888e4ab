// SPDX-License-Identifier: Apache-2.0

use std::{sync::Arc, time::Duration};

use cinder_operator_core::migration::{Migration, check::AdoptionFinding};
use tokio::time::Instant;

use crate::observe::OldPods;

/// The last observations of a migration. Each of them takes many requests.
#[derive(Debug, Default)]
pub(crate) struct MigrationMemory {
    /// The state of the migration, and when it was reached.
    progress: Option<(Migration, Instant)>,
    /// The findings of the check before the migration, with the generation of the spec.
    findings: Option<(Option<i64>, Vec<AdoptionFinding>, Instant)>,
    /// The installations in other namespaces.
    elsewhere: Option<(Vec<String>, Instant)>,
    /// When no other installation was found, with the generation of the spec.
    settled: Option<(Option<i64>, Instant)>,
    /// The pods of the Go driver.
    pub(crate) old_pods: Arc<OldPods>,
}

impl MigrationMemory {
    /// The findings of the check before a migration with this generation of the spec, unless they are older than `within`.
    pub(crate) fn findings(&self, generation: Option<i64>, within: Duration) -> Option<Vec<AdoptionFinding>> {
        let (checked, findings, at) = self.findings.as_ref()?;
        (*checked == generation && at.elapsed() < within).then(|| findings.clone())
    }

    pub(crate) fn remember_findings(&mut self, generation: Option<i64>, findings: &[AdoptionFinding]) {
        self.findings = Some((generation, findings.to_vec(), Instant::now()));
    }

    /// The installations in other namespaces, unless they are older than `within`.
    pub(crate) fn elsewhere(&self, within: Duration) -> Option<Vec<String>> {
        let (installations, at) = self.elsewhere.as_ref()?;
        (at.elapsed() < within).then(|| installations.clone())
    }

    pub(crate) fn remember_elsewhere(&mut self, installations: &[String]) {
        self.elsewhere = Some((installations.to_vec(), Instant::now()));
    }

    /// Records that no other installation exists.
    pub(crate) fn remember_settled(&mut self, generation: Option<i64>) {
        self.settled = Some((generation, Instant::now()));
    }

    /// Whether no other installation existed with this generation of the spec, not longer than `within` ago.
    pub(crate) fn is_settled(&self, generation: Option<i64>, within: Duration) -> bool {
        self.settled
            .is_some_and(|(checked, at)| checked == generation && at.elapsed() < within)
    }

    /// How long the migration has been in this state.
    pub(crate) fn time_in_state(&mut self, migration: &Migration) -> Duration {
        let known = self.progress.take().filter(|(known, _)| known == migration);
        let (_, since) = self
            .progress
            .insert(known.unwrap_or_else(|| (migration.clone(), Instant::now())));
        since.elapsed()
    }
}
