// SPDX-License-Identifier: Apache-2.0
//! The request to attach.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, timeout_at};

use super::{AttachmentStateMachine, RequestOutcome};
use crate::api::block_storage::{Volume, VolumeAttachment, VolumeStatus};
use crate::api::compute::{Compute, MULTIATTACH, SHELVED};
use crate::context::server_queue::{QueueFull, ServerPermit};
use crate::error::{CloudError, Failure, Obstacle};
use crate::http::observer::Observer;
use crate::http::service::{MicroVersion, Service};
use crate::operations::attachments::step::ShelvedVersion;
use crate::operations::attachments::types::AttachOutcome;
use crate::poll::schedule::Kind;
use crate::poll::{PollVerdict, Wait};
use crate::timestamp::parse_timestamp;
use crate::timing::TIMING;

/// Whether the refusal reports a full server, for which Nova has no error code of its own.
fn is_full(failure: &Failure) -> bool {
    let fault = failure.fault.to_ascii_lowercase();
    fault.contains("disk devices") || fault.contains("no free disk device names")
}

/// An entry in a queue, which the observer counts until it is dropped.
struct QueuePlace<'a> {
    observer: &'a dyn Observer,
    queue: &'static str,
    since: Instant,
}

impl<'a> QueuePlace<'a> {
    fn new(observer: &'a dyn Observer, queue: &'static str) -> Self {
        observer.queue_changed(queue, 1);
        Self {
            observer,
            queue,
            since: Instant::now(),
        }
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        self.observer.queue_changed(self.queue, -1);
    }
}

/// Whether the attachment is certainly no older than `age`, by Cinder's record and clock.
fn is_younger(attachment: &VolumeAttachment, now: Timestamp, age: Duration) -> bool {
    let attached_at = attachment.attached_at.as_deref().and_then(parse_timestamp);
    let limit = SignedDuration::try_from(age + TIMING.whole_seconds).unwrap_or(SignedDuration::MAX);
    attached_at.is_some_and(|at| now.duration_since(at) <= limit)
}

impl AttachmentStateMachine<'_> {
    /// Requests the attachment from Nova, and waits for its end. A 404, 409 or 400 is [`RequestOutcome::Refused`], and
    /// `step::attach` decides.
    pub(super) async fn request_attach(&mut self) -> Result<RequestOutcome, CloudError> {
        let version = self.version().await?;
        let turn = self
            .wait_in_queue("attach", self.cx.server_queues.acquire_attach(self.server))
            .await?;
        // From now on only a detachment can revert the request.
        self.withdrawn = None;
        let started = Instant::now();
        // Before the request, because the request may succeed without a response.
        let newly_attached = &self.cx.newly_attached;
        let was_new = newly_attached.get(&self.key()).is_some();
        newly_attached.insert(self.key(), None);
        let answer = Compute::new(&self.cx.transport)
            .attach(self.server, self.volume_id, version)
            .await;
        drop(turn);
        let error = match answer {
            Ok(Ok(accepted)) => {
                let arrived = self.wait_attached(started, accepted.request_id.as_deref()).await?;
                self.check_fresh(&arrived, started, accepted.request_id.as_deref())
                    .await?;
                let found = arrived.attachment_to(self.server);
                return Ok(RequestOutcome::Done(AttachOutcome {
                    device: found.and_then(|found| found.device.clone()).or(accepted.device),
                    volume: Some(arrived),
                    already: false,
                }));
            }
            // 404: the state of Cinder and Nova decides, in `step::attach`.
            Ok(Err(failure)) => {
                let error = CloudError::Conflict(failure);
                return Ok(RequestOutcome::Refused { unknown: true, error });
            }
            Err(error) => error,
        };
        if !was_new && !error.is_uncertain() {
            newly_attached.remove(&self.key());
        }
        match error.failure().filter(|failure| is_full(failure)) {
            Some(failure) => Err(CloudError::TooManyAttachments {
                server: self.server.clone(),
                failure: failure.clone(),
            }),
            None => Ok(RequestOutcome::Refused { unknown: false, error }),
        }
    }

    /// The lowest version of Nova's API that supports the request.
    async fn version(&mut self) -> Result<Option<MicroVersion>, CloudError> {
        if !self.is_multiattach() {
            return self.version_for_shelved().await;
        }
        self.require_version(MULTIATTACH, "the volume is multiattach").await?;
        self.multiattach_requested = true;
        self.shelved_version = ShelvedVersion::Used;
        Ok(Some(MULTIATTACH))
    }

    /// The version of Nova's API for a shelved server.
    pub(super) async fn version_for_shelved(&mut self) -> Result<Option<MicroVersion>, CloudError> {
        if self.shelved_version == ShelvedVersion::Unneeded {
            return Ok(None);
        }
        if self.cx.transport.highest_version(Service::Compute).await? < Some(SHELVED) {
            self.shelved_version = ShelvedVersion::Missing;
            return Err(self.obstructed(Obstacle::Server).await);
        }
        self.shelved_version = ShelvedVersion::Used;
        Ok(Some(SHELVED))
    }

    async fn require_version(&self, version: MicroVersion, because: &str) -> Result<(), CloudError> {
        if self.cx.transport.highest_version(Service::Compute).await? >= Some(version) {
            return Ok(());
        }
        Err(CloudError::BadRequest(Failure {
            operation: "volume_attach",
            object: self.pair(),
            status: None,
            fault: format!("{because}, and this Nova is older than microversion {version}"),
            request_id: None,
            elapsed: self.started.elapsed(),
        }))
    }

    /// Waits for a permit of the server in the named queue.
    pub(super) async fn wait_in_queue(
        &self,
        queue: &'static str,
        turn: impl Future<Output = Result<ServerPermit, QueueFull>>,
    ) -> Result<ServerPermit, CloudError> {
        let queued = QueuePlace::new(self.cx.transport.observer(), queue);
        let withdrawn = async {
            match self.withdrawn {
                Some(withdrawn) => withdrawn.cancelled().await,
                None => std::future::pending().await,
            }
        };
        let turn = tokio::select! {
            // First, so that a cancelled request does not start even if its permit arrives at the same moment.
            biased;
            () = withdrawn => {
                return Err(CloudError::Conflict(Failure {
                    operation: "turn",
                    object: self.pair(),
                    status: None,
                    fault: "not asked for: it was taken back while other requests to attach were under way at the server".to_owned(),
                    request_id: None,
                    elapsed: queued.since.elapsed(),
                }));
            }
            turn = timeout_at(self.deadline, turn) => turn,
        };
        match turn {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(QueueFull(waiting))) => Err(CloudError::Conflict(Failure {
                operation: "turn",
                object: self.pair(),
                status: None,
                fault: format!(
                    "not asked for: {waiting} requests to {queue} wait for their turn at the server already"
                ),
                request_id: None,
                elapsed: queued.since.elapsed(),
            })),
            Err(_) => Err(CloudError::Timeout {
                what: format!("{queue} of {}", self.pair()),
                last_status: format!("not asked for: other requests to {queue} are under way at the server"),
                last_error: String::new(),
                elapsed: queued.since.elapsed(),
            }),
        }
    }

    /// Checks that the attachment belongs to the request. Cinder may show an older attachment that Nova has lost,
    /// although Nova abandoned the new one. An attachment that is older than the request counts only if Nova has a
    /// record of it.
    async fn check_fresh(
        &mut self,
        volume: &Volume,
        started: Instant,
        request_id: Option<&str>,
    ) -> Result<(), CloudError> {
        let found = volume.attachment_to(self.server);
        let now = self.cx.transport.time_of_cinder();
        let nova = Compute::new(&self.cx.transport);
        if found.is_some_and(|found| is_younger(found, now, started.elapsed()))
            || nova.attachment(self.server, self.volume_id).await?.is_some()
        {
            return Ok(());
        }
        self.accept(request_id);
        Err(self.obstructed(Obstacle::Disagreement).await)
    }

    async fn wait_attached(&mut self, started: Instant, request_id: Option<&str>) -> Result<Volume, CloudError> {
        let (volume, server) = (self.volume_id, self.server);
        let (until, is_all) = self.patience(started);
        let what = match request_id {
            Some(id) => format!("{} (request {id})", self.pair()),
            None => self.pair(),
        };
        let wait = Wait {
            kind: Kind::Attach,
            id: volume,
            name: None,
            status: None,
            started,
            deadline: until,
            at_most_every: None,
            what,
        };
        let failed = |status: &VolumeStatus| CloudError::AttachFailed {
            volume: volume.clone(),
            server: server.clone(),
            status: status.to_string(),
            elapsed: started.elapsed(),
            request_id: request_id.map(str::to_owned),
        };
        let arrived = self
            .cx
            .watch
            .until(wait, |now| {
                let Some(now) = now else {
                    return PollVerdict::Unchanged(Err(CloudError::no_volume(volume)));
                };
                match (&now.status, now.attachment_to(server)) {
                    (VolumeStatus::Detaching, _) => PollVerdict::Pending,
                    // A stale attachment without a record in Nova, next to the pending one.
                    (VolumeStatus::Reserved | VolumeStatus::Attaching, Some(_)) if !now.multiattach => {
                        PollVerdict::Pending
                    }
                    (_, Some(_)) => PollVerdict::Done(Ok(now.clone())),
                    (VolumeStatus::Available, None) => PollVerdict::Unchanged(Err(failed(&now.status))),
                    (status, None) if status.is_error() => PollVerdict::Done(Err(failed(status))),
                    (VolumeStatus::InUse, None) if !now.multiattach => {
                        PollVerdict::Unchanged(Err(CloudError::AttachedElsewhere {
                            volume: volume.clone(),
                            server: server.clone(),
                            servers: now.servers(),
                            request_id: request_id.map(str::to_owned),
                        }))
                    }
                    _ => PollVerdict::Pending,
                }
            })
            .await;
        match arrived {
            Err(CloudError::Timeout { .. }) if !is_all => Err(self.stuck(request_id).await),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests;
