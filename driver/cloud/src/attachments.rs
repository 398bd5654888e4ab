//! Attaching and detaching, each to its end, over the two views that there are: Nova keeps a record of the volume at the server from
//! the request to attach until after the detachment, Cinder a status and the list of complete attachments.
//!
//! In Nova the compute manager completes an attachment in Cinder last, so that a volume that Cinder shows at the server has arrived. A
//! detachment is the other way round: Cinder lets go first and Nova forgets last, so both are asked.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::block_storage::{BlockStorage, Volume, VolumeStatus};
use crate::cloud::{AttachOptions, Attached, Inner};
use crate::compute::{Compute, MULTIATTACH};
use crate::error::{CloudError, Failure};
use crate::ids::{ServerId, VolumeId};
use crate::pace::Kind;
use crate::retry::jitter;
use crate::transport::Service;
use crate::volumes::SETTLE_LIMIT;
use crate::watch::Wait;

/// How often a refused request is made anew after a look at the volume.
const ROUNDS: u32 = 6;
/// The pause before a request to a busy server is made anew, growing by the round.
const BUSY_PAUSE: Duration = Duration::from_millis(500);
/// How long Nova may keep its record after Cinder has let the volume go.
const NOVA_LAG_LIMIT: Duration = Duration::from_mins(1);
/// How long Cinder may show an attachment to a server that is gone before we remove it: Nova may be cleaning up.
const STALE_GRACE: Duration = Duration::from_secs(5);

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

fn pair(volume: &VolumeId, server: &ServerId) -> String {
    format!("volume {volume}, server {server}")
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
                        message: String::new(),
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
                let _turn = self.turns.take(server).await;
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

    async fn multiattach_version(
        &self,
        volume: &VolumeId,
        server: &ServerId,
    ) -> Result<crate::transport::MicroVersion, CloudError> {
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

    /// See [`crate::Cloud::detach`].
    pub(crate) async fn detach(&self, volume: &VolumeId, server: Option<&ServerId>) -> Result<(), CloudError> {
        if !volume.is_uuid() {
            return Ok(());
        }
        let deadline = Instant::now() + self.options.operation_timeout;
        if let Some(server) = server {
            return self.detach_from(volume, server, deadline).await;
        }
        let Some(found) = BlockStorage::new(&self.transport).volume(volume).await? else {
            return Ok(());
        };
        for server in found.servers() {
            self.detach_from(volume, &server, deadline).await?;
        }
        Ok(())
    }

    async fn detach_from(&self, volume: &VolumeId, server: &ServerId, deadline: Instant) -> Result<(), CloudError> {
        // No server has such an id, so none has the volume by it.
        if !server.is_uuid() {
            return Ok(());
        }
        let cinder = BlockStorage::new(&self.transport);
        let nova = Compute::new(&self.transport);
        let mut rounds = 0;
        loop {
            rounds += 1;
            let started = Instant::now();
            let (unknown_to_nova, refusal) = match nova.detach(server, volume).await {
                Ok(answer) if answer.missing() => (true, CloudError::Conflict(answer.into_failure())),
                Ok(_) => return self.wait_detached(volume, server, started, deadline).await,
                Err(error @ (CloudError::BadRequest(_) | CloudError::Conflict(_))) => (false, error),
                Err(error) if error.is_uncertain() => (false, error),
                Err(error) => return Err(error),
            };
            let Some(found) = cinder.volume(volume).await? else {
                return Ok(());
            };
            let here = found.attachment_to(server).is_some();
            match (&found.status, here) {
                (VolumeStatus::Detaching, _) if !unknown_to_nova => {
                    return self.wait_detached(volume, server, started, deadline).await;
                }
                // Nova has nothing to detach: what Cinder shows is on its way out, or left over.
                (_, true) => {
                    if unknown_to_nova {
                        return self.release_stale(&found, server, refusal, deadline).await;
                    }
                }
                (_, false) if unknown_to_nova => {
                    if found.status == VolumeStatus::Detaching {
                        self.settle(&found, deadline, pair(volume, server)).await?;
                    }
                    return Ok(());
                }
                // Half made: Nova has it on the way to the server and refuses to turn back; let it arrive first.
                (status, false) if status.is_transition() => {
                    if !self.records.has(&self.transport, server, volume).await? {
                        return Ok(());
                    }
                    if rounds < ROUNDS {
                        self.settle(&found, deadline, pair(volume, server)).await?;
                        continue;
                    }
                }
                (_, false) => {
                    if !self.records.has(&self.transport, server, volume).await? {
                        return Ok(());
                    }
                }
            }
            if rounds >= ROUNDS {
                return Err(refusal);
            }
            sleep(jitter(BUSY_PAUSE * rounds)).await;
        }
    }

    /// Follows a detachment that Nova accepted: until Cinder has let go, then until Nova has forgotten. A detachment that is the
    /// only one under way is looked at in Nova first: what Nova has forgotten, Cinder let go of before.
    async fn wait_detached(
        &self,
        volume: &VolumeId,
        server: &ServerId,
        started: Instant,
        deadline: Instant,
    ) -> Result<(), CloudError> {
        let mut looked = None;
        if let Some(lone) = self.watch.alone(Kind::Detach) {
            tokio::time::sleep_until(started + lone.first_look).await;
            looked = Some(started.elapsed());
            match self.records.has(&self.transport, server, volume).await {
                Ok(false) => {
                    lone.found(started);
                    return Ok(());
                }
                Ok(true) => {}
                Err(error) if error.is_transient() => {}
                Err(error) => return Err(error),
            }
        }
        let wait = Wait {
            kind: Kind::Detach,
            volume,
            status: Some(VolumeStatus::Detaching),
            started,
            deadline,
            looked,
            what: pair(volume, server),
        };
        let mut back_in_use = 0;
        self.watch
            .until(wait, |now| {
                let now = now?;
                let here = now.attachment_to(server).is_some();
                if here && now.status == VolumeStatus::InUse {
                    back_in_use += 1;
                    // Once may be the moment before Nova begins; twice is Nova's way to say that the guest keeps the device.
                    return (back_in_use > 1).then(|| Err(not_let_go(volume, server, started)));
                }
                (!here && now.status != VolumeStatus::Detaching).then_some(Ok(()))
            })
            .await
            .or_else(|error| match error {
                CloudError::NotFound { .. } => Ok(()),
                other => Err(other),
            })?;
        self.wait_forgotten(volume, server, deadline).await
    }

    /// Waits until Nova has no record of the volume at the server, without which the next attachment would be refused.
    async fn wait_forgotten(&self, volume: &VolumeId, server: &ServerId, deadline: Instant) -> Result<(), CloudError> {
        let started = Instant::now();
        let deadline = deadline.min(started + NOVA_LAG_LIMIT);
        let mut pause = Duration::from_millis(100);
        let mut last_error = String::new();
        loop {
            match self.records.has(&self.transport, server, volume).await {
                Ok(false) => return Ok(()),
                Ok(true) => last_error.clear(),
                Err(error) if error.is_transient() => last_error = error.to_string(),
                Err(error) => return Err(error),
            }
            if Instant::now() + pause >= deadline {
                return Err(CloudError::Timeout {
                    what: format!("Nova's detachment of {}", pair(volume, server)),
                    last_status: "let go by Cinder, still recorded by Nova".to_owned(),
                    last_error,
                    elapsed: started.elapsed(),
                });
            }
            sleep(pause).await;
            pause = (pause * 3 / 2).min(Duration::from_secs(5));
        }
    }

    /// Cinder shows an attachment that Nova does not know. With the server gone it is what the server's deletion left behind, and it
    /// is removed when it does not vanish by itself. With the server there it stays: the guest may still have the disk.
    async fn release_stale(
        &self,
        found: &Volume,
        server: &ServerId,
        refusal: CloudError,
        deadline: Instant,
    ) -> Result<(), CloudError> {
        let object = pair(&found.id, server);
        if Compute::new(&self.transport).server(server).await?.is_some() {
            return Err(match refusal {
                CloudError::Conflict(failure) => CloudError::Conflict(Failure {
                    fault: format!(
                        "Cinder shows the volume {} at the server, Nova does not ({}); an administrator has to set them right",
                        found.status, failure.fault
                    ),
                    ..failure
                }),
                other => other,
            });
        }
        let released = |now: Option<&Volume>| {
            now.is_none_or(|now| now.attachment_to(server).is_none() && now.status != VolumeStatus::Detaching)
        };
        let wait = |deadline: Instant| Wait {
            kind: Kind::Settle,
            volume: &found.id,
            status: Some(found.status.clone()),
            started: Instant::now(),
            deadline,
            looked: None,
            what: format!("{object} (the server is gone)"),
        };
        let grace = deadline.min(Instant::now() + STALE_GRACE);
        match self
            .watch
            .until(wait(grace), |now| released(now).then_some(Ok(())))
            .await
        {
            Err(CloudError::Timeout { .. }) => {}
            other => return other,
        }
        let cinder = BlockStorage::new(&self.transport);
        for attachment in cinder.attachments(&found.id).await?.unwrap_or_default() {
            if attachment.instance.as_ref() == Some(server) {
                tracing::warn!(volume = %found.id, %server, attachment = %attachment.id, "removing the attachment of a server that is gone");
                cinder.delete_attachment(&attachment.id, &object).await?;
            }
        }
        let deadline = deadline.min(Instant::now() + SETTLE_LIMIT);
        self.watch
            .until(wait(deadline), |now| released(now).then_some(Ok(())))
            .await
    }
}

fn not_let_go(volume: &VolumeId, server: &ServerId, started: Instant) -> CloudError {
    CloudError::Conflict(Failure {
        operation: "volume_detach",
        object: pair(volume, server),
        status: None,
        fault: "Nova gave the detachment up, the volume is in-use again; the guest may not have let the device go"
            .to_owned(),
        request_id: None,
        elapsed: started.elapsed(),
    })
}

#[cfg(test)]
#[path = "attachments_tests.rs"]
mod tests;
