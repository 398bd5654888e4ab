// SPDX-License-Identifier: Apache-2.0
//! A trap stops the driver at one point of a running call, so that a kill, a crash or an unplugged disk occurs exactly
//! there.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Node, SimMachine};

/// A point in the execution of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Before a system call.
    SystemCall,
    /// After a mount, a bind or an unmount.
    Mount,
    /// Between two steps of a program.
    Program,
}

impl Moment {
    pub const ALL: [Self; 3] = [Self::SystemCall, Self::Mount, Self::Program];
}

#[derive(Debug)]
pub(super) struct Trap {
    moment: Moment,
    /// Number of points to skip.
    remaining: u64,
    reached: oneshot::Sender<StoppedDriver>,
}

/// The stopped driver; dropping this value continues it.
#[derive(Debug)]
pub struct StoppedDriver {
    _released: oneshot::Sender<()>,
}

impl SimMachine {
    /// Stops the driver after this number of points of a kind. Returns `None` if that takes longer than `limit`.
    pub async fn stop_at(&self, moment: Moment, after: u64, limit: Duration) -> Option<StoppedDriver> {
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
    /// Waits until the driver may continue.
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
        if trap.reached.send(StoppedDriver { _released: released }).is_ok() {
            self.note(|| format!("the driver is stopped: {moment:?}"));
            // The error means that the sender was dropped.
            drop(continues.await);
        }
    }
}
