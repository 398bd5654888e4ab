//! Attaching and detaching, each to its end, over the two views that there are: Nova keeps a record of the volume at the server from
//! the request to attach until after the detachment, Cinder a status and the list of complete attachments.
//!
//! In Nova the compute manager completes an attachment in Cinder last, so that a volume that Cinder shows at the server has arrived. A
//! detachment ends the other way round: the manager has Cinder let go and destroys its own record after that, so that a volume of which
//! Nova has no record any more is free in both.

mod attach;
mod detach;

use std::time::Duration;

use crate::ids::{ServerId, VolumeId};

/// How often a refused request is made anew after a look at the volume.
const ROUNDS: u32 = 6;
/// The pause before a request to a busy server is made anew, growing by the round.
const BUSY_PAUSE: Duration = Duration::from_millis(500);

fn pair(volume: &VolumeId, server: &ServerId) -> String {
    format!("volume {volume}, server {server}")
}
