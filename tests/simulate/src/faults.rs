// SPDX-License-Identifier: Apache-2.0
//! How often what goes wrong. Each seed draws its own weather.

use std::time::Duration;

use crate::machine;
use crate::schedule::Schedule;

/// Chances in 1,000 requests or occasions, and bounds of time. All zero: nothing goes wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// A request is refused before it is sent: no connection.
    pub refused: u64,
    /// A request is lost on its way: it has no effect, and the connection breaks.
    pub lost: u64,
    /// The request has its effect, and the answer is lost: the connection breaks.
    pub answer_lost: u64,
    /// The same, and the client waits until its time is up.
    pub silence: u64,
    /// 429 with `Retry-After`.
    pub throttled: u64,
    /// 409 without effect, for requests that change something.
    pub conflict: u64,
    /// 413 of Cinder for what needs quota, without effect.
    pub quota: u64,
    /// 403 without effect, for requests that change something.
    pub policy: u64,
    /// 400 without effect, for what needs quota.
    pub invalid: u64,
    /// 500 or 503 without effect.
    pub server_error: u64,
    /// 500 or 503 although the request had its effect.
    pub false_error: u64,
    /// An answer takes up to [`Faults::slowest`].
    pub slow: u64,
    /// The longest that a request or an answer is on its way, well below the clients' limit.
    pub slowest: Duration,
    /// A request reaches the API node with a lagging database.
    pub lagging: u64,
    /// How far that database is behind at most: less than a killed process is away, or a sidecar waits before it tries again. A new
    /// volume that cannot be found by its name then would be made twice, whatever a driver does.
    pub longest_lag: Duration,
    /// What Cinder has accepted fails in the backend.
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
    /// An administrator detaches, retypes or resets by hand.
    pub administrator: u64,
    /// A node's driver or kubelet is killed, or the node reboots.
    pub nodes: u64,
    /// A node loses its power or its way to the API server for minutes.
    pub outages: u64,
    /// What goes wrong on nodes.
    pub machine: machine::Faults,
    /// A user builds a server with a volume of the cluster.
    pub builds: u64,
    /// All workloads are scaled to zero and back.
    pub pauses: u64,
}

impl Faults {
    /// The weather of a seed.
    pub fn draw(schedule: &Schedule) -> Self {
        // Some seeds are calm and some are rough: what breaks in a storm of faults may need a calm to be reached.
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

    /// The end of all faults. An API node stays behind: that is how some clouds are.
    #[must_use]
    pub fn over(self) -> Self {
        Self {
            lagging: self.lagging,
            longest_lag: self.longest_lag,
            slowest: self.slowest,
            ..Self::default()
        }
    }
}
