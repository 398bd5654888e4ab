// SPDX-License-Identifier: Apache-2.0
//! Whether a cause holds, by the joined facts, and what to do about it: one function for each row of the table.

use std::fmt::Write as _;

use cinder_cloud::{Server, ServerId, Volume};

use crate::diagnosis::{Case, CloudAccess, CloudAnswer};

fn volume_name(case: &Case) -> String {
    match case
        .volume_id
        .as_deref()
        .or(case.volume.found().map(|volume| volume.id.as_str()))
    {
        Some(id) => format!("volume {id}"),
        None => "the volume".to_owned(),
    }
}

fn node_name(case: &Case) -> &str {
    case.node.as_deref().unwrap_or("(none)")
}

/// The node's server, as far as Nova told.
fn node_server(case: &Case) -> Option<(&str, CloudAnswer<&Server>)> {
    let id = case.node_server.as_deref()?;
    let word = match case.servers.get(&ServerId::new(id)) {
        None => CloudAnswer::Unknown,
        Some(None) => CloudAnswer::Missing,
        Some(Some(server)) if is_deleted(server) => CloudAnswer::Missing,
        Some(Some(server)) => CloudAnswer::Found(server),
    };
    Some((id, word))
}

fn is_deleted(server: &Server) -> bool {
    matches!(server.status.as_str(), "DELETED" | "SOFT_DELETED")
}

/// The servers that have the volume, with what Nova said of them.
fn holders(case: &Case) -> Vec<(ServerId, CloudAnswer<&Server>)> {
    let servers = case.volume.found().map(Volume::servers).unwrap_or_default();
    servers
        .into_iter()
        .map(|id| {
            let word = match case.servers.get(&id) {
                None => CloudAnswer::Unknown,
                Some(None) => CloudAnswer::Missing,
                Some(Some(server)) if is_deleted(server) => CloudAnswer::Missing,
                Some(Some(server)) => CloudAnswer::Found(server),
            };
            (id, word)
        })
        .collect()
}

/// Holders other than the node's own server.
fn other_holder(case: &Case, is: impl Fn(&ServerId, &CloudAnswer<&Server>) -> bool) -> Option<ServerId> {
    let own = case.node_server.as_deref();
    holders(case)
        .into_iter()
        .find(|(id, word)| Some(id.as_str()) != own && is(id, word))
        .map(|(id, _)| id)
}

/// What the sidecar said last, as an ending of a sentence.
pub(super) fn said(case: &Case) -> String {
    match case.said.as_deref() {
        Some(said) => format!("what was said last: {said}"),
        None => {
            "`kubectl cinder-csi diagnose` prints the events of the claim and its pods, which may say more".to_owned()
        }
    }
}

pub(super) fn credentials_refused(case: &Case) -> Option<String> {
    let words = match &case.access {
        CloudAccess::Refused(words) => words.clone(),
        // The driver may be refused before the operator's next look.
        _ => case
            .said
            .as_deref()
            .filter(|said| said.contains("[auth]") || said.contains("Unauthenticated"))?
            .to_owned(),
    };
    Some(format!(
        "the cloud refuses the credentials of the driver, so nothing can be done with {}: fix the Secret that spec.clouds names, \
         and the driver goes on by itself ({words})",
        volume_name(case)
    ))
}

pub(super) fn cloud_unreachable(case: &Case) -> Option<String> {
    let CloudAccess::Unreachable(words) = &case.access else {
        return None;
    };
    Some(format!(
        "a service of the cloud is missing or does not answer as it should. Where the error names a region or an endpoint, correct it \
         in spec.clouds or the Secret; else the driver goes on by itself when the service answers again ({words})"
    ))
}

pub(super) fn controller_down(case: &Case) -> Option<String> {
    (!case.has_controller).then(|| {
        "no pod of the driver's controller serves; `kubectl describe` of its Deployment and pods shows why".to_owned()
    })
}

pub(super) fn node_and_server_gone(case: &Case) -> Option<String> {
    let is_gone = !case.node_exists && case.node.is_some();
    let server_is_gone = if let Some((_, word)) = node_server(case) {
        word.is_missing()
    } else {
        // The registration went with the node: then the volume's own attachments tell.
        let holders = holders(case);
        case.volume.found().is_some() && holders.iter().all(|(_, word)| word.is_missing())
    };
    (is_gone && server_is_gone).then(|| {
        format!(
            "neither node {} nor its server exists any more, so nothing uses {}: it is safe to clear. If the driver does not \
             clear it by itself, delete the VolumeAttachment's finalizer, and let the cloud's operator delete Cinder's attachment",
            node_name(case),
            volume_name(case)
        )
    })
}

pub(super) fn node_gone(case: &Case) -> Option<String> {
    (!case.node_exists && case.node.is_some()).then(|| {
        format!(
            "node {} does not exist in Kubernetes any more, and its server may still use {}: shut the server down or delete it in \
             Nova, and the detachment goes on",
            node_name(case),
            volume_name(case)
        )
    })
}

pub(super) fn server_gone(case: &Case) -> Option<String> {
    let (id, word) = node_server(case)?;
    word.is_missing().then(|| {
        format!(
            "Nova does not know server {id} of node {}: remove the Node object (`kubectl delete node {}`), and its pods start \
             elsewhere",
            node_name(case),
            node_name(case)
        )
    })
}

pub(super) fn volume_gone(case: &Case) -> Option<String> {
    case.volume.is_missing().then(|| {
        format!(
            "Cinder does not know {}: it was deleted outside of Kubernetes, or the credentials are of another project. Restore it, or \
             delete claim and pod",
            volume_name(case)
        )
    })
}

pub(super) fn in_error_state(case: &Case) -> Option<String> {
    let volume = case.volume.found()?;
    let status = volume.status.as_str();
    status.starts_with("error").then(|| {
        format!(
            "volume {} is in status {status} in Cinder: the cloud's operator has to find out why, and to reset the state \
             (`openstack volume set --state`), after which the driver goes on by itself",
            volume.id
        )
    })
}

pub(super) fn quota_exceeded(case: &Case) -> Option<String> {
    const GIB: u64 = 1 << 30;
    let remedy = "raise it, or delete what is not needed; it is tried again by itself";
    if let Some(said) = case.said.as_deref().filter(|said| said.contains("[quota]")) {
        return Some(format!("the project's quota leaves no room: {remedy} ({said})"));
    }
    // A volume that is there was within the quota.
    let there = case.volume.found().map_or(0, |volume| volume.size.bytes());
    let more = case.wanted?.saturating_sub(there).div_ceil(GIB);
    let is_new = case.volume.found().is_none();
    let mut full = case.facts.iter().map(|facts| {
        facts.quota.iter().find(|quota| {
            let left = quota.limit.saturating_sub(quota.used);
            let needed = match quota.resource.as_str() {
                "gigabytes" => more,
                "volumes" if is_new => 1,
                _ => 0,
            };
            // Which type it is to be of is not known here: only what is for all types counts.
            quota.volume_type.is_none() && left < needed
        })
    });
    let quota = full.next().flatten().filter(|_| full.all(|quota| quota.is_some()))?;
    Some(format!(
        "the project's quota of {} ({}) leaves no room for another {more} GiB: {remedy}",
        quota.resource, quota.limit
    ))
}

pub(super) fn zone_conflict(case: &Case) -> Option<String> {
    let node_zone = case.node_zone.as_ref()?;
    let wanted = case.zone_map.get(node_zone).unwrap_or(node_zone);
    if let Some(volume) = case.volume.found() {
        let zone = volume.availability_zone.as_ref()?;
        let refused = case.said.as_deref().is_some_and(|said| said.contains("zone"));
        return (zone != wanted && refused).then(|| {
            format!(
                "volume {} is in zone {zone} and node {} in zone {node_zone}: run the pod on a node of the volume's zone, or say in \
                 spec.clouds[].availabilityZoneMap which zones belong together",
                volume.id,
                node_name(case)
            )
        });
    }
    let known: Vec<&String> = case.facts.iter().flat_map(|facts| &facts.volume_zones).collect();
    (!known.is_empty() && !known.contains(&wanted)).then(|| {
        format!(
            "node {} is in zone {node_zone}, and Cinder has no zone {wanted}: say in spec.clouds[].availabilityZoneMap which zone of \
             Cinder belongs to it",
            node_name(case)
        )
    })
}

pub(super) fn not_registered(case: &Case) -> Option<String> {
    (case.node.is_some() && case.node_exists && case.node_server.is_none()).then(|| {
        format!(
            "the driver is not registered on node {}: look at its pod there and at its log",
            node_name(case)
        )
    })
}

pub(super) fn attach_limit_reached(case: &Case) -> Option<String> {
    let (limit, used) = case.node_limit?;
    (used > limit as usize).then(|| {
        format!(
            "node {} may have {limit} volumes of the driver, and {used} are wanted there: move pods to other nodes, or set \
             spec.blockStorage.nodeVolumeAttachLimit to what the hypervisor takes",
            node_name(case)
        )
    })
}

pub(super) fn still_attached(case: &Case) -> Option<String> {
    (!case.other_nodes.is_empty()).then(|| {
        format!(
            "{} has VolumeAttachments to {}, and is deleted once they are gone: stop the pods there that use it",
            volume_name(case),
            case.other_nodes.join(", ")
        )
    })
}

pub(super) fn still_claimed(case: &Case) -> Option<String> {
    (case.is_bound && case.is_terminating).then(|| {
        let claim = case.claim.as_ref();
        let claim = claim.map_or_else(
            || "a claim".to_owned(),
            |claim| format!("claim {}/{}", claim.namespace, claim.name),
        );
        format!("the PersistentVolume was deleted while {claim} is bound to it: it goes when the claim is deleted")
    })
}

pub(super) fn not_multiattach(case: &Case) -> Option<String> {
    let volume = case.volume.found()?;
    let other = other_holder(case, |_, word| !word.is_missing())?;
    (case.is_shared && !volume.multiattach).then(|| {
        format!(
            "volume {} is to be used on several nodes (ReadWriteMany), is at server {other}, and its type allows one server only: use \
             a StorageClass whose volume type has multiattach",
            volume.id
        )
    })
}

pub(super) fn attached_to_gone_server(case: &Case) -> Option<String> {
    let gone = other_holder(case, |_, word| word.is_missing())?;
    Some(format!(
        "Cinder has {} at server {gone}, which Nova does not know: nothing uses it there. The driver clears it when it detaches; if \
         it does not, the cloud's operator deletes the attachment (`openstack volume attachment delete`)",
        volume_name(case)
    ))
}

pub(super) fn attached_to_unknown_server(case: &Case) -> Option<String> {
    let is_unknown = |id: &ServerId, _: &CloudAnswer<&Server>| !case.nodes_of_servers.contains_key(id.as_str());
    let server = other_holder(case, is_unknown)?;
    Some(format!(
        "{} is attached to server {server}, which is no node of this cluster: it was attached outside of Kubernetes, or the node \
         was removed while it ran. If nothing there uses it: `openstack server remove volume {server} {}`",
        volume_name(case),
        case.volume_id.as_deref().unwrap_or("VOLUME")
    ))
}

pub(super) fn attached_to_other_node(case: &Case) -> Option<String> {
    let server = other_holder(case, |_, _| true)?;
    let node = case.nodes_of_servers.get(server.as_str())?;
    let why = if case.other_nodes.contains(node) {
        "a pod there still uses it, or its VolumeAttachment is not gone yet: stop that pod"
    } else {
        "Kubernetes has no VolumeAttachment for it there: the driver's next detachment, or `openstack server remove volume`, frees it"
    };
    Some(format!(
        "{} is attached to node {node} (server {server}): {why}",
        volume_name(case)
    ))
}

pub(super) fn server_not_active(case: &Case) -> Option<String> {
    let (id, word) = node_server(case)?;
    let server = word.found()?;
    (server.status != "ACTIVE" && !server.status.is_empty()).then(|| {
        format!(
            "server {id} of node {} is {} in Nova: start it, or delete it and the Node object, and the operation goes on",
            node_name(case),
            server.status
        )
    })
}

pub(super) fn cinder_busy(case: &Case) -> Option<String> {
    let volume = case.volume.found()?;
    let status = volume.status.as_str();
    let what = match status {
        "creating" | "downloading" | "restoring-backup" => "cinder-volume is still making it",
        "attaching" | "reserved" => "nova-compute has not finished the attachment",
        "detaching" => "nova-compute has not finished the detachment, or the guest does not release it",
        "deleting" => "cinder-volume is still deleting it",
        "extending" | "retyping" | "maintenance" => "cinder-volume is still working on it",
        _ => return None,
    };
    Some(format!(
        "volume {} is {status} in Cinder: {what}. If it stays so, the cloud's operator finds the reason in that service's log, and \
         resets the state",
        volume.id
    ))
}

pub(super) fn finalizer_left(case: &Case) -> Option<String> {
    let is_free = case.volume.is_missing()
        || (case.is_detachment() && case.volume.found().is_some_and(|volume| volume.attachments.is_empty()));
    is_free.then(|| {
        let whose = if case.is_detachment() || case.has_attacher_finalizer {
            "csi-attacher"
        } else {
            "csi-provisioner"
        };
        format!(
            "in Cinder it is done, and {} {} still waits for {whose} to remove its finalizer: look at the log of that container; \
             {}",
            case.object.0,
            case.object.1,
            said(case)
        )
    })
}

impl Case {
    fn is_detachment(&self) -> bool {
        self.object.0 == "VolumeAttachment" && self.is_terminating
    }
}

pub(super) fn delete_refused(case: &Case) -> Option<String> {
    let volume = case.volume.found()?;
    (volume.status.as_str() == "available").then(|| {
        let mut hint = format!(
            "volume {} is available in Cinder and was not deleted: snapshots or volumes made from it may hold it (`openstack volume \
             snapshot list --volume {}`)",
            volume.id, volume.id
        );
        // Writing to a string cannot fail.
        let _ = write!(hint, "; {}", said(case));
        hint
    })
}

pub(super) fn waits_for_pod(case: &Case) -> Option<String> {
    (case.waits_for_node && case.said.is_none()).then(|| {
        "the volume has grown, and its file system grows on the node where a pod uses it: start a pod with the claim".to_owned()
    })
}

pub(super) fn request_refused(case: &Case) -> Option<String> {
    let said = case.said.as_deref()?;
    let by_driver = ["InvalidArgument", "OutOfRange", "ResourceExhausted"]
        .iter()
        .any(|code| said.contains(&format!("code = {code}")));
    // Without a code the provisioner itself refuses: it has compared claim, class and source.
    let by_provisioner = case.object.0 == "PersistentVolumeClaim"
        && PROVISIONERS.iter().any(|words| said.contains(words))
        && !said.contains("code = ");
    (by_driver || by_provisioner).then(|| {
        format!("{said}. Change the claim, its class or its source; delete the claim and create it again where it cannot be changed")
    })
}

/// What the provisioner says by itself of sizes that do not fit to the source.
const PROVISIONERS: [&str; 2] = ["is less than the size", "must be greater than or equal in size"];

pub(super) fn error_reported(case: &Case) -> Option<String> {
    case.said.clone()
}

#[expect(clippy::unnecessary_wraps, reason = "as every rule")]
pub(super) fn unexplained(case: &Case) -> Option<String> {
    Some(format!("the cause is unknown; {}", said(case)))
}
