//! From a volume to a server.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::{BUSY_PAUSE, ROUNDS, pair};
use crate::block_storage::{BlockStorage, Volume, VolumeStatus};
use crate::cloud::{AttachOptions, Attached, Inner};
use crate::compute::{Compute, MULTIATTACH};
use crate::error::{CloudError, Failure};
use crate::ids::{ServerId, VolumeId};
use crate::pace::Kind;
use crate::retry::jitter;
use crate::transport::{MicroVersion, Service};
use crate::watch::Wait;

/// What a volume's state means for attaching it to a server.
#[derive(Debug, PartialEq, Eq)]
enum AttachStep {
    /// Ask Nova.
    Request,
    /// An operation is under way: wait for its end.
    Wait,
    /// It is there.
    Done(Option<String>),
    /// Another server has it, and only one may.
    Elsewhere,
    /// It is broken.
    Broken,
}

fn attach_step(volume: &Volume, server: &ServerId, exclusive: bool) -> AttachStep {
    let here = volume.attachment_to(server);
    match (&volume.status, here) {
        (VolumeStatus::Detaching | VolumeStatus::Deleting, _) => AttachStep::Wait,
        // Whatever else was done to the volume, an extension that failed included: a listed attachment is complete.
        (_, Some(attachment)) => AttachStep::Done(attachment.device.clone()),
        (status, None) if status.is_error() => AttachStep::Broken,
        (status, None) if status.is_transition() => AttachStep::Wait,
        (VolumeStatus::InUse, None) if exclusive || !volume.multiattach => AttachStep::Elsewhere,
        _ => AttachStep::Request,
    }
}

/// The refusals that mean: this server is full. Nova has no error code of its own for them.
fn is_full(failure: &Failure) -> bool {
    let fault = failure.fault.to_ascii_lowercase();
    fault.contains("disk devices")
        || fault.contains("no free disk device names")
        || fault.contains("no more available pci slots")
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
        let cinder = BlockStorage::new(&self.transport);
        let nova = Compute::new(&self.transport);
        let deadline = Instant::now() + self.options.operation_timeout;
        if let Some(limit) = options.server_limit {
            self.check_room(volume, server, limit).await?;
        }
        // The usual case costs one request: Nova and Cinder refuse what cannot be, and only then is it worth a look.
        let mut seen: Option<Volume> = None;
        let mut rounds = 0;
        loop {
            match seen.as_ref().map_or(AttachStep::Request, |volume| {
                attach_step(volume, server, options.exclusive)
            }) {
                AttachStep::Done(device) => return Ok(Attached { device }),
                AttachStep::Elsewhere => {
                    return Err(CloudError::AttachedElsewhere {
                        volume: volume.clone(),
                        server: server.clone(),
                        servers: seen.as_ref().map(Volume::servers).unwrap_or_default(),
                    });
                }
                AttachStep::Broken => {
                    return Err(CloudError::VolumeFailed {
                        volume: volume.clone(),
                        status: seen
                            .as_ref()
                            .map(|volume| volume.status.to_string())
                            .unwrap_or_default(),
                        message: "it cannot be attached; an administrator has to find out why and reset its status"
                            .to_owned(),
                        removed: false,
                        elapsed: Duration::ZERO,
                    });
                }
                AttachStep::Wait => {
                    if let Some(before) = &seen {
                        let now = self.settle(before, deadline, pair(volume, server)).await?;
                        seen = Some(now.ok_or_else(|| CloudError::no_volume(volume))?);
                    }
                    continue;
                }
                AttachStep::Request => {}
            }
            rounds += 1;
            let multiattach = seen.as_ref().is_some_and(|volume| volume.multiattach);
            let version = if multiattach {
                Some(self.multiattach_version(volume, server).await?)
            } else {
                None
            };
            let started = Instant::now();
            let answer = {
                let Ok(_turn) = timeout_at(deadline, self.turns.take(server)).await else {
                    return Err(CloudError::Timeout {
                        what: format!("the attachment of {}", pair(volume, server)),
                        last_status: "not asked for: other attachments to the server are under way".to_owned(),
                        last_error: String::new(),
                        elapsed: started.elapsed(),
                    });
                };
                nova.attach(server, volume, version).await
            };
            let refusal = match answer {
                Ok(Some(accepted)) => {
                    let wait = (started, deadline, accepted.request_id);
                    return self.wait_attached(volume, server, wait).await.map(|device| Attached {
                        device: device.or(accepted.device),
                    });
                }
                Ok(None) => return Err(self.which_is_missing(volume, server).await),
                Err(error) => match error.failure().filter(|failure| is_full(failure)) {
                    Some(failure) => {
                        return Err(CloudError::TooManyAttachments {
                            server: server.clone(),
                            failure: failure.clone(),
                        });
                    }
                    None => error,
                },
            };
            let busy = matches!(refusal, CloudError::Conflict(_));
            if !(busy || refusal.is_uncertain() || matches!(refusal, CloudError::BadRequest(_))) {
                return Err(refusal);
            }
            let now = cinder
                .volume(volume)
                .await?
                .ok_or_else(|| CloudError::no_volume(volume))?;
            let step = attach_step(&now, server, options.exclusive);
            let learned_multiattach = now.multiattach && !multiattach;
            seen = Some(now);
            if step != AttachStep::Request || learned_multiattach {
                if rounds >= ROUNDS && !matches!(step, AttachStep::Done(_) | AttachStep::Elsewhere) {
                    return Err(refusal);
                }
                continue;
            }
            // Cinder sees no obstacle. Either Nova has not yet forgotten a detachment, or the server is busy, or it means its refusal.
            let lingering = self.records.has(&self.transport, server, volume).await?;
            if rounds >= ROUNDS || !(busy || lingering) {
                return Err(refusal);
            }
            sleep(jitter(BUSY_PAUSE * rounds)).await;
            seen = cinder.volume(volume).await?;
            if seen.is_none() {
                return Err(CloudError::no_volume(volume));
            }
        }
    }

    async fn check_room(&self, volume: &VolumeId, server: &ServerId, limit: u32) -> Result<(), CloudError> {
        let found = Compute::new(&self.transport)
            .server(server)
            .await?
            .ok_or_else(|| CloudError::no_server(server))?;
        let count = found.volumes().len();
        if found.volumes().any(|attached| attached == volume) || count < limit as usize {
            return Ok(());
        }
        Err(CloudError::TooManyAttachments {
            server: server.clone(),
            failure: Failure {
                operation: "server_get",
                object: pair(volume, server),
                status: None,
                fault: format!("it has {count} volumes, the limit is {limit}"),
                request_id: None,
                elapsed: Duration::ZERO,
            },
        })
    }

    async fn multiattach_version(&self, volume: &VolumeId, server: &ServerId) -> Result<MicroVersion, CloudError> {
        if self.transport.highest_version(Service::Compute).await? >= Some(MULTIATTACH) {
            return Ok(MULTIATTACH);
        }
        Err(CloudError::BadRequest(Failure {
            operation: "volume_attach",
            object: pair(volume, server),
            status: None,
            fault: format!("the volume is multiattach, and this Nova is older than microversion {MULTIATTACH}"),
            request_id: None,
            elapsed: Duration::ZERO,
        }))
    }

    /// Nova said 404: whose? Both are asked; when both are there, Nova may just have missed one.
    async fn which_is_missing(&self, volume: &VolumeId, server: &ServerId) -> CloudError {
        match Compute::new(&self.transport).server(server).await {
            Ok(None) => return CloudError::no_server(server),
            Err(error) => return error,
            Ok(Some(_)) => {}
        }
        match BlockStorage::new(&self.transport).volume(volume).await {
            Ok(None) => CloudError::no_volume(volume),
            Err(error) => error,
            Ok(Some(found)) => CloudError::Conflict(Failure {
                operation: "volume_attach",
                object: pair(volume, server),
                status: Some(404),
                fault: format!("Nova does not find what is there, the volume is {}", found.status),
                request_id: None,
                elapsed: Duration::ZERO,
            }),
        }
    }

    async fn wait_attached(
        &self,
        volume: &VolumeId,
        server: &ServerId,
        (started, deadline, request_id): (Instant, Instant, Option<String>),
    ) -> Result<Option<String>, CloudError> {
        let wait = Wait {
            kind: Kind::Attach,
            volume,
            name: None,
            status: None,
            started,
            deadline,
            looked: None,
            what: pair(volume, server),
        };
        let failed = |status: &VolumeStatus| CloudError::AttachFailed {
            volume: volume.clone(),
            server: server.clone(),
            status: status.to_string(),
            elapsed: started.elapsed(),
            request_id: request_id.clone(),
        };
        self.watch
            .until(wait, |now| {
                let Some(now) = now else {
                    return Some(Err(CloudError::no_volume(volume)));
                };
                match (&now.status, now.attachment_to(server)) {
                    (VolumeStatus::Detaching, _) => None,
                    (_, Some(attachment)) => Some(Ok(attachment.device.clone())),
                    (VolumeStatus::Available, None) => Some(Err(failed(&now.status))),
                    (status, None) if status.is_error() => Some(Err(failed(status))),
                    (VolumeStatus::InUse, None) if !now.multiattach => Some(Err(CloudError::AttachedElsewhere {
                        volume: volume.clone(),
                        server: server.clone(),
                        servers: now.servers(),
                    })),
                    _ => None,
                }
            })
            .await
    }
}

#[cfg(test)]
mod tests;
