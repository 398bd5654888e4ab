//! The next step towards a wish, from what is known: a function of the two views and nothing else.
//!
//! Two facts carry it. Nova makes its record before Cinder's attachment and destroys it after Cinder's has gone: so an incomplete
//! attachment to a server at which Nova has no record of the volume belongs to no one, provided that it was seen before Nova was
//! asked: a stray. And Cinder lists complete attachments only: so a `reserved` volume tells by itself nothing about whose it is.

use std::time::Duration;

use crate::block_storage::{Attachment, Volume, VolumeStatus};
use crate::compute::Server;
use crate::error::{CloudError, ObjectKind, Obstacle};
use crate::ids::{AttachmentId, ServerId};

/// What is wanted of a volume and a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// The server shall have the volume; alone, if `exclusive`.
    Attach { exclusive: bool },
    /// The server shall not have it.
    Detach,
}

/// A view that may not have been taken yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Seen<T> {
    #[default]
    Not,
    /// It is not there.
    Missing,
    There(T),
}

/// Why the last request to Nova was not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The server, the volume or their attachment is not known to Nova.
    NotFound,
    /// The answer was lost.
    Uncertain,
    /// The server is locked.
    Locked,
    /// The server's host does not answer.
    HostDown,
    /// The server or the volume is busy, or in a state that forbids it (409).
    Busy,
    /// The request is refused as it is (400).
    Bad,
    /// Something has changed since the refusal.
    Outdated,
}

impl Refusal {
    /// What a refusal of Nova means; `None` for one that no look can explain.
    pub(super) fn of(error: &CloudError) -> Option<Self> {
        if error.is_uncertain() {
            return Some(Self::Uncertain);
        }
        let fault = error.failure().map(|failure| failure.fault.to_ascii_lowercase());
        let fault = fault.unwrap_or_default();
        match error {
            CloudError::Conflict(_) if fault.contains(" is locked") => Some(Self::Locked),
            CloudError::Conflict(_) if fault.contains("service is unavailable") => Some(Self::HostDown),
            CloudError::Conflict(_) => Some(Self::Busy),
            CloudError::BadRequest(_) => Some(Self::Bad),
            _ => None,
        }
    }
}

/// All that is known about a volume and a server.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) server: &'a ServerId,
    /// How many further requests may be made.
    pub(super) rounds_left: u32,
    /// Why the last request was refused; `None` before the first one.
    pub(super) refusal: Option<Refusal>,
    /// Cinder's volume.
    pub(super) volume: Seen<&'a Volume>,
    /// Nova's record of the volume at the server.
    pub(super) record: Seen<()>,
    /// Cinder's attachments, half-made ones included; `Missing` where Cinder does not list them.
    pub(super) attachments: Seen<&'a [Attachment]>,
    /// Those of them that are strays.
    pub(super) strays: Seen<&'a [AttachmentId]>,
    /// The server itself.
    pub(super) host: Seen<&'a Server>,
    /// How long the volume has been in its status.
    pub(super) age: Duration,
    /// Whether that is so long that somebody is told to look after it.
    pub(super) stuck: bool,
    /// The attachments that looked left over some time ago.
    pub(super) suspects: &'a [AttachmentId],
    /// Whether the last request said that the volume may go to several servers.
    pub(super) asked_for_several: bool,
    /// Whether the last request said that the server may be shelved.
    pub(super) asked_for_shelved: bool,
}

/// Where to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Volume,
    Record,
    Attachments,
    /// Nova's records at all servers that the incomplete attachments name.
    Strays,
    Server,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Ask Nova.
    Request,
    /// Look there first.
    Look(Source),
    /// Wait until the volume has left its status.
    Settle,
    /// Follow the detachment that is under way.
    Follow,
    /// Wait a little, then ask Nova anew.
    Pause,
    /// These attachments look left over: look again after a while.
    Doubt(Vec<AttachmentId>),
    /// These attachments are left over: remove them.
    Clear(Vec<AttachmentId>),
    /// It is as wished; for an attachment with the device that Nova thought of.
    Done(Option<String>),
    /// It is not there.
    Missing(ObjectKind),
    /// Another server has it, and only one may.
    Elsewhere,
    /// It is in an error state.
    Broken,
    /// Somebody has to do something first.
    Obstructed(Obstacle),
    /// Nothing explains Nova's refusal: it stands.
    Refused,
}

/// The next step towards `wish`.
pub(super) fn next_step(wish: Wish, view: &View<'_>) -> Step {
    let Some(refusal) = view.refusal else {
        return Step::Request;
    };
    let volume = match (view.volume, wish) {
        (Seen::Not, _) => return Step::Look(Source::Volume),
        (Seen::Missing, Wish::Attach { .. }) => return Step::Missing(ObjectKind::Volume),
        (Seen::Missing, Wish::Detach) => return Step::Done(None),
        (Seen::There(volume), _) => volume,
    };
    match wish {
        Wish::Attach { exclusive } => attach(view, refusal, volume, exclusive),
        Wish::Detach => match detach(view, refusal, volume) {
            // An API node whose database lags may not show an attachment of a moment ago. The answer to a request tells; without one, looks
            // that show nothing for a while.
            Step::Done(None) if refusal == Refusal::Uncertain && view.rounds_left > 0 => Step::Pause,
            step => step,
        },
    }
}

fn attach(view: &View<'_>, refusal: Refusal, volume: &Volume, exclusive: bool) -> Step {
    if refusal == Refusal::NotFound {
        match view.host {
            Seen::Not => return Step::Look(Source::Server),
            Seen::Missing => return Step::Missing(ObjectKind::Server),
            Seen::There(_) => {}
        }
    }
    match (&volume.status, volume.attachment_to(view.server)) {
        (VolumeStatus::Detaching, _) => settle(view, Obstacle::Stuck),
        (VolumeStatus::Deleting, _) => settle(view, Obstacle::Busy),
        // Whatever else was done to the volume, an extension that failed included: a listed attachment is complete.
        (_, Some(attachment)) => match view.record {
            Seen::Not => Step::Look(Source::Record),
            Seen::There(()) => Step::Done(attachment.device.clone()),
            Seen::Missing => Step::Obstructed(Obstacle::Disagreement),
        },
        (status, None) if status.is_error() => Step::Broken,
        (VolumeStatus::Reserved | VolumeStatus::Attaching, None) => match view.record {
            Seen::Not => Step::Look(Source::Record),
            Seen::There(()) => settle(view, Obstacle::Stuck),
            Seen::Missing => match strays(view, |_| true) {
                Ok(Some(step)) | Err(step) => step,
                // It is on its way to somebody else.
                Ok(None) => settle(view, Obstacle::Stuck),
            },
        },
        (status, None) if status.is_under_work() => settle(view, Obstacle::Busy),
        (VolumeStatus::InUse, None) if exclusive || !volume.multiattach => Step::Elsewhere,
        (VolumeStatus::Available | VolumeStatus::InUse, None) => free(view, refusal, volume),
        _ => Step::Refused,
    }
}

/// Cinder sees no obstacle to an attachment.
fn free(view: &View<'_>, refusal: Refusal, volume: &Volume) -> Step {
    if refusal == Refusal::Outdated || (volume.multiattach && !view.asked_for_several) {
        return Step::Request;
    }
    let server = match server_allows(view, refusal) {
        Ok(server) => server,
        Err(step) => return step,
    };
    if server.is_shelved() && !view.asked_for_shelved {
        return Step::Request;
    }
    match view.record {
        Seen::Not => Step::Look(Source::Record),
        // Nova has not yet forgotten a detachment, or has not yet told Cinder of an attachment.
        Seen::There(()) => Step::Pause,
        Seen::Missing if refusal == Refusal::Busy => Step::Pause,
        // A lost request may still be on its way inside Nova: a second one could collide with it.
        Seen::Missing => Step::Refused,
    }
}

fn detach(view: &View<'_>, refusal: Refusal, volume: &Volume) -> Step {
    let here = volume.attachment_to(view.server).is_some();
    match view.record {
        Seen::Not if volume.status == VolumeStatus::Detaching && refusal != Refusal::NotFound => Step::Follow,
        Seen::Not => Step::Look(Source::Record),
        Seen::Missing if here => unknown_to_nova(view, volume),
        Seen::Missing => match volume.status {
            VolumeStatus::Reserved | VolumeStatus::Attaching => match strays(view, |server| server == view.server) {
                Ok(Some(step)) | Err(step) => step,
                // A server that cannot be seen yet is no node of the cluster: this one is gone.
                Ok(None) => cut_short(view, volume),
            },
            VolumeStatus::Detaching => cut_short(view, volume),
            _ => Step::Done(None),
        },
        Seen::There(()) => recorded(view, refusal, volume, here),
    }
}

/// Nova has no record, and Cinder is at an attachment or a detachment that it lists among the half-made ones only. It may be another
/// server's, or one of ours that the server's deletion cut short.
fn cut_short(view: &View<'_>, volume: &Volume) -> Step {
    match view.attachments {
        Seen::Not => Step::Look(Source::Attachments),
        Seen::There(all) if all.iter().any(|one| one.instance.as_ref() == Some(view.server)) => match view.host {
            // Nova may be about to end it.
            Seen::There(_) => settle(view, Obstacle::Stuck),
            _ => unknown_to_nova(view, volume),
        },
        Seen::Missing | Seen::There(_) => Step::Done(None),
    }
}

/// Cinder has an attachment of which Nova has no record. With the server gone it is what the server's deletion left
/// behind. With the server there it stays: the guest may still have the disk.
fn unknown_to_nova(view: &View<'_>, volume: &Volume) -> Step {
    match view.host {
        Seen::Not => Step::Look(Source::Server),
        Seen::Missing => match left_behind(view) {
            Ok(Some(step)) | Err(step) => step,
            // This Cinder does not say what there is to remove.
            Ok(None) => settle(view, Obstacle::Disagreement),
        },
        Seen::There(_) if volume.status == VolumeStatus::Detaching => settle(view, Obstacle::Stuck),
        Seen::There(_) => Step::Obstructed(Obstacle::Disagreement),
    }
}

/// Nova has a record of the volume at the server and does not want to detach it.
fn recorded(view: &View<'_>, refusal: Refusal, volume: &Volume, here: bool) -> Step {
    match &volume.status {
        VolumeStatus::Detaching => Step::Follow,
        // Half made: Nova has it on its way to the server and does not turn back; let it arrive first.
        VolumeStatus::Reserved | VolumeStatus::Attaching => settle(view, Obstacle::Stuck),
        // Cinder has let go, Nova is about to forget.
        VolumeStatus::Available if !here => Step::Follow,
        status if status.is_error() => Step::Broken,
        status if status.is_under_work() => settle(view, Obstacle::Busy),
        _ => {
            let server = match server_allows(view, refusal) {
                Ok(server) => server,
                Err(step) => return step,
            };
            if server.is_shelved() && !view.asked_for_shelved {
                return Step::Request;
            }
            match refusal {
                Refusal::Uncertain | Refusal::Busy | Refusal::Outdated | Refusal::NotFound => Step::Pause,
                _ => Step::Refused,
            }
        }
    }
}

/// The server, if it is in a state in which Nova attaches and detaches.
fn server_allows<'a>(view: &View<'a>, refusal: Refusal) -> Result<&'a Server, Step> {
    let server = match view.host {
        Seen::Not => return Err(Step::Look(Source::Server)),
        Seen::Missing => return Err(Step::Missing(ObjectKind::Server)),
        Seen::There(server) => server,
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

/// What is to be done about strays to servers that concern us. `Ok(None)`: there are none.
fn strays(view: &View<'_>, concerns: impl Fn(&ServerId) -> bool) -> Result<Option<Step>, Step> {
    let attachments = match view.attachments {
        Seen::Not => return Err(Step::Look(Source::Attachments)),
        Seen::Missing => return Ok(None),
        Seen::There(attachments) => attachments,
    };
    let mut open = attachments
        .iter()
        .filter(|attachment| !attachment.is_complete() && attachment.instance.as_ref().is_some_and(&concerns));
    match view.strays {
        Seen::Not if open.clone().next().is_some() => Err(Step::Look(Source::Strays)),
        Seen::Not | Seen::Missing => Ok(None),
        Seen::There(strays) => {
            let found = open
                .by_ref()
                .filter(|attachment| strays.contains(&attachment.id))
                .map(|attachment| attachment.id.clone());
            Ok(remove(view, found.collect()))
        }
    }
}

/// What is to be done about the attachments to a server that is gone. `Ok(None)`: there are none.
fn left_behind(view: &View<'_>) -> Result<Option<Step>, Step> {
    match view.attachments {
        Seen::Not => Err(Step::Look(Source::Attachments)),
        Seen::Missing => Ok(None),
        Seen::There(attachments) => {
            let ours = attachments
                .iter()
                .filter(|attachment| attachment.instance.as_ref() == Some(view.server))
                .map(|attachment| attachment.id.clone());
            Ok(remove(view, ours.collect()))
        }
    }
}

/// Nothing is removed that was not found left over twice.
fn remove(view: &View<'_>, attachments: Vec<AttachmentId>) -> Option<Step> {
    if attachments.is_empty() {
        None
    } else if attachments.iter().all(|id| view.suspects.contains(id)) {
        Some(Step::Clear(attachments))
    } else {
        Some(Step::Doubt(attachments))
    }
}

fn settle(view: &View<'_>, otherwise: Obstacle) -> Step {
    if view.stuck {
        Step::Obstructed(otherwise)
    } else {
        Step::Settle
    }
}

#[cfg(test)]
mod tests;
