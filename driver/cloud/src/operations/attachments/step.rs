// SPDX-License-Identifier: Apache-2.0
//! Decides the next step towards the desired attachment. A pure function of the state in Cinder and Nova.
//!
//! The decision depends on three facts. First, Nova creates its record before Cinder's attachment, and deletes it after that attachment
//! was deleted. An incomplete attachment is therefore stale if it was read before Nova reported no record of the volume at the server.
//! Second, Cinder lists complete attachments only, so a `reserved` volume does not name its server. Third, Nova accepts or refuses a
//! request by the state of the server, before it calls Cinder. The server therefore comes first, and the volume's status second.

use std::time::Duration;

use crate::api::block_storage::{Attachment, Volume, VolumeStatus};
use crate::api::compute::Server;
use crate::error::{CloudError, ObjectKind, Obstacle};
use crate::ids::{AttachmentId, ServerId};

/// The desired state of a volume and a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DesiredAttachment {
    /// The volume is attached to the server, and to no other if `exclusive`.
    Attach { exclusive: bool },
    /// The volume is not attached to the server.
    Detach,
}

/// The reason why Nova did not carry out the last request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Nova does not know the server, the volume or their attachment (404).
    NotFound,
    /// The response was lost, or was a 5xx.
    Uncertain,
    /// The server is locked (409).
    Locked,
    /// The host of the server does not respond (409).
    HostDown,
    /// The server or the volume is busy, or in a state that forbids the request (409).
    Busy,
    /// Nova has a record of the volume at a server (400).
    Recorded,
    /// Nova refuses the request itself (400).
    Bad,
    /// The state has changed since the refusal.
    Outdated,
}

impl Refusal {
    /// Classifies a refusal of Nova (400, 409, 5xx). `None` for an error that the state cannot explain, for instance
    /// 403 or 429.
    pub(super) fn classify(error: &CloudError) -> Option<Self> {
        if error.is_uncertain() {
            return Some(Self::Uncertain);
        }
        let fault = error.failure().map(|failure| failure.fault.to_ascii_lowercase());
        let fault = fault.unwrap_or_default();
        match error {
            CloudError::Conflict(_) if fault.contains(" is locked") => Some(Self::Locked),
            CloudError::Conflict(_) if fault.contains("service is unavailable") => Some(Self::HostDown),
            CloudError::Conflict(_) => Some(Self::Busy),
            CloudError::BadRequest(_) if fault.contains("already attached to instance") => Some(Self::Recorded),
            CloudError::BadRequest(_) => Some(Self::Bad),
            _ => None,
        }
    }
}

/// The state in Cinder and Nova. Cinder is read before Nova.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct CloudState {
    /// Cinder's volume. If it is missing, nothing else was read.
    pub(super) volume: Option<Volume>,
    /// Cinder's attachments, including incomplete ones; `None` if Cinder does not list them.
    pub(super) attachments: Option<Vec<Attachment>>,
    /// The attachments that no server has.
    pub(super) stale: Vec<AttachmentId>,
    /// The servers off their hosts for which Nova keeps the volume reserved.
    pub(super) offloaded: Vec<ServerId>,
    /// Whether Nova has a record of the volume at the server.
    pub(super) recorded: bool,
    pub(super) nova_server: Option<Server>,
}

/// The use of microversion 2.20 or later, in which Nova supports volumes of shelved servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ShelvedVersion {
    /// The server was not shelved so far.
    #[default]
    Unneeded,
    /// The next request uses that version, which also suits any other server.
    Needed,
    /// The last request was in that version.
    Used,
    /// Nova is older.
    Missing,
}

/// The input of the decision about a volume and a server.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepInput<'a> {
    pub(super) server: &'a ServerId,
    /// The number of further requests.
    pub(super) rounds_left: u32,
    /// The reason of the last refusal; `None` before the first one.
    pub(super) refusal: Option<Refusal>,
    pub(super) state: &'a CloudState,
    /// How long the volume has been in its status.
    pub(super) age: Duration,
    /// Whether the volume has been in its status for so long that an administrator must act.
    pub(super) stuck: bool,
    /// The attachments that were found stale some time ago.
    pub(super) stale_candidates: &'a [AttachmentId],
    /// Whether the last request allowed a multiattach volume.
    pub(super) multiattach_requested: bool,
    pub(super) shelved_version: ShelvedVersion,
}

/// The next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Send a request to Nova.
    Request,
    /// Wait until the volume has left its status.
    WaitForTransition,
    /// Wait for the pending detachment.
    WaitForDetach,
    /// Wait a little, then send another request to Nova.
    Pause,
    /// These attachments appear to be stale. Check them again after a while.
    RecheckStale(Vec<AttachmentId>),
    /// These attachments are stale. Delete them.
    DeleteStale(Vec<AttachmentId>),
    /// The desired state is reached. For an attachment, with the device that Nova chose.
    Done(Option<String>),
    /// The server or the volume does not exist.
    Missing(ObjectKind),
    /// Another server has the volume, and only one may have it.
    Elsewhere,
    /// The volume is in an error state.
    Broken,
    /// An administrator must act first.
    Obstructed(Obstacle),
    /// No state explains Nova's refusal, which becomes the result.
    Refused,
}

/// Returns the next step towards `desired`, from the state after a refusal. Detach after a 404 of Nova: [`detach`]
/// decides, and the result is [`Step::Done`] unless Cinder still has an attachment of the server.
pub(super) fn next_step(desired: DesiredAttachment, view: &StepInput<'_>) -> Step {
    let Some(refusal) = view.refusal else {
        return Step::Request;
    };
    match (&view.state.volume, desired) {
        (None, DesiredAttachment::Attach { .. }) => Step::Missing(ObjectKind::Volume),
        (None, DesiredAttachment::Detach) => Step::Done(None),
        (Some(volume), DesiredAttachment::Attach { exclusive }) => attach(view, refusal, volume, exclusive),
        (Some(volume), DesiredAttachment::Detach) => match detach(view, refusal, volume) {
            // An API node with a lagging database may not show a new attachment. The response to another request
            // decides.
            Step::Done(None) if refusal == Refusal::Uncertain && view.rounds_left > 0 => Step::Pause,
            step => step,
        },
    }
}

fn attach(view: &StepInput<'_>, refusal: Refusal, volume: &Volume, exclusive: bool) -> Step {
    if refusal == Refusal::NotFound && view.state.nova_server.is_none() {
        return Step::Missing(ObjectKind::Server);
    }
    let recorded = view.state.recorded;
    let needs_alone = exclusive || !volume.multiattach;
    match (&volume.status, volume.attachment_to(view.server)) {
        (VolumeStatus::Detaching, Some(_)) => {
            remove_stale(view, |_| true).unwrap_or_else(|| settle(view, Obstacle::Stuck))
        }
        (VolumeStatus::Deleting, _) => settle(view, Obstacle::Busy),
        // A listed attachment is complete, whatever other operation on the volume is pending or has failed, for
        // instance an extension.
        (_, Some(attachment)) if recorded => Step::Done(attachment.device.clone()),
        (_, Some(_)) => Step::Obstructed(Obstacle::Disagreement),
        (status, None) if status.is_error() => Step::Broken,
        (VolumeStatus::Reserved | VolumeStatus::Attaching, None) if recorded => {
            // The volume reaches a server without a host when that is unshelved.
            let is_offloaded = view.state.nova_server.as_ref().is_some_and(Server::is_offloaded);
            settle(
                view,
                if is_offloaded {
                    Obstacle::Server
                } else {
                    Obstacle::Stuck
                },
            )
        }
        (status, None) if status.is_under_work() && is_refused_by_server(view, refusal) => {
            Step::Obstructed(Obstacle::Server)
        }
        (VolumeStatus::Reserved | VolumeStatus::Attaching | VolumeStatus::Detaching, None) => {
            let is_elsewhere = needs_alone && !volume.attachments.is_empty();
            remove_stale(view, |_| true).unwrap_or_else(|| await_release(view, is_elsewhere))
        }
        (status, None) if status.is_under_work() => settle(view, Obstacle::Busy),
        (VolumeStatus::InUse, None) if needs_alone && has_no_attachment(view, volume) => {
            Step::Obstructed(Obstacle::Disagreement)
        }
        (VolumeStatus::InUse, None) if needs_alone => remove_stale(view, |_| true).unwrap_or(Step::Elsewhere),
        // An administrator reset the status of an attached volume.
        (VolumeStatus::Available, None) if needs_alone && !volume.attachments.is_empty() => {
            remove_stale(view, |_| true).unwrap_or(Step::Elsewhere)
        }
        (VolumeStatus::Available | VolumeStatus::InUse, None) => attach_available(view, refusal, volume),
        _ => Step::Obstructed(Obstacle::Busy),
    }
}

/// Waits for a volume with a pending operation at another server, or that is reserved for a server without a host until
/// it is unshelved.
fn await_release(view: &StepInput<'_>, is_elsewhere: bool) -> Step {
    if !view.state.offloaded.is_empty() || (is_elsewhere && view.stuck) {
        Step::Elsewhere
    } else {
        settle(view, Obstacle::Stuck)
    }
}

/// Whether Cinder lists no attachment of the volume, whatever the status.
fn has_no_attachment(view: &StepInput<'_>, volume: &Volume) -> bool {
    volume.attachments.is_empty() && view.state.attachments.as_ref().is_some_and(Vec::is_empty)
}

/// Cinder shows no obstacle to an attachment.
fn attach_available(view: &StepInput<'_>, refusal: Refusal, volume: &Volume) -> Step {
    if refusal == Refusal::Outdated || (volume.multiattach && !view.multiattach_requested) {
        return Step::Request;
    }
    let server = match server_allows(view, refusal) {
        Ok(server) => server,
        Err(step) => return step,
    };
    if server.is_offloaded() && volume.multiattach {
        // Nova attaches a multiattach volume only to a server with a host.
        Step::Obstructed(Obstacle::Server)
    } else if server.is_shelved() && view.shelved_version != ShelvedVersion::Used {
        Step::Request
    } else if view.state.recorded || matches!(refusal, Refusal::Busy | Refusal::Recorded) {
        // Nova still has the record of a detachment, or has not updated Cinder about an attachment yet.
        Step::Pause
    } else {
        // Nova may still process a request with a lost response. A second request could collide with it.
        Step::Refused
    }
}

fn detach(view: &StepInput<'_>, refusal: Refusal, volume: &Volume) -> Step {
    let here = volume.attachment_to(view.server).is_some();
    match volume.status {
        _ if view.state.recorded => detach_recorded(view, refusal, volume, here),
        // The deletion of an attachment would end the status of the volume.
        _ if here && volume.status.is_under_work() && !volume.is_in_attachment() => settle(view, Obstacle::Busy),
        _ if here => unknown_to_nova(view, volume),
        VolumeStatus::Reserved | VolumeStatus::Attaching => {
            // A server that does not exist yet is not a node of the cluster, so this one is deleted.
            remove_stale(view, |server| server == view.server).unwrap_or_else(|| resolve_interrupted(view, volume))
        }
        VolumeStatus::Detaching => resolve_interrupted(view, volume),
        // Other servers may have a multiattach volume.
        VolumeStatus::InUse => remove_stale(view, |server| server == view.server).unwrap_or(Step::Done(None)),
        _ => Step::Done(None),
    }
}

/// Nova has no record (404), and Cinder has a pending attachment or detachment. It may concern another server. It may
/// also be one of this server that the server's deletion interrupted.
fn resolve_interrupted(view: &StepInput<'_>, volume: &Volume) -> Step {
    match attachments_here(view).next() {
        None => Step::Done(None),
        Some(_) if has_host(view) => {
            remove_stale(view, |server| server == view.server).unwrap_or_else(|| settle(view, Obstacle::Stuck))
        }
        Some(_) => unknown_to_nova(view, volume),
    }
}

/// Cinder has an attachment of which Nova has no record (404). It is stale if the server is deleted, or has no host:
/// Nova ignores a failure of Cinder when it detaches a volume from such a server. Otherwise it stays, because the guest
/// may still have the disk.
fn unknown_to_nova(view: &StepInput<'_>, volume: &Volume) -> Step {
    if !has_host(view) {
        let here = attachments_here(view).map(|attachment| attachment.id.clone());
        // Without an attachment here, this Cinder does not list the attachments to remove.
        remove_rechecked(view, here.collect()).unwrap_or_else(|| settle(view, Obstacle::Disagreement))
    } else if volume.status == VolumeStatus::Detaching {
        settle(view, Obstacle::Stuck)
    } else {
        Step::Obstructed(Obstacle::Disagreement)
    }
}

/// Whether a guest may run with the disk: the server exists, and Nova has not taken it off its host.
fn has_host(view: &StepInput<'_>) -> bool {
    (view.state.nova_server.as_ref()).is_some_and(|server| !server.is_offloaded())
}

/// Nova has a record of the volume at the server and refuses to detach it.
fn detach_recorded(view: &StepInput<'_>, refusal: Refusal, volume: &Volume, here: bool) -> Step {
    if let Some(server) = view.state.nova_server.as_ref().filter(|server| server.is_shelved())
        && let Some(step) = detach_from_shelved(view, refusal, volume, server)
    {
        return step;
    }
    match &volume.status {
        VolumeStatus::Detaching => Step::WaitForDetach,
        VolumeStatus::Reserved | VolumeStatus::Attaching if is_refused_by_server(view, refusal) => {
            Step::Obstructed(Obstacle::Server)
        }
        // Nova completes a pending attachment and does not cancel it, so the attachment must end first.
        VolumeStatus::Reserved | VolumeStatus::Attaching => settle(view, Obstacle::Stuck),
        // Cinder has deleted its attachment, and Nova is about to delete its record.
        VolumeStatus::Available if !here => Step::WaitForDetach,
        // An administrator reset the status of an attached volume.
        VolumeStatus::Available if refusal == Refusal::Bad => Step::Obstructed(Obstacle::Disagreement),
        status if status.is_error() => Step::Broken,
        status if status.is_under_work() => settle(view, Obstacle::Busy),
        _ => match server_allows(view, refusal) {
            Ok(_) => retry_detach(refusal),
            // The server was deleted a moment ago, and an API node with a lagging database still shows Nova's record.
            Err(Step::Missing(_)) => Step::Pause,
            Err(step) => step,
        },
    }
}

/// The step for a shelved server, if its state alone decides. The first request uses the version for shelved servers.
/// For a server without a host, the volume's status shows no pending operation, and Nova detaches in every status.
fn detach_from_shelved(view: &StepInput<'_>, refusal: Refusal, volume: &Volume, server: &Server) -> Option<Step> {
    if refusal == Refusal::Locked {
        Some(Step::Obstructed(Obstacle::Server))
    } else if server.task_state.is_some() {
        // Nova offloads or unshelves it. The attachment completes after that.
        let is_moving = matches!(volume.status, VolumeStatus::Reserved | VolumeStatus::Attaching);
        Some(if is_moving {
            settle(view, Obstacle::Server)
        } else {
            Step::Pause
        })
    } else if view.shelved_version != ShelvedVersion::Used {
        Some(Step::Request)
    } else {
        server.is_offloaded().then(|| match refusal {
            // The refusal is older than the state.
            Refusal::HostDown => Step::Obstructed(Obstacle::Server),
            refusal => retry_detach(refusal),
        })
    }
}

/// Decides whether another request to detach can help after this refusal. A 404 with a record (`NotFound`) is repeated
/// after a pause.
fn retry_detach(refusal: Refusal) -> Step {
    match refusal {
        Refusal::Uncertain | Refusal::Busy | Refusal::Outdated | Refusal::NotFound => Step::Pause,
        Refusal::Locked | Refusal::HostDown | Refusal::Recorded | Refusal::Bad => Step::Refused,
    }
}

/// Whether the server refuses every request and does not change by itself.
fn is_refused_by_server(view: &StepInput<'_>, refusal: Refusal) -> bool {
    let is_resting = |server: &Server| {
        server.task_state.is_none() && matches!(server.status.as_str(), "SUSPENDED" | "RESCUE" | "ERROR")
    };
    matches!(refusal, Refusal::Locked | Refusal::HostDown) || view.state.nova_server.as_ref().is_some_and(is_resting)
}

/// The server, if its state allows attachments and detachments.
fn server_allows<'a>(view: &StepInput<'a>, refusal: Refusal) -> Result<&'a Server, Step> {
    let Some(server) = &view.state.nova_server else {
        return Err(Step::Missing(ObjectKind::Server));
    };
    if matches!(refusal, Refusal::Locked | Refusal::HostDown) {
        return Err(Step::Obstructed(Obstacle::Server));
    }
    if server.task_state.is_some() {
        return Err(Step::Pause);
    }
    match server.status.as_str() {
        "ACTIVE" | "PAUSED" | "SHUTOFF" | "VERIFY_RESIZE" | "SOFT_DELETED" | "SHELVED" | "SHELVED_OFFLOADED" => {
            Ok(server)
        }
        _ => Err(Step::Obstructed(Obstacle::Server)),
    }
}

/// The step that removes stale attachments to the servers concerned; `None` if there are none.
fn remove_stale(view: &StepInput<'_>, concerns: impl Fn(&ServerId) -> bool) -> Option<Step> {
    let found = (view.state.attachments.iter().flatten())
        .filter(|attachment| attachment.instance.as_ref().is_some_and(&concerns))
        .filter(|attachment| view.state.stale.contains(&attachment.id))
        .map(|attachment| attachment.id.clone());
    remove_rechecked(view, found.collect())
}

/// Cinder's attachments to the server, including incomplete ones.
fn attachments_here<'a>(view: &StepInput<'a>) -> impl Iterator<Item = &'a Attachment> {
    let (all, server) = (view.state.attachments.iter().flatten(), view.server);
    all.filter(move |attachment| attachment.instance.as_ref() == Some(server))
}

/// Removes attachments that were found stale twice. Removes nothing while Nova has a record at the server, or if Ironic
/// may have the attachment.
fn remove_rechecked(view: &StepInput<'_>, attachments: Vec<AttachmentId>) -> Option<Step> {
    let is_of_ironic = (view.state.volume.as_ref()).is_some_and(Volume::is_attached_by_ironic);
    if attachments.is_empty() || view.state.recorded || is_of_ironic {
        None
    } else if attachments.iter().all(|id| view.stale_candidates.contains(id)) {
        Some(Step::DeleteStale(attachments))
    } else {
        Some(Step::RecheckStale(attachments))
    }
}

fn settle(view: &StepInput<'_>, otherwise: Obstacle) -> Step {
    if view.stuck {
        Step::Obstructed(otherwise)
    } else {
        Step::WaitForTransition
    }
}

#[cfg(test)]
mod tests;
