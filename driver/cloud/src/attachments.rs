//! Attaching and detaching, each to its end, over the two views that there are: Nova keeps a record of the volume at the server from
//! the request to attach until after the detachment, Cinder a status and the list of complete attachments.
//!
//! In Nova the compute manager completes an attachment in Cinder last, so that a volume that Cinder shows at the server has arrived. A
//! detachment ends the other way round: the manager has Cinder let go and destroys its own record after that, so that a volume of which
//! Nova has no record any more is free in both.
//!
//! [`step`] decides what to do next, [`case`] does it. The usual case costs one request: Nova and Cinder refuse what cannot be, and
//! only then is it worth a look.

mod attach;
mod case;
mod detach;
mod remedy;
mod step;

use std::time::Duration;

use tokio::time::Instant;

use crate::block_storage::BlockStorage;
use crate::cloud::{AttachOptions, Attached, Inner};
use crate::error::{CloudError, Failure};
use crate::ids::{ServerId, VolumeId};
use case::Case;
use step::Wish;

fn pair(volume: &VolumeId, server: &ServerId) -> String {
    format!("volume {volume}, server {server}")
}

impl Inner {
    /// See [`crate::Cloud::attach`].
    pub(crate) async fn attach(
        &self,
        volume: &VolumeId,
        server: &ServerId,
        options: AttachOptions,
    ) -> Result<Attached, CloudError> {
        if !volume.is_uuid() {
            return Err(CloudError::no_volume(volume));
        }
        if !server.is_uuid() {
            return Err(CloudError::no_server(server));
        }
        if let Some(limit) = options.server_limit {
            self.check_room(volume, server, limit).await?;
        }
        let deadline = Instant::now() + self.options.operation_timeout;
        let wish = Wish::Attach {
            exclusive: options.exclusive,
        };
        Case::new(self, volume, server, wish, deadline).run().await
    }

    /// See [`crate::Cloud::detach`].
    pub(crate) async fn detach(&self, volume: &VolumeId, server: Option<&ServerId>) -> Result<(), CloudError> {
        if !volume.is_uuid() || self.gone.has(volume) {
            return Ok(());
        }
        let deadline = Instant::now() + self.options.operation_timeout;
        let servers = match server {
            Some(server) => vec![server.clone()],
            None => self.servers_of(volume).await?,
        };
        for server in servers.iter().filter(|server| server.is_uuid()) {
            // Of an id that is none: no server has it, so none has the volume by it.
            Case::new(self, volume, server, Wish::Detach, deadline).run().await?;
        }
        Ok(())
    }

    /// All servers that have the volume, or are about to have it.
    async fn servers_of(&self, volume: &VolumeId) -> Result<Vec<ServerId>, CloudError> {
        let cinder = BlockStorage::new(&self.transport);
        let Some(found) = cinder.volume(volume).await? else {
            return Ok(Vec::new());
        };
        let mut servers = found.servers();
        if found.attachments.len() > servers.len() {
            return Err(CloudError::Conflict(Failure {
                operation: "volume_detach",
                object: format!("volume {volume}"),
                status: None,
                fault: "it is attached to a host that is no server of Nova's, which only who attached it can undo"
                    .to_owned(),
                request_id: None,
                elapsed: Duration::ZERO,
            }));
        }
        if found.status.is_transition() {
            let attachments = cinder.attachments(volume).await?.unwrap_or_default();
            servers.extend(attachments.into_iter().filter_map(|attachment| attachment.instance));
            servers.sort();
            servers.dedup();
        }
        Ok(servers)
    }
}
