// SPDX-License-Identifier: Apache-2.0
//! Probabilities of faults. Each seed draws its own.

use std::time::Duration;

use crate::machine;
use crate::schedule::Schedule;

/// Probabilities per 1,000 requests or occasions, and time limits. With all zero, nothing fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// The connection is refused before the request is sent.
    pub refused: u64,
    /// The request is lost: it has no effect, and the connection is closed.
    pub lost: u64,
    /// The request takes effect, the response is lost, and the connection is closed.
    pub answer_lost: u64,
    /// The request takes effect, the response is lost, and the client waits until its timeout.
    pub silence: u64,
    /// 429 with `Retry-After`.
    pub throttled: u64,
    /// 409 without effect, for mutating requests.
    pub conflict: u64,
    /// 413 of Cinder for requests that need quota, without effect.
    pub quota: u64,
    /// 403 without effect, for mutating requests.
    pub policy: u64,
    /// 400 without effect, for requests that need quota.
    pub invalid: u64,
    /// 500 or 503 without effect.
    pub server_error: u64,
    /// 500 or 503 although the request took effect.
    pub false_error: u64,
    /// A response takes up to [`Faults::slowest`].
    pub slow: u64,
    /// Maximum latency of a request or a response, well below the clients' timeout.
    pub slowest: Duration,
    /// A request reaches the API node with a lagging database.
    pub lagging: u64,
    /// Maximum lag of that database. It is shorter than the restart of a killed process and the retry interval of a
    /// sidecar. Otherwise, no driver could find its new volume by name, and every driver would create it twice.
    pub longest_lag: Duration,
    /// Work that Cinder has accepted fails in the backend.
    pub work_fails: u64,
    /// A controller or node process is killed.
    pub kills: u64,
    /// A service, a cell, hosts or the project's quota fail for minutes.
    pub parts: u64,
    /// The credentials lead to another project for minutes.
    pub logins: u64,
    /// Sidecars change their leader.
    pub elections: u64,
    /// A server is shelved, put into error or deleted, or its host fails.
    pub servers: u64,
    /// An administrator detaches, retypes or resets resources.
    pub administrator: u64,
    /// A node's driver or kubelet is killed, or the node reboots.
    pub nodes: u64,
    /// A node loses its power or its connection to the API server for minutes.
    pub outages: u64,
    /// Faults on nodes.
    pub machine: machine::Faults,
    /// A user builds a server with a volume of the cluster.
    pub builds: u64,
    /// All workloads are scaled to zero and back.
    pub pauses: u64,
}

impl Faults {
    /// Draws the faults of a seed.
    pub fn draw(schedule: &Schedule) -> Self {
        // Some seeds are calm and some are rough, because a calm period may be needed to reach a fault's consequences.
        let roughness = schedule.one_of(&[0, 1, 3, 10]);
        let draw = |most: u64| {
            if schedule.chance(600) {
                schedule.below(most * roughness + 1)
            } else {
                0
            }
        };
        Self {
            refused: draw(8),
            lost: draw(8),
            answer_lost: draw(8),
            silence: draw(4),
            throttled: draw(8),
            conflict: draw(4),
            quota: draw(4),
            policy: draw(2),
            invalid: draw(4),
            server_error: draw(8),
            false_error: draw(6),
            slow: draw(20),
            slowest: Duration::from_millis(500 + schedule.below(8_000)),
            lagging: if schedule.chance(400) { schedule.below(500) } else { 0 },
            longest_lag: Duration::from_millis(schedule.below(900)),
            work_fails: draw(5),
            kills: draw(15),
            parts: draw(6),
            logins: draw(3),
            elections: draw(10),
            servers: draw(40),
            administrator: draw(4),
            nodes: draw(60),
            outages: draw(8),
            machine: machine::Faults::draw(draw, Duration::from_secs(1 + schedule.below(90))),
            builds: draw(16),
            pauses: schedule.below(200),
        }
    }

    /// Ends all faults. An API node continues to lag, as in some real clouds.
    #[must_use]
    pub fn calm(self) -> Self {
        Self {
            lagging: self.lagging,
            longest_lag: self.longest_lag,
            slowest: self.slowest,
            ..Self::default()
        }
    }
}
