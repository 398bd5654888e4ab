// SPDX-License-Identifier: Apache-2.0
//! The states and the remedy in the error about an obstructed attachment or detachment.

use super::step::{CloudState, DesiredAttachment, Refusal, ShelvedVersion, StepInput};
use crate::api::block_storage::VolumeStatus;
use crate::api::compute::Server;
use crate::error::Obstacle;
use crate::ids::ServerId;

/// Describes the states in Cinder and Nova.
pub(super) fn states(view: &StepInput<'_>) -> String {
    let CloudState {
        volume,
        attachments,
        recorded,
        nova_server,
        ..
    } = view.state;
    let Some(volume) = volume else {
        return "Cinder does not know the volume".to_owned();
    };
    let since = match view.age.as_secs() {
        0 => String::new(),
        seconds => format!(" for {seconds} s"),
    };
    let mut parts = vec![format!("Cinder has the volume {}{since}", volume.status)];
    if let Some(attachments) = attachments {
        let each: Vec<String> = attachments.iter().map(ToString::to_string).collect();
        parts.push(if each.is_empty() {
            "without attachments".to_owned()
        } else {
            format!("with {}", each.join(" and "))
        });
    }
    parts.push(if *recorded {
        "Nova has it recorded at the server".to_owned()
    } else {
        "Nova has no record of it at the server".to_owned()
    });
    parts.push(match nova_server {
        Some(server) => {
            let task = server.task_state.as_ref().map(|task| format!(" ({task})"));
            format!("the server is {}{}", server.status, task.unwrap_or_default())
        }
        None => "the server is gone".to_owned(),
    });
    match view.refusal {
        Some(Refusal::Locked) => parts.push("it is locked".to_owned()),
        Some(Refusal::HostDown) => parts.push("its host's nova-compute does not answer".to_owned()),
        Some(Refusal::Recorded) if !recorded => parts.push("Nova has it recorded at another server".to_owned()),
        _ => {}
    }
    if view.shelved_version == ShelvedVersion::Missing {
        parts.push("Nova is older than microversion 2.20, which a shelved server needs".to_owned());
    }
    parts.join(", ")
}

/// The remedy for an obstacle.
pub(super) fn remedy(obstacle: Obstacle, desired: DesiredAttachment, view: &StepInput<'_>) -> String {
    let server = view.server;
    match obstacle {
        Obstacle::Server => match (view.refusal, &view.state.nova_server) {
            (Some(Refusal::Locked), _) => format!("unlock it: openstack server unlock {server}"),
            (_, Some(server)) if server.is_offloaded() => for_shelved(desired, view),
            (Some(Refusal::HostDown), _) => host_down(desired),
            (_, Some(server)) if server.is_shelved() && server.task_state.is_none() => for_shelved(desired, view),
            (_, Some(server)) => for_state(&server.status, server.task_state.as_deref(), server.id.as_str()),
            _ => format!("look at the server: openstack server show {server}"),
        },
        Obstacle::Busy => {
            let status = view.state.volume.as_ref().map(|volume| &volume.status);
            let remedy = status.map(VolumeStatus::remedy).unwrap_or_default();
            format!("the call can be repeated when that is over; {remedy}")
        }
        Obstacle::Stuck | Obstacle::Disagreement if reset(view).is_some() => reset(view).unwrap_or_default(),
        Obstacle::Stuck => match (desired, view.state.recorded) {
            (_, false) => match others(view).next() {
                Some(other) => format!("see the log of nova-compute on the host of server {other}, which gets or loses the volume"),
                None => "its owner is unknown: find out who reserved it (openstack volume attachment list), then have an administrator \
                         delete that attachment or set the volume's state"
                    .to_owned(),
            },
            (DesiredAttachment::Attach { .. }, _) => {
                "see the log of nova-compute on the server's host; it goes on when Nova does".to_owned()
            }
            (DesiredAttachment::Detach, _) if view.state.nova_server.as_ref().is_some_and(Server::is_shelved) => {
                for_shelved(desired, view)
            }
            (DesiredAttachment::Detach, _) => format!(
                "see the log of nova-compute on the server's host: the guest may hold the device, or the host may be down; {}",
                host_down(desired)
            ),
        },
        Obstacle::Disagreement => {
            "nothing is touched, since the guest may have the disk; an administrator has to set the two right: delete the \
             attachment in Cinder once the server certainly does not use it"
                .to_owned()
        }
    }
}

/// The other servers with attachments in Cinder.
fn others<'a>(view: &StepInput<'a>) -> impl Iterator<Item = &'a ServerId> {
    let (listed, server) = (view.state.attachments.iter().flatten(), view.server);
    listed
        .filter_map(|attachment| attachment.instance.as_ref())
        .filter(move |other| *other != server)
}

/// The remedy for a volume with a status that contradicts its attachments.
fn reset(view: &StepInput<'_>) -> Option<String> {
    let CloudState {
        volume,
        attachments,
        recorded,
        ..
    } = view.state;
    let volume = volume.as_ref()?;
    let is_here = volume.attachment_to(view.server).is_some();
    let (id, status) = (&volume.id, &volume.status);
    let command = match status {
        VolumeStatus::Available | VolumeStatus::Reserved | VolumeStatus::Attaching if is_here && *recorded => {
            format!("reset the volume's status: openstack volume set --state in-use {id}")
        }
        VolumeStatus::Available if *recorded || view.refusal == Some(Refusal::Recorded) => {
            "create Cinder's attachment again while the server is stopped: nova-manage volume_attachment refresh"
                .to_owned()
        }
        VolumeStatus::InUse if volume.attachments.is_empty() && attachments.as_ref().is_some_and(Vec::is_empty) => {
            format!("reset the volume's status: openstack volume set --state available --detached {id}")
        }
        _ => return None,
    };
    Some(format!(
        "an administrator has to find out which server has the disk and {command}"
    ))
}

/// The remedy for a shelved server. It need not be deleted: Nova detaches its volumes, or attaches them when it is
/// unshelved.
fn for_shelved(desired: DesiredAttachment, view: &StepInput<'_>) -> String {
    let server = view.server;
    let is_offloaded = view.state.nova_server.as_ref().is_some_and(Server::is_offloaded);
    if desired != DesiredAttachment::Detach || view.shelved_version == ShelvedVersion::Missing {
        format!("unshelve it: openstack server unshelve {server}")
    } else if is_offloaded {
        "the call can be repeated: Nova detaches volumes from a server without a host".to_owned()
    } else {
        format!(
            "see the log of nova-compute on the server's host, or take the server off it: openstack server shelve --offload {server}; \
             Nova detaches its volumes without the host then"
        )
    }
}

fn host_down(desired: DesiredAttachment) -> String {
    let node = match desired {
        DesiredAttachment::Attach { .. } => "",
        DesiredAttachment::Detach => {
            ", and taint the node node.kubernetes.io/out-of-service so that its pods are released"
        }
    };
    format!(
        "bring the host's nova-compute back, or, if the machine is certainly off, evacuate or delete the server{node}"
    )
}

fn for_state(status: &str, task: Option<&str>, server: &str) -> String {
    if let Some(task) = task {
        return format!("the call can be repeated when {task} is over");
    }
    match status {
        "SUSPENDED" => format!("resume it: openstack server resume {server}"),
        "RESCUE" => format!("end the rescue: openstack server unrescue {server}"),
        "BUILD" | "REBUILD" | "MIGRATING" | "RESIZE" | "REBOOT" | "HARD_REBOOT" => {
            "the call can be repeated when that is over".to_owned()
        }
        "DELETED" => "the server is being deleted, which detaches its volumes".to_owned(),
        _ => format!(
            "find out why (openstack server show {server}), then have an administrator set its state, rebuild or delete it"
        ),
    }
}
