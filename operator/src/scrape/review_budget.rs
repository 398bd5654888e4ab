// SPDX-License-Identifier: Apache-2.0
//! Limits the reviews of unknown tokens per client. Each review is a request to the API server.

use std::{collections::HashMap, net::IpAddr, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Number of reviews that an address may cause at once.
pub(super) const BURST: u32 = 8;
/// Interval at which one further review becomes available.
const INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of recorded addresses. Further addresses get no review until one of these expires.
const MAX_PEERS: usize = 256;

/// The budgets of all addresses. Each address has its own, so that one client cannot use up the reviews of Prometheus.
#[derive(Debug, Default)]
pub(super) struct ReviewBudget(
    /// The time at which the budget of an address is full again.
    Mutex<HashMap<IpAddr, Instant>>,
);

impl ReviewBudget {
    /// Uses one review of the budget of an address. Returns false if the budget is exhausted.
    pub(super) fn take(&self, peer: IpAddr) -> bool {
        let now = Instant::now();
        let mut peers = self.0.lock();
        peers.retain(|_, full| *full > now);
        if peers.len() >= MAX_PEERS && !peers.contains_key(&peer) {
            return false;
        }
        let full = peers.entry(peer).or_insert(now);
        let has_left = full.duration_since(now) + INTERVAL <= BURST * INTERVAL;
        if has_left {
            *full += INTERVAL;
        }
        has_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    #[tokio::test(start_paused = true)]
    async fn each_address_has_burst_and_rate() {
        let budget = ReviewBudget::default();
        let taken = |peer| (0..100).filter(|_| budget.take(peer)).count();
        assert_eq!(taken(peer(1)), BURST as usize);
        assert_eq!(taken(peer(2)), BURST as usize, "another address");
        tokio::time::advance(2 * INTERVAL).await;
        assert_eq!(taken(peer(1)), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn number_of_addresses_is_bounded() {
        let budget = ReviewBudget::default();
        let most = u32::try_from(MAX_PEERS).expect("small");
        assert!((0..most).all(|number| budget.take(peer(number))));
        assert!(!budget.take(peer(most)));
        assert!(budget.take(peer(0)), "a known one");
        tokio::time::advance(2 * INTERVAL).await;
        assert!(budget.take(peer(most)));
    }
}
