// SPDX-License-Identifier: Apache-2.0
//! One volume and one server: the requests and polls that lead to the desired attachment.

mod attach;
mod detach;

use std::time::Duration;

use futures::try_join;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::owners::{delete_attachment, find_owners};
use super::remedy;
use super::step::{CloudState, DesiredAttachment, Refusal, ShelvedVersion, Step, StepInput, next_step};
use super::types::{AttachOutcome, pair};
use crate::api::block_storage::{BlockStorage, Volume, VolumeStatus};
use crate::api::compute::{Compute, Server};
use crate::context::Context;
use crate::error::{CloudError, Failure, ObjectKind, Obstacle};
use crate::http::retry::jitter;
use crate::ids::{AttachmentId, ServerId, VolumeId};
use crate::poll::schedule::Kind;
use crate::poll::{PollVerdict, Wait};
use crate::timestamp::parse_timestamp;
use crate::timing::TIMING;

/// The maximum number of requests to Nova.
const ROUNDS: u32 = 4;
/// The maximum number of steps: each of the reads, waits and pauses in each of the rounds.
const STEPS: u32 = 64;

/// The attachment or detachment of one volume and one server, with the known state and the results of earlier requests.
#[derive(Debug)]
pub(super) struct AttachmentStateMachine<'a> {
    cx: &'a Context,
    volume_id: &'a VolumeId,
    server: &'a ServerId,
    desired: DesiredAttachment,
    started: Instant,
    deadline: Instant,
    /// The number of requests to Nova.
    rounds: u32,
    /// The last refusal and its meaning.
    refused: Option<(Refusal, CloudError)>,
    /// The error of an earlier request.
    earlier_error: Option<CloudError>,
    /// The state after the last request.
    state: Option<CloudState>,
    /// How long the volume was observed in its status.
    watched: Duration,
    stale_candidates: Vec<AttachmentId>,
    /// The request id of the request that Nova accepted.
    accepted: Option<String>,
    multiattach_requested: bool,
    shelved_version: ShelvedVersion,
    /// Cancels the operation until the first request is sent.
    withdrawn: Option<&'a CancellationToken>,
}

/// The result of a request to Nova.
#[derive(Debug)]
enum RequestOutcome {
    /// Nova completed it.
    Done(AttachOutcome),
    /// Nova refused it. `unknown`: a 404, so Nova does not know the server, the volume or their attachment.
    Refused { unknown: bool, error: CloudError },
}

impl<'a> AttachmentStateMachine<'a> {
    pub(super) fn new(
        cx: &'a Context,
        volume_id: &'a VolumeId,
        server: &'a ServerId,
        desired: DesiredAttachment,
        deadline: Instant,
    ) -> Self {
        Self {
            cx,
            volume_id,
            server,
            desired,
            started: Instant::now(),
            deadline,
            rounds: 0,
            refused: None,
            earlier_error: None,
            state: None,
            watched: Duration::ZERO,
            stale_candidates: Vec::new(),
            accepted: None,
            multiattach_requested: false,
            shelved_version: ShelvedVersion::default(),
            withdrawn: None,
        }
    }

    /// Adds a token that cancels the operation before its first request.
    pub(super) fn cancelled_by(self, withdrawn: &'a CancellationToken) -> Self {
        Self {
            withdrawn: Some(withdrawn),
            ..self
        }
    }

    fn view<'s>(&'s self, state: &'s CloudState) -> StepInput<'s> {
        StepInput {
            server: self.server,
            rounds_left: ROUNDS.saturating_sub(self.rounds),
            refusal: self.refused.as_ref().map(|(refusal, _)| *refusal),
            state,
            age: self.age(),
            stuck: self.age() >= self.stuck_after(),
            stale_candidates: &self.stale_candidates,
            multiattach_requested: self.multiattach_requested,
            shelved_version: self.shelved_version,
        }
    }

    /// How long the volume has been in its status: the observed time, or the time in Cinder's record if that is longer.
    fn age(&self) -> Duration {
        let Some(volume) = self.volume() else {
            return Duration::ZERO;
        };
        let now = self.cx.transport.time_of_cinder();
        let changed = volume.updated_at.as_deref().and_then(parse_timestamp);
        let by_cinder = changed.and_then(|at| Duration::try_from(now.duration_since(at)).ok());
        by_cinder.unwrap_or_default().max(self.watched)
    }

    fn stuck_after(&self) -> Duration {
        self.cx.options.stuck_after
    }

    pub(super) async fn run(mut self) -> Result<AttachOutcome, CloudError> {
        for _ in 0..STEPS {
            let step = match &self.state {
                _ if self.refused.is_none() => Step::Request,
                Some(state) => next_step(self.desired, &self.view(state)),
                None => {
                    Box::pin(self.read_state())
                        .await
                        .map_err(|error| self.explain_with_refusal(error))?;
                    continue;
                }
            };
            tracing::debug!(volume = %self.volume_id, server = %self.server, desired = ?self.desired, ?step, "next step");
            match step {
                Step::Request => {
                    if let Some(attached) = self.request().await? {
                        return Ok(attached);
                    }
                }
                Step::WaitForTransition => self.settle().await?,
                Step::Done(_) if self.was_detached_recently() => {
                    self.pause_for_lag().await;
                    self.discard_state();
                }
                Step::Done(_) | Step::WaitForDetach if self.was_attached_recently() => {
                    self.pause_for_lag().await;
                    self.discard_state();
                    // The response to another request is better evidence than the current state.
                    if self.rounds < ROUNDS {
                        self.earlier_error = self.refused.take().map(|(_, error)| error);
                    }
                }
                Step::WaitForDetach => {
                    if self.follow_detachment(Instant::now(), None).await? {
                        return Ok(self.outcome(None, true));
                    }
                    self.discard_state();
                }
                Step::Pause => {
                    if self.rounds >= ROUNDS {
                        return Err(self.last_round_error().await);
                    }
                    sleep(jitter(
                        TIMING.busy_server_retry * self.rounds.max(1),
                        &self.cx.options.sources,
                    ))
                    .await;
                    self.discard_state();
                    self.earlier_error = self.refused.take().map(|(_, error)| error);
                }
                Step::RecheckStale(attachments) => {
                    self.stale_candidates = attachments;
                    sleep(TIMING.orphan_grace).await;
                    self.discard_state();
                }
                Step::DeleteStale(attachments) => self.delete_stale(&attachments).await?,
                Step::Done(device) => return Ok(self.outcome(device, true)),
                Step::Missing(ObjectKind::Server) => return Err(CloudError::no_server(self.server)),
                Step::Missing(_) => return Err(CloudError::no_volume(self.volume_id)),
                Step::Elsewhere => {
                    return Err(CloudError::AttachedElsewhere {
                        volume: self.volume_id.clone(),
                        server: self.server.clone(),
                        servers: self.servers_elsewhere(),
                        request_id: self.request_id(),
                    });
                }
                Step::Broken => return Err(self.broken()),
                Step::Obstructed(obstacle) => return Err(self.obstructed(obstacle).await),
                Step::Refused => return Err(self.refusal()),
            }
        }
        Err(self.last_round_error().await)
    }

    /// The key of the cached facts about the volume and the server.
    fn key(&self) -> (VolumeId, ServerId) {
        (self.volume_id.clone(), self.server.clone())
    }

    /// Whether a shown attachment may be the one that this process has just detached.
    fn was_detached_recently(&self) -> bool {
        matches!(self.desired, DesiredAttachment::Attach { .. }) && self.cx.detached.get(&self.key()).is_some()
    }

    /// Whether this process has just attached the volume, so that a missing attachment may only be hidden by a database
    /// lag.
    fn was_attached_recently(&self) -> bool {
        self.desired == DesiredAttachment::Detach && self.cx.newly_attached.get(&self.key()).is_some()
    }

    /// Waits before the next read of a state that an API node may not show yet.
    async fn pause_for_lag(&self) {
        sleep(jitter(TIMING.stale_attachment_recheck, &self.cx.options.sources)).await;
    }

    fn volume(&self) -> Option<&Volume> {
        self.state.as_ref()?.volume.as_ref()
    }

    fn nova_server(&self) -> Option<&Server> {
        self.state.as_ref()?.nova_server.as_ref()
    }

    /// The servers that have the volume, and the servers for which Nova reserves it.
    fn servers_elsewhere(&self) -> Vec<ServerId> {
        let Some(state) = &self.state else {
            return Vec::new();
        };
        let mut servers = state.volume.as_ref().map(Volume::servers).unwrap_or_default();
        servers.extend(state.offloaded.iter().cloned());
        servers
    }

    fn outcome(self, device: Option<String>, already: bool) -> AttachOutcome {
        AttachOutcome {
            device,
            volume: self.state.and_then(|state| state.volume),
            already,
        }
    }

    /// Discards the state, which is outdated after a wait.
    fn discard_state(&mut self) {
        self.state = None;
        self.watched = Duration::ZERO;
    }

    /// Reads the state: first Cinder, then Nova, and last the owners of incomplete attachments.
    async fn read_state(&mut self) -> Result<(), CloudError> {
        let cinder = BlockStorage::new(&self.cx.transport);
        let nova = Compute::new(&self.cx.transport);
        let (volume, attachments) = try_join!(cinder.volume(self.volume_id), cinder.attachments(self.volume_id))?;
        let mut state = CloudState {
            volume,
            attachments,
            ..CloudState::default()
        };
        if state.volume.is_some() {
            let record = nova.attachment(self.server, self.volume_id);
            let (record, nova_server) = try_join!(record, nova.server(self.server))?;
            state.recorded = record.is_some();
            if self.shelved_version == ShelvedVersion::Unneeded && nova_server.as_ref().is_some_and(Server::is_shelved)
            {
                self.shelved_version = ShelvedVersion::Needed;
            }
            state.nova_server = nova_server;
            let listed = state.attachments.iter().flatten();
            let needs_alone = self.needs_alone(&state);
            let blocking: Vec<_> = listed
                .filter(|attachment| !attachment.is_complete() || needs_alone)
                .collect();
            let owners = find_owners(self.cx, self.volume_id, &blocking).await?;
            (state.stale, state.offloaded) = (owners.stale, owners.offloaded);
        }
        self.state = Some(state);
        Ok(())
    }

    /// Whether a complete attachment to another server blocks the desired one.
    fn needs_alone(&self, state: &CloudState) -> bool {
        let is_shared = |volume: &Volume| volume.multiattach && volume.status == VolumeStatus::InUse;
        match self.desired {
            DesiredAttachment::Attach { exclusive } => exclusive || !state.volume.as_ref().is_some_and(is_shared),
            DesiredAttachment::Detach => false,
        }
    }

    /// The error after a failed read of the state. If the read has no response, the refusal that it should explain is
    /// more precise. An unexplained refusal (400) is reported as a conflict, because the volume may be attached or
    /// detached already.
    fn explain_with_refusal(&self, error: CloudError) -> CloudError {
        let refusal = self
            .refused
            .as_ref()
            .map(|(_, refusal)| refusal)
            .or(self.earlier_error.as_ref());
        match refusal {
            Some(refusal) if error.request_id().is_none() && refusal.request_id().is_some() => match refusal {
                CloudError::BadRequest(failure) => CloudError::Conflict(failure.clone()),
                refusal => refusal.clone(),
            },
            _ => error,
        }
    }

    async fn request(&mut self) -> Result<Option<AttachOutcome>, CloudError> {
        if self.rounds >= ROUNDS {
            return Err(self.last_round_error().await);
        }
        self.rounds += 1;
        let outcome = match self.desired {
            DesiredAttachment::Attach { .. } => self.request_attach().await?,
            DesiredAttachment::Detach => self.request_detach().await?,
        };
        let (unknown, error) = match outcome {
            RequestOutcome::Done(attached) => return Ok(Some(attached)),
            RequestOutcome::Refused { unknown, error } => (unknown, error),
        };
        self.discard_state();
        let refusal = if unknown {
            Some(Refusal::NotFound)
        } else {
            Refusal::classify(&error)
        };
        let Some(refusal) = refusal else {
            return Err(self.explain_with_refusal(error));
        };
        self.refused = Some((refusal, error));
        Ok(None)
    }

    /// Waits until the volume has left its status, or has been in it for too long.
    async fn settle(&mut self) -> Result<(), CloudError> {
        let Some(previous) = self.volume().map(|volume| volume.status.clone()) else {
            self.discard_state();
            return Ok(());
        };
        let started = Instant::now();
        let patience = self.stuck_after().saturating_sub(self.age());
        let wait = Wait {
            kind: Kind::Settle,
            id: self.volume_id,
            name: None,
            status: Some(previous.clone()),
            started,
            deadline: self.deadline.min(started + patience),
            at_most_every: None,
            what: self.pair(),
        };
        let settled = self
            .cx
            .watch
            .until(wait, |now| match now {
                Some(now) if now.status == previous => PollVerdict::Pending,
                other => PollVerdict::Done(Ok(other.cloned())),
            })
            .await;
        match settled {
            Ok(now) => {
                self.discard_state();
                if self.desired == DesiredAttachment::Detach && now.is_some() {
                    // Another request is the fastest check.
                    self.refused = None;
                } else {
                    self.mark_refusal_outdated();
                }
                Ok(())
            }
            Err(CloudError::Timeout { .. }) if Instant::now() < self.deadline => {
                self.watched = self.stuck_after();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn mark_refusal_outdated(&mut self) {
        if let Some((refusal, _)) = &mut self.refused {
            *refusal = Refusal::Outdated;
        }
    }

    /// Deletes stale attachments.
    async fn delete_stale(&mut self, attachments: &[AttachmentId]) -> Result<(), CloudError> {
        for attachment in attachments {
            delete_attachment(self.cx, attachment, &self.pair()).await?;
        }
        self.stale_candidates.clear();
        self.discard_state();
        self.mark_refusal_outdated();
        Ok(())
    }

    fn pair(&self) -> String {
        pair(self.volume_id, self.server)
    }

    fn request_id(&self) -> Option<String> {
        let refused = self.refused.as_ref().and_then(|(_, error)| error.request_id());
        self.accepted.clone().or_else(|| refused.map(str::to_owned))
    }

    fn refusal(self) -> CloudError {
        match self.refused {
            Some((_, error)) => error,
            // Unreachable: this step requires a refusal.
            None => CloudError::Conflict(Failure {
                operation: "volume_attach",
                object: pair(self.volume_id, self.server),
                status: None,
                fault: "it was not asked for".to_owned(),
                request_id: None,
                elapsed: self.started.elapsed(),
            }),
        }
    }

    fn broken(&self) -> CloudError {
        let what = match self.desired {
            DesiredAttachment::Attach { .. } => "attached to",
            DesiredAttachment::Detach => "detached from",
        };
        let status = self.volume().map(|volume| volume.status.clone());
        let request_id = self.request_id().map(|id| format!(" (request {id})"));
        CloudError::Broken {
            kind: ObjectKind::Volume,
            id: self.volume_id.to_string(),
            message: format!(
                "it cannot be {what} server {}{}; {}",
                self.server,
                request_id.unwrap_or_default(),
                status.as_ref().map(VolumeStatus::remedy).unwrap_or_default()
            ),
            status: status.map(|status| status.to_string()).unwrap_or_default(),
        }
    }

    /// The error after the last round at a busy server.
    async fn last_round_error(&mut self) -> CloudError {
        if self.nova_server().is_some_and(|server| server.task_state.is_some()) {
            return self.obstructed(Obstacle::Server).await;
        }
        if self.is_recorded_by_nova_alone() {
            return self.obstructed(Obstacle::Disagreement).await;
        }
        match &self.refused {
            Some((_, error)) => error.clone(),
            None => self.obstructed(Obstacle::Stuck).await,
        }
    }

    /// Whether Nova refuses to attach a volume of which it has a record, and Cinder has the volume available.
    fn is_recorded_by_nova_alone(&self) -> bool {
        let is_recorded = self.state.as_ref().is_some_and(|state| state.recorded)
            || matches!(self.refused, Some((Refusal::Recorded, _)));
        let is_attach = matches!(self.desired, DesiredAttachment::Attach { .. });
        is_attach
            && is_recorded
            && self
                .volume()
                .is_some_and(|volume| volume.status == VolumeStatus::Available)
    }

    async fn obstructed(&mut self, obstacle: Obstacle) -> CloudError {
        // The error contains the state of the volume and of the server, if they can be read.
        if self.state.is_none()
            && let Err(error) = Box::pin(self.read_state()).await
        {
            tracing::debug!(%error, volume = %self.volume_id, server = %self.server, "the volume and the server could not be looked at");
        }
        let view = self.state.as_ref().map(|state| self.view(state));
        CloudError::Obstructed {
            act: match self.desired {
                DesiredAttachment::Attach { .. } => "attachment",
                DesiredAttachment::Detach => "detachment",
            },
            volume: self.volume_id.clone(),
            server: self.server.clone(),
            obstacle,
            states: view
                .as_ref()
                .map_or_else(|| "neither could be looked at".to_owned(), remedy::states),
            remedy: match &view {
                Some(view) => remedy::remedy(obstacle, self.desired, view),
                None => format!(
                    "look at both: openstack volume show {}; openstack server show {}",
                    self.volume_id, self.server
                ),
            },
            elapsed: self.started.elapsed(),
            request_id: self.request_id(),
        }
    }

    /// Records that Nova accepted a request, after which the state is outdated.
    fn accept(&mut self, request_id: Option<&str>) {
        self.discard_state();
        self.accepted = request_id.map(str::to_owned);
    }

    /// The error about an accepted request that takes too long.
    async fn stuck(&mut self, request_id: Option<&str>) -> CloudError {
        self.accept(request_id);
        if let Err(error) = Box::pin(self.read_state()).await {
            tracing::debug!(%error, volume = %self.volume_id, server = %self.server, "the volume and the server could not be looked at");
        }
        self.watched = self.stuck_after();
        // A server without a host makes no progress.
        let is_offloaded = self.nova_server().is_some_and(Server::is_offloaded);
        let obstacle = if is_offloaded {
            Obstacle::Server
        } else {
            Obstacle::Stuck
        };
        self.obstructed(obstacle).await
    }

    fn is_multiattach(&self) -> bool {
        self.volume().is_some_and(|volume| volume.multiattach) || self.multiattach_requested
    }

    /// The end of the wait for an accepted request, and whether it is the deadline of the whole operation.
    fn patience(&self, started: Instant) -> (Instant, bool) {
        let stuck = started + self.stuck_after();
        (self.deadline.min(stuck), self.deadline <= stuck)
    }
}
