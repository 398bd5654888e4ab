//! From a server to freedom.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::{BUSY_PAUSE, ROUNDS, pair};
use crate::block_storage::{BlockStorage, Volume, VolumeStatus};
use crate::cloud::Inner;
use crate::compute::Compute;
use crate::error::{CloudError, Failure};
use crate::ids::{ServerId, VolumeId};
use crate::pace::Kind;
use crate::retry::jitter;
use crate::volumes::SETTLE_LIMIT;
use crate::watch::Wait;

/// How long Nova may keep its record after Cinder has let the volume go.
const NOVA_LAG_LIMIT: Duration = Duration::from_mins(1);
/// How long Cinder may show an attachment to a server that is gone before we remove it: Nova may be cleaning up.
const STALE_GRACE: Duration = Duration::from_secs(5);

impl Inner {
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
            sleep_until(started + lone.first_look).await;
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
            name: None,
            status: Some(VolumeStatus::Detaching),
            started,
            deadline,
            looked,
            what: pair(volume, server),
        };
        let mut back_in_use = 0;
        self.watch
            .until(wait, |now| {
                // A volume that Cinder no longer knows is nowhere.
                let Some(now) = now else { return Some(Ok(())) };
                let here = now.attachment_to(server).is_some();
                if here && now.status == VolumeStatus::InUse {
                    back_in_use += 1;
                    // Once may be the moment before Nova begins; twice is Nova's way to say that the guest keeps the device.
                    return (back_in_use > 1).then(|| Err(not_let_go(volume, server, started)));
                }
                (!here && now.status != VolumeStatus::Detaching).then_some(Ok(()))
            })
            .await?;
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
            name: None,
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
