// SPDX-License-Identifier: Apache-2.0
//! The open connections of an HTTP server.
//!
//! Their number is bounded. At the limit, the server closes a connection that waits for its client, and admits the new
//! one.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use crate::timing::TIMING;

/// Limit of connections of a server.
pub(super) const MAX_CONNECTIONS: usize = 32;
/// Limit of connections of one address. Loopback is exempt, because all programs of the host share it, including the
/// kubelet.
const MAX_PER_PEER: usize = 4;

/// State of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waits for the TLS handshake or the first byte of a request.
    Idle,
    /// Has received a part of a request.
    Receiving,
    /// The server is working on a response.
    Responding,
}

#[derive(Debug)]
struct Entry {
    peer: IpAddr,
    phase: Phase,
    /// Start of the phase.
    since: Instant,
    evicted: CancellationToken,
}

/// The open connections of one server. Cheap to clone; clones share the table.
#[derive(Debug, Clone, Default)]
pub(super) struct Connections(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: BTreeMap<u64, Entry>,
}

impl Connections {
    /// Admits a connection. At a limit, closes the connection that has waited longest for its client. Returns `None` if
    /// the server is working on all of them.
    pub(super) fn admit(&self, peer: IpAddr) -> Option<ConnectionSlot> {
        let peer = peer.to_canonical();
        let mut table = self.0.lock();
        if !peer.is_loopback() && table.count(peer) >= MAX_PER_PEER {
            table.evict(Some(peer))?;
        }
        if table.open.len() >= MAX_CONNECTIONS {
            table.evict(None)?;
        }
        let number = table.next;
        table.next += 1;
        let evicted = CancellationToken::new();
        let entry = Entry {
            peer,
            phase: Phase::Idle,
            since: Instant::now(),
            evicted: evicted.clone(),
        };
        table.open.insert(number, entry);
        Some(ConnectionSlot {
            connections: self.clone(),
            number,
            evicted,
        })
    }
}

impl Table {
    fn count(&self, peer: IpAddr) -> usize {
        self.open.values().filter(|entry| entry.peer == peer).count()
    }

    /// Closes the connection that has waited longest for its client, of one address or of all.
    fn evict(&mut self, peer: Option<IpAddr>) -> Option<()> {
        let waiting = self
            .open
            .iter()
            .filter(|(_, entry)| entry.phase != Phase::Responding && peer.is_none_or(|peer| peer == entry.peer));
        let (&number, _) = waiting.min_by_key(|(_, entry)| entry.since)?;
        let entry = self.open.remove(&number)?;
        entry.evicted.cancel();
        Some(())
    }
}

/// Entry of one connection in the table; removed on drop.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    connections: Connections,
    number: u64,
    evicted: CancellationToken,
}

impl ConnectionSlot {
    /// Completes when the server closes this connection in favor of a new one.
    pub(super) fn evicted(&self) -> WaitForCancellationFuture<'_> {
        self.evicted.cancelled()
    }

    /// Records received bytes.
    pub(super) fn receive(&self) {
        self.change(|phase| (phase == Phase::Idle).then_some(Phase::Receiving));
    }

    /// Records that the server is working on a response, until the guard is dropped.
    pub(super) fn answer(self: &Arc<Self>) -> ResponseGuard {
        self.change(|_| Some(Phase::Responding));
        ResponseGuard(Arc::clone(self))
    }

    /// Returns the deadline of the client; `None` while the server is working on a response.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let table = self.connections.0.lock();
        // An evicted connection is past its deadline.
        let Some(entry) = table.open.get(&self.number) else {
            return Some(Instant::now());
        };
        match entry.phase {
            Phase::Idle => Some(entry.since + TIMING.idle_timeout),
            Phase::Receiving => Some(entry.since + TIMING.head_timeout),
            Phase::Responding => None,
        }
    }

    fn change(&self, next: impl FnOnce(Phase) -> Option<Phase>) {
        let mut table = self.connections.0.lock();
        if let Some(entry) = table.open.get_mut(&self.number)
            && let Some(phase) = next(entry.phase)
        {
            (entry.phase, entry.since) = (phase, Instant::now());
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connections.0.lock().open.remove(&self.number);
    }
}

/// A response in progress. After the drop, the connection waits for its client again.
#[derive(Debug)]
pub(super) struct ResponseGuard(Arc<ConnectionSlot>);

impl Drop for ResponseGuard {
    fn drop(&mut self) {
        self.0.change(|_| Some(Phase::Idle));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn peer(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    fn is_evicted(slot: &Arc<ConnectionSlot>) -> bool {
        slot.evicted.is_cancelled()
    }

    async fn admit(connections: &Connections, peer: IpAddr) -> Option<Arc<ConnectionSlot>> {
        // Earlier connections have waited longer.
        tokio::time::advance(Duration::from_millis(1)).await;
        connections.admit(peer).map(Arc::new)
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_has_four_connections() {
        let connections = Connections::default();
        let other = admit(&connections, peer(2)).await.expect("admitted");
        let mut slots = Vec::new();
        for _ in 0..=MAX_PER_PEER {
            slots.push(admit(&connections, peer(1)).await.expect("admitted"));
        }
        assert!(!is_evicted(&other), "another address");
        let evicted: Vec<bool> = slots.iter().map(is_evicted).collect();
        assert_eq!(evicted, [true, false, false, false, false]);
        // The same address in IPv6.
        let mapped = "::ffff:10.0.0.1".parse().expect("an address");
        admit(&connections, mapped).await.expect("admitted");
        assert!(is_evicted(&slots[1]));
    }

    #[tokio::test(start_paused = true)]
    async fn full_server_closes_longest_waiting() {
        let connections = Connections::default();
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let mut slots = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            slots.push(admit(&connections, loopback).await.expect("admitted"));
        }
        let working = slots[0].answer();
        let _new = admit(&connections, peer(1)).await.expect("admitted");
        assert!(!is_evicted(&slots[0]) && is_evicted(&slots[1]));
        assert_eq!(connections.0.lock().open.len(), MAX_CONNECTIONS);
        drop(working);
        let _working: Vec<_> = slots[2..].iter().map(ConnectionSlot::answer).collect();
        let _new = admit(&connections, peer(2)).await.expect("admitted");
        let _new = admit(&connections, peer(3)).await.expect("admitted");
        assert!(is_evicted(&slots[0]), "it waits again");
    }

    #[tokio::test(start_paused = true)]
    async fn working_server_refuses_more() {
        let connections = Connections::default();
        let mut working = Vec::new();
        for number in 0..MAX_CONNECTIONS {
            let number = u8::try_from(number).expect("small");
            let slot = admit(&connections, peer(number)).await.expect("admitted");
            working.push(slot.answer());
        }
        assert!(admit(&connections, peer(200)).await.is_none());
        working.pop();
        assert!(admit(&connections, peer(200)).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn clients_have_time_limits() {
        let connections = Connections::default();
        let slot = admit(&connections, peer(1)).await.expect("admitted");
        let start = Instant::now();
        assert_eq!(slot.deadline(), Some(start + TIMING.idle_timeout));
        tokio::time::advance(Duration::from_secs(1)).await;
        slot.receive();
        let expected = Some(Instant::now() + TIMING.head_timeout);
        tokio::time::advance(Duration::from_secs(1)).await;
        slot.receive();
        assert_eq!(slot.deadline(), expected, "each further byte gives no more time");
        let answering = slot.answer();
        assert_eq!(slot.deadline(), None);
        drop(answering);
        assert_eq!(slot.deadline(), Some(Instant::now() + TIMING.idle_timeout));
    }
}
