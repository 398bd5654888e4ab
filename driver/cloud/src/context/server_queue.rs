// SPDX-License-Identifier: Apache-2.0
//! Queues of attach and detach requests, per server.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ids::ServerId;

/// The maximum number of queued requests per server: more volumes than Nova attaches to any server.
const MAX_QUEUED: usize = 512;
/// The maximum number of concurrent detachments per server. Nova runs them one after the other. An attachment waits
/// behind them in Nova's message queue, and fails after that queue's timeout.
const MAX_DETACHING: usize = 16;

/// The queues of the servers that have a request in progress.
#[derive(Debug, Default)]
pub(crate) struct ServerQueues {
    servers: Mutex<HashMap<ServerId, Arc<ServerQueue>>>,
}

#[derive(Debug)]
struct ServerQueue {
    attach: Queue,
    detach: Queue,
}

#[derive(Debug)]
struct Queue {
    permits: Arc<Semaphore>,
    slots: Arc<Semaphore>,
}

/// A permit for one request. The permit ends when it is dropped.
#[derive(Debug)]
pub(crate) struct ServerPermit {
    _permit: OwnedSemaphorePermit,
    _queues: Arc<ServerQueue>,
}

/// The error of a full queue, with the number of requests in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueFull(pub(crate) usize);

impl Queue {
    fn new(at_once: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(at_once)),
            slots: Arc::new(Semaphore::new(MAX_QUEUED)),
        }
    }

    async fn acquire(&self) -> Result<OwnedSemaphorePermit, QueueFull> {
        let _slot = Arc::clone(&self.slots)
            .try_acquire_owned()
            .map_err(|_| QueueFull(MAX_QUEUED))?;
        // First come, first served. The semaphore is never closed.
        Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(|_| QueueFull(0))
    }
}

impl ServerQueues {
    fn for_server(&self, server: &ServerId) -> Arc<ServerQueue> {
        let mut servers = self.servers.lock();
        servers.retain(|_, queues| Arc::strong_count(queues) > 1);
        let queues = servers.entry(server.clone()).or_insert_with(|| {
            Arc::new(ServerQueue {
                attach: Queue::new(1),
                detach: Queue::new(MAX_DETACHING),
            })
        });
        Arc::clone(queues)
    }

    /// Limits the attach requests to one at a time per server. Nova runs them one after the other, and the requests
    /// that wait longest in Nova fail.
    pub(crate) async fn acquire_attach(&self, server: &ServerId) -> Result<ServerPermit, QueueFull> {
        let queues = self.for_server(server);
        Ok(ServerPermit {
            _permit: queues.attach.acquire().await?,
            _queues: queues,
        })
    }

    /// Limits the concurrent detachments per server.
    pub(crate) async fn acquire_detach(&self, server: &ServerId) -> Result<ServerPermit, QueueFull> {
        let queues = self.for_server(server);
        Ok(ServerPermit {
            _permit: queues.detach.acquire().await?,
            _queues: queues,
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn attach_requests_of_one_server_are_serialized() {
        let server_queues = ServerQueues::default();
        let (here, there) = (ServerId::new("here"), ServerId::new("there"));
        let first = server_queues.acquire_attach(&here).await.expect("room");
        let other = server_queues.acquire_attach(&there).await.expect("room");
        assert!(server_queues.acquire_attach(&here).now_or_never().is_none());
        let detaching = server_queues.acquire_detach(&here).await.expect("another queue");
        drop((first, other, detaching));
        let _again = server_queues.acquire_attach(&here).await.expect("free again");
        assert_eq!(server_queues.servers.lock().len(), 1);
    }

    #[tokio::test]
    async fn queue_is_ordered_and_bounded() {
        let server_queues = ServerQueues::default();
        let here = ServerId::new("here");
        let held = server_queues.acquire_attach(&here).await.expect("room");
        let mut waiting: Vec<_> = (0..MAX_QUEUED)
            .map(|_| Box::pin(server_queues.acquire_attach(&here)))
            .collect();
        for turn in &mut waiting {
            assert!(turn.as_mut().now_or_never().is_none());
        }
        assert_eq!(
            server_queues.acquire_attach(&here).await.err(),
            Some(QueueFull(MAX_QUEUED))
        );
        drop(held);
        assert!(waiting[1].as_mut().now_or_never().is_none(), "not its turn");
        assert!(waiting[0].as_mut().now_or_never().is_some(), "the first in the queue");
    }
}
