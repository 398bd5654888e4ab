// SPDX-License-Identifier: Apache-2.0
//! The pauses until the next reconcile of an object.

use std::time::Duration;

/// Added to the pause until an expected event, so that the event has happened when the reconcile begins.
pub(super) const RECHECK_MARGIN: Duration = Duration::from_millis(100);
/// Pause before an obstacle is checked again.
pub(super) const OBSTACLE_PAUSE: Duration = Duration::from_secs(10);
/// Pause before another attempt to acquire a Lease with an unknown holder.
pub(super) const LEASE_PAUSE: Duration = Duration::from_secs(5);
