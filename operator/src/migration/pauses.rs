// SPDX-License-Identifier: Apache-2.0
//! The pauses between observations of a migration.

use std::time::Duration;

use cinder_csi_crds::AdoptionStep;
use cinder_operator_core::decide::Decision;

use super::memory::MigrationMemory;

/// Pause between two observations of an installation that is being replaced.
pub(crate) const MIGRATION_PAUSE: Duration = Duration::from_secs(1);
/// A migration without progress for this time is observed less often. A pod takes 30 s to end.
pub(crate) const MIGRATION_STALLS_AFTER: Duration = Duration::from_mins(1);

/// The pause between two checks before a migration with the same spec. A check lists volumes, claims and pods.
pub(crate) const CHECK_PAUSE: Duration = Duration::from_mins(10);

/// The same pause while findings are open that an annotation cannot accept.
pub(crate) const OPEN_CHECK_PAUSE: Duration = Duration::from_mins(1);

/// The pause before the pods of all namespaces are listed again.
pub(crate) const ELSEWHERE_PAUSE: Duration = Duration::from_mins(1);

/// The pause until the next observation of a migration. No watch reports the other installation. It is `obstacle_pause`
/// while nothing is written or nothing changes, because an observation takes many requests.
pub(crate) fn migration_pause(
    memory: &MigrationMemory,
    decision: &Decision,
    obstacle_pause: Duration,
) -> Option<Duration> {
    let migration = decision.migration.as_ref()?;
    let still = memory.time_in_state(migration);
    match migration.step {
        AdoptionStep::Done => None,
        AdoptionStep::Preparing | AdoptionStep::GivenBack => Some(obstacle_pause),
        _ if !decision.read_only() && still < MIGRATION_STALLS_AFTER => Some(MIGRATION_PAUSE),
        _ => Some(obstacle_pause),
    }
}
