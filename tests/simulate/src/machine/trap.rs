// SPDX-License-Identifier: Apache-2.0
//! A trap stops the driver at one moment of a running call, so that a kill, a crash or an unplugged disk meets exactly that moment.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Node, SimMachine};

/// An act of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// A system call is about to begin.
    SystemCall,
    /// A mount, a bind or an unmount has ended.
    Mount,
    /// A program is between two of its acts.
    Program,
}

impl Moment {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::SystemCall, Self::Mount, Self::Program];
}

#[derive(Debug)]
pub(super) struct Trap {
    moment: Moment,
    /// So many moments pass before it.
    remaining: u64,
    reached: oneshot::Sender<Stopped>,
}

/// The driver, stopped until this is dropped.
#[derive(Debug)]
pub struct Stopped {
    _released: oneshot::Sender<()>,
}

impl SimMachine {
    /// Stops the driver when so many moments of a kind have passed. `None` if it takes longer than `limit`.
    pub async fn stop_at(&self, moment: Moment, after: u64, limit: Duration) -> Option<Stopped> {
        let (reached, stopped) = oneshot::channel();
        self.node.state().trap = Some(Trap {
            moment,
            remaining: after,
            reached,
        });
        timeout(limit, stopped).await.ok()?.ok()
    }
}

impl Node {
    /// Ends once the driver may continue.
    pub(super) async fn pass(&self, moment: Moment) {
        let sprung = {
            let mut state = self.state();
            match &mut state.trap {
                Some(trap) if trap.moment == moment && trap.remaining == 0 => state.trap.take(),
                Some(trap) if trap.moment == moment => {
                    trap.remaining -= 1;
                    None
                }
                _ => None,
            }
        };
        let Some(trap) = sprung else { return };
        let (released, continues) = oneshot::channel();
        if trap.reached.send(Stopped { _released: released }).is_ok() {
            self.note(|| format!("the driver is stopped: {moment:?}"));
            // The error is the release.
            drop(continues.await);
        }
    }
}
