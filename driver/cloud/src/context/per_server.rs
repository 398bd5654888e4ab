//! What goes by server: turns at asking Nova to attach and to detach.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ids::ServerId;

/// How many requests to one server may wait for their turn: more volumes than Nova attaches to any.
const QUEUE: usize = 512;
/// How many detachments of one server are under way at most. Nova does them one by one, and an attachment that is asked for
/// meanwhile waits behind them, for no longer than its message queue allows.
const DETACHING: usize = 16;

/// The queues of the servers that somebody asks for just now.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    servers: Mutex<HashMap<ServerId, Arc<Queues>>>,
}

#[derive(Debug)]
struct Queues {
    attach: Queue,
    detach: Queue,
}

#[derive(Debug)]
struct Queue {
    turns: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

/// A turn. Ends with its drop.
#[derive(Debug)]
pub(crate) struct Turn {
    _turn: OwnedSemaphorePermit,
    _queues: Arc<Queues>,
}

/// So many are waiting that nobody else may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Crowded(pub(crate) usize);

impl Queue {
    fn new(at_once: usize) -> Self {
        Self {
            turns: Arc::new(Semaphore::new(at_once)),
            places: Arc::new(Semaphore::new(QUEUE)),
        }
    }

    async fn turn(&self) -> Result<OwnedSemaphorePermit, Crowded> {
        let _place = Arc::clone(&self.places)
            .try_acquire_owned()
            .map_err(|_| Crowded(QUEUE))?;
        // First come, first served. The semaphore is never closed.
        Arc::clone(&self.turns).acquire_owned().await.map_err(|_| Crowded(0))
    }
}

impl Turns {
    fn of(&self, server: &ServerId) -> Arc<Queues> {
        let mut servers = self.servers.lock();
        servers.retain(|_, queues| Arc::strong_count(queues) > 1);
        let queues = servers.entry(server.clone()).or_insert_with(|| {
            Arc::new(Queues {
                attach: Queue::new(1),
                detach: Queue::new(DETACHING),
            })
        });
        Arc::clone(queues)
    }

    /// One request to attach at a time per server: Nova does them one by one anyway, and those that wait there longest fail.
    pub(crate) async fn to_attach(&self, server: &ServerId) -> Result<Turn, Crowded> {
        let queues = self.of(server);
        Ok(Turn {
            _turn: queues.attach.turn().await?,
            _queues: queues,
        })
    }

    /// A few detachments at a time per server.
    pub(crate) async fn to_detach(&self, server: &ServerId) -> Result<Turn, Crowded> {
        let queues = self.of(server);
        Ok(Turn {
            _turn: queues.detach.turn().await?,
            _queues: queues,
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn requests_to_one_server_take_turns_and_leave_nothing_behind() {
        let turns = Turns::default();
        let (here, there) = (ServerId::new("here"), ServerId::new("there"));
        let first = turns.to_attach(&here).await.expect("room");
        let other = turns.to_attach(&there).await.expect("room");
        assert!(turns.to_attach(&here).now_or_never().is_none());
        let detaching = turns.to_detach(&here).await.expect("another queue");
        drop((first, other, detaching));
        let _again = turns.to_attach(&here).await.expect("free again");
        assert_eq!(turns.servers.lock().len(), 1);
    }

    #[tokio::test]
    async fn a_queue_is_served_in_order_and_no_longer_than_it_may_be() {
        let turns = Turns::default();
        let here = ServerId::new("here");
        let held = turns.to_attach(&here).await.expect("room");
        let mut waiting: Vec<_> = (0..QUEUE).map(|_| Box::pin(turns.to_attach(&here))).collect();
        for turn in &mut waiting {
            assert!(turn.as_mut().now_or_never().is_none());
        }
        assert_eq!(turns.to_attach(&here).await.err(), Some(Crowded(QUEUE)));
        drop(held);
        assert!(waiting[1].as_mut().now_or_never().is_none(), "not its turn");
        assert!(waiting[0].as_mut().now_or_never().is_some(), "the first in the queue");
    }
}
