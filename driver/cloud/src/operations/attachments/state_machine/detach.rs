// SPDX-License-Identifier: Apache-2.0
//! The request to detach.

use tokio::time::{Instant, sleep_until};

use super::{AttachmentStateMachine, RequestOutcome};
use crate::api::block_storage::{BlockStorage, VolumeStatus};
use crate::api::compute::{Compute, Server};
use crate::error::{CloudError, Failure};
use crate::operations::attachments::step::{CloudState, ShelvedVersion};
use crate::operations::attachments::types::{AttachOutcome, pair};
use crate::poll::schedule::Kind;
use crate::poll::{PollVerdict, Pollable, Wait};
use crate::timing::TIMING;

impl AttachmentStateMachine<'_> {
    /// Requests the detachment from Nova, and waits until Nova and Cinder have completed it. A 404 is `unknown`: no
    /// server, no volume or no attachment. `step::detach` then decides from the state of Cinder.
    pub(super) async fn request_detach(&mut self) -> Result<RequestOutcome, CloudError> {
        if let Some(attached) = self.cx.newly_attached.get(&self.key()).flatten() {
            // So that the volume's change has a later timestamp.
            sleep_until(attached.at + TIMING.timestamp_resolution).await;
        }
        let version = self.version_for_shelved().await?;
        // Held until the end: Nova runs the detachments of a server one after the other, and queued ones would delay
        // attachments too.
        let _turn = self
            .wait_in_queue("detach", self.cx.server_queues.acquire_detach(self.server))
            .await?;
        let started = Instant::now();
        let answer = Compute::new(&self.cx.transport)
            .detach(self.server, self.volume_id, version)
            .await;
        match answer {
            // 404: the state of Cinder decides, in `step::detach`.
            Ok(answer) if answer.missing() => Ok(RequestOutcome::Refused {
                unknown: true,
                error: CloudError::Conflict(answer.into_failure()),
            }),
            Ok(answer) => {
                let request_id = answer.request_id().map(str::to_owned);
                if !self.follow_detachment(started, request_id.as_deref()).await? {
                    return Ok(RequestOutcome::Refused {
                        unknown: true,
                        error: self.conflict("the detachment was cut short", request_id, started),
                    });
                }
                if self.may_have_failed_in_cinder().await {
                    let fault =
                        "Nova has detached the volume from a shelved server, and Cinder still has the attachment";
                    return Ok(RequestOutcome::Refused {
                        unknown: true,
                        error: self.conflict(fault, request_id, started),
                    });
                }
                Ok(RequestOutcome::Done(AttachOutcome {
                    device: None,
                    volume: self.state.take().and_then(|state| state.volume),
                    already: false,
                }))
            }
            Err(error) => Ok(RequestOutcome::Refused { unknown: false, error }),
        }
    }

    /// Whether Cinder may still have the attachment without a record of Nova. Nova ignores a failure of Cinder when it
    /// detaches a volume from a server without a host. Nova may have offloaded a shelved server after the last poll.
    async fn may_have_failed_in_cinder(&self) -> bool {
        if self.shelved_version != ShelvedVersion::Used {
            return false;
        }
        let server = Compute::new(&self.cx.transport).server(self.server).await;
        !server.is_ok_and(|server| server.is_some_and(|server| !server.is_offloaded()))
    }

    fn conflict(&self, fault: &str, request_id: Option<String>, started: Instant) -> CloudError {
        CloudError::Conflict(Failure {
            operation: "volume_detach",
            object: self.pair(),
            status: None,
            fault: fault.to_owned(),
            request_id,
            elapsed: started.elapsed(),
        })
    }

    /// Follows a detachment until Nova deletes its record. Cinder has completed the detachment by then. `false`: Nova
    /// no longer knows the server (404), or has offloaded it, which may have interrupted the detachment.
    ///
    /// After a new attachment, an API node may show the state before it. Then Cinder must show a later change.
    pub(super) async fn follow_detachment(
        &mut self,
        started: Instant,
        request_id: Option<&str>,
    ) -> Result<bool, CloudError> {
        loop {
            let is_complete = self.follow_nova(started, request_id).await?;
            if !self.was_attached_recently() || self.is_released().await {
                return Ok(is_complete);
            }
            while self.was_attached_recently() {
                self.pause_for_lag().await;
            }
        }
    }

    /// Whether Cinder shows a state after the attachment in which the server does not have the volume.
    async fn is_released(&mut self) -> bool {
        let found = BlockStorage::new(&self.cx.transport).volume(self.volume_id).await;
        let Ok(Some(volume)) = found else { return false };
        let is_moving = matches!(
            volume.status,
            VolumeStatus::Reserved | VolumeStatus::Attaching | VolumeStatus::Detaching
        );
        let attached = self.cx.newly_attached.get(&self.key()).flatten();
        let is_later = attached.is_some_and(|attached| volume.changed_at() > Some(attached.changed_at));
        let is_released = is_later && !is_moving && volume.attachment_to(self.server).is_none();
        if is_released {
            self.state = Some(CloudState {
                volume: Some(volume),
                ..CloudState::default()
            });
        }
        is_released
    }

    /// As [`Self::follow_detachment`], by the first state that is shown.
    async fn follow_nova(&mut self, started: Instant, request_id: Option<&str>) -> Result<bool, CloudError> {
        let (volume, server) = (self.volume_id, self.server);
        let (until, is_all) = self.patience(started);
        let what = match request_id {
            Some(id) => format!("{} (request {id})", self.pair()),
            None => self.pair(),
        };
        let forgotten = self.cx.servers.until(
            Wait {
                kind: Kind::Detach,
                id: server,
                name: None,
                status: None,
                started,
                deadline: until,
                at_most_every: None,
                what: what.clone(),
            },
            |records| match records {
                Some(records) if records.has(volume) => PollVerdict::Pending,
                // `None` is a 404: the server was deleted.
                known => PollVerdict::Done(Ok(known.is_some())),
            },
        );
        let given_up = self.cx.watch.until(
            Wait {
                kind: Kind::Detach,
                id: volume,
                name: None,
                status: Some(VolumeStatus::Detaching),
                started,
                deadline: until,
                at_most_every: Some(TIMING.detach_volume_poll),
                what,
            },
            |now| {
                // A volume that Cinder no longer knows (404) is attached to no server.
                let Some(now) = now else {
                    return PollVerdict::Unchanged(Ok(true));
                };
                if now.status != VolumeStatus::InUse || now.attachment_to(server).is_none() {
                    return PollVerdict::Pending;
                }
                PollVerdict::Unchanged(Err(CloudError::Conflict(Failure {
                    operation: "volume_detach",
                    object: pair(volume, server),
                    status: None,
                    fault: "Nova gave up the detachment, and the volume is in-use again; the guest may not have released the device"
                        .to_owned(),
                    request_id: request_id.map(str::to_owned),
                    elapsed: started.elapsed(),
                })))
            },
        );
        let end = tokio::select! {
            biased;
            end = forgotten => end,
            end = given_up => end,
        };
        match end {
            Err(CloudError::Timeout { .. }) if !is_all => {
                let error = self.stuck(request_id).await;
                // The host that ran the detachment has lost the server. Nova detaches without a host if requested
                // again.
                let is_offloaded = self.nova_server().is_some_and(Server::is_offloaded);
                if is_offloaded { Ok(false) } else { Err(error) }
            }
            other => other,
        }
    }
}
