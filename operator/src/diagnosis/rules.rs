//! The table of causes. A rule is a function of the joined facts; the first one that fits tells.

use std::fmt::Write as _;

use cinder_cloud::{Server, ServerId, Volume};

use super::{Case, Class, CloudAccess, Finding, Operation, Word};
use Operation::{Attach, Delete, Detach, Provision, Resize};

/// One cause.
#[derive(Clone, Copy)]
pub struct Rule {
    /// One word, part of the API.
    pub reason: &'static str,
    /// The operations that it may hold up.
    pub operations: &'static [Operation],
    /// Its kind.
    pub class: Class,
    /// What is the matter, for documentation.
    pub meaning: &'static str,
    /// Says what is the matter and what to do, when it is this.
    pub hint: fn(&Case) -> Option<String>,
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.reason)
    }
}

const fn rule(
    reason: &'static str,
    operations: &'static [Operation],
    class: Class,
    meaning: &'static str,
    hint: fn(&Case) -> Option<String>,
) -> Rule {
    Rule {
        reason,
        operations,
        class,
        meaning,
        hint,
    }
}

const ANY: &[Operation] = &Operation::ALL;
const WITH_NODE: &[Operation] = &[Attach, Detach];

/// What is said when no rule fits.
const UNEXPLAINED: &str = "Unexplained";

/// Every cause, in the order in which they are looked for: what holds up everything first, then what is certain, then what is
/// likely.
pub static RULES: &[Rule] = &[
    rule(
        "CredentialsRefused",
        ANY,
        Class::Other,
        "The cloud refuses the credentials that the driver uses.",
        credentials_refused,
    ),
    rule(
        "CloudUnreachable",
        ANY,
        Class::Other,
        "A service of the cloud does not answer as it should.",
        cloud_unreachable,
    ),
    rule(
        "ControllerDown",
        ANY,
        Class::Other,
        "No pod of the controller serves.",
        controller_down,
    ),
    rule(
        "NodeAndServerGone",
        WITH_NODE,
        Class::NodeGone,
        "Neither the node exists in Kubernetes nor its server in Nova.",
        node_and_server_gone,
    ),
    rule(
        "NodeGone",
        WITH_NODE,
        Class::NodeGone,
        "The node does not exist in Kubernetes any more.",
        node_gone,
    ),
    rule(
        "ServerGone",
        WITH_NODE,
        Class::NodeGone,
        "Nova does not know the node's server.",
        server_gone,
    ),
    rule(
        "VolumeGone",
        &[Attach, Detach, Resize],
        Class::Other,
        "Cinder does not know the volume.",
        volume_gone,
    ),
    rule(
        "InErrorState",
        ANY,
        Class::InErrorState,
        "The volume's status in Cinder is an error.",
        in_error_state,
    ),
    rule(
        "QuotaExceeded",
        &[Provision, Resize],
        Class::Other,
        "The project's quota leaves no room for it.",
        quota_exceeded,
    ),
    rule(
        "ZoneConflict",
        &[Provision, Attach],
        Class::Other,
        "The zones of node and volume do not fit together.",
        zone_conflict,
    ),
    rule(
        "NotRegistered",
        &[Attach],
        Class::Other,
        "The driver is not registered on the node.",
        not_registered,
    ),
    rule(
        "AttachLimitReached",
        &[Attach],
        Class::Other,
        "The node has as many volumes as it may have.",
        attach_limit_reached,
    ),
    rule(
        "StillAttached",
        &[Delete],
        Class::Other,
        "Kubernetes has the volume at nodes.",
        still_attached,
    ),
    rule(
        "StillClaimed",
        &[Delete],
        Class::Other,
        "The PersistentVolume was deleted while a claim is bound to it.",
        still_claimed,
    ),
    rule(
        "NotMultiattach",
        &[Attach],
        Class::Other,
        "Several nodes are to have the volume, and its type does not allow that.",
        not_multiattach,
    ),
    rule(
        "AttachedToGoneServer",
        ANY,
        Class::NodeGone,
        "Cinder has the volume at a server that Nova does not know.",
        attached_to_gone_server,
    ),
    rule(
        "AttachedToUnknownServer",
        &[Attach, Delete],
        Class::Other,
        "Cinder has the volume at a server that is no node of this cluster.",
        attached_to_unknown_server,
    ),
    rule(
        "AttachedToOtherNode",
        &[Attach, Delete],
        Class::Other,
        "Cinder has the volume at another node of this cluster.",
        attached_to_other_node,
    ),
    rule(
        "ServerNotActive",
        WITH_NODE,
        Class::Other,
        "The node's server is not active in Nova.",
        server_not_active,
    ),
    rule(
        "CinderBusy",
        ANY,
        Class::Other,
        "Cinder says that the operation is under way.",
        cinder_busy,
    ),
    rule(
        "FinalizerLeft",
        &[Delete, Detach],
        Class::Other,
        "Cinder has done it, and Kubernetes still waits.",
        finalizer_left,
    ),
    rule(
        "DeleteRefused",
        &[Delete],
        Class::Other,
        "Cinder does not delete a volume that nothing is attached to.",
        delete_refused,
    ),
    rule(
        "WaitsForPod",
        &[Resize],
        Class::Other,
        "Only the file system is left to grow, which happens where a pod uses it.",
        waits_for_pod,
    ),
    rule(
        "RequestRefused",
        &[Provision, Attach, Resize],
        Class::Other,
        "The driver refuses what the claim, its class or its source asks for.",
        request_refused,
    ),
    rule(
        UNEXPLAINED,
        ANY,
        Class::Other,
        "Nothing that is known explains it.",
        unexplained,
    ),
];

/// The reasons, in the order of the rules.
pub static REASONS: std::sync::LazyLock<Vec<&'static str>> =
    std::sync::LazyLock::new(|| RULES.iter().map(|rule| rule.reason).collect());

/// Why an operation does not end.
pub fn explain(operation: Operation, case: &Case) -> Finding {
    let fitting = RULES.iter().filter(|rule| rule.operations.contains(&operation));
    let found = fitting.filter_map(|rule| {
        let hint = (rule.hint)(case)?;
        Some(Finding {
            reason: rule.reason,
            class: rule.class,
            hint,
        })
    });
    let mut found = found;
    found.next().unwrap_or_else(|| Finding {
        reason: UNEXPLAINED,
        class: Class::Other,
        hint: said(case),
    })
}

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
fn node_server(case: &Case) -> Option<(&str, Word<&Server>)> {
    let id = case.node_server.as_deref()?;
    let word = match case.servers.get(&ServerId::new(id)) {
        None => Word::Unknown,
        Some(None) => Word::Missing,
        Some(Some(server)) if is_deleted(server) => Word::Missing,
        Some(Some(server)) => Word::Found(server),
    };
    Some((id, word))
}

fn is_deleted(server: &Server) -> bool {
    matches!(server.status.as_str(), "DELETED" | "SOFT_DELETED")
}

/// The servers that have the volume, with what Nova said of them.
fn holders(case: &Case) -> Vec<(ServerId, Word<&Server>)> {
    let servers = case.volume.found().map(Volume::servers).unwrap_or_default();
    servers
        .into_iter()
        .map(|id| {
            let word = match case.servers.get(&id) {
                None => Word::Unknown,
                Some(None) => Word::Missing,
                Some(Some(server)) if is_deleted(server) => Word::Missing,
                Some(Some(server)) => Word::Found(server),
            };
            (id, word)
        })
        .collect()
}

/// Holders other than the node's own server.
fn other_holder(case: &Case, is: impl Fn(&ServerId, &Word<&Server>) -> bool) -> Option<ServerId> {
    let own = case.node_server.as_deref();
    holders(case)
        .into_iter()
        .find(|(id, word)| Some(id.as_str()) != own && is(id, word))
        .map(|(id, _)| id)
}

/// What the sidecar said last, as an ending of a sentence.
fn said(case: &Case) -> String {
    match case.said.as_deref() {
        Some(said) => format!("what was said last: {said}"),
        None => "the events of claim and pod, and the logs of the controller's pods, may say more".to_owned(),
    }
}

fn credentials_refused(case: &Case) -> Option<String> {
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
        "the cloud refuses the credentials of the driver, so nothing can be done with {}: mend the Secret that spec.clouds names, \
         and the driver goes on by itself ({words})",
        volume_name(case)
    ))
}

fn cloud_unreachable(case: &Case) -> Option<String> {
    let CloudAccess::Unreachable(words) = &case.access else {
        return None;
    };
    Some(format!(
        "a service of the cloud does not answer as it should; the driver goes on by itself when it does again ({words})"
    ))
}

fn controller_down(case: &Case) -> Option<String> {
    (!case.has_controller).then(|| {
        "no pod of the driver's controller serves; `kubectl describe` of its Deployment and pods tells why".to_owned()
    })
}

fn node_and_server_gone(case: &Case) -> Option<String> {
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
            "neither node {} nor its server exists any more, so {} is in use by nobody: it is safe to clear. If the driver does not \
             clear it by itself, delete the VolumeAttachment's finalizer, and let the cloud's operator delete Cinder's attachment",
            node_name(case),
            volume_name(case)
        )
    })
}

fn node_gone(case: &Case) -> Option<String> {
    (!case.node_exists && case.node.is_some()).then(|| {
        format!(
            "node {} does not exist in Kubernetes any more, and its server may still use {}: shut the server down or delete it in \
             Nova, and the detachment goes on",
            node_name(case),
            volume_name(case)
        )
    })
}

fn server_gone(case: &Case) -> Option<String> {
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

fn volume_gone(case: &Case) -> Option<String> {
    case.volume.is_missing().then(|| {
        format!(
            "Cinder does not know {}: it was deleted outside of Kubernetes, or the credentials are of another project. Restore it, or \
             delete claim and pod",
            volume_name(case)
        )
    })
}

fn in_error_state(case: &Case) -> Option<String> {
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

fn quota_exceeded(case: &Case) -> Option<String> {
    const GIB: u64 = 1 << 30;
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
        "the project's quota of {} ({}) leaves no room for another {more} GiB: raise it, or delete what is not needed; it is tried \
         again by itself",
        quota.resource, quota.limit
    ))
}

fn zone_conflict(case: &Case) -> Option<String> {
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

fn not_registered(case: &Case) -> Option<String> {
    (case.node.is_some() && case.node_exists && case.node_server.is_none()).then(|| {
        format!(
            "the driver is not registered on node {}: look at its pod there and at its log",
            node_name(case)
        )
    })
}

fn attach_limit_reached(case: &Case) -> Option<String> {
    let (limit, used) = case.node_limit?;
    (used > limit as usize).then(|| {
        format!(
            "node {} may have {limit} volumes of the driver, and {used} are wanted there: move pods to other nodes, or set \
             spec.blockStorage.nodeVolumeAttachLimit to what the hypervisor takes",
            node_name(case)
        )
    })
}

fn still_attached(case: &Case) -> Option<String> {
    (!case.other_nodes.is_empty()).then(|| {
        format!(
            "{} has VolumeAttachments to {}, and is deleted once they are gone: stop the pods there that use it",
            volume_name(case),
            case.other_nodes.join(", ")
        )
    })
}

fn still_claimed(case: &Case) -> Option<String> {
    (case.is_bound && case.is_terminating).then(|| {
        let claim = case.claim.as_ref();
        let claim = claim.map_or_else(
            || "a claim".to_owned(),
            |claim| format!("claim {}/{}", claim.namespace, claim.name),
        );
        format!("the PersistentVolume was deleted while {claim} is bound to it: it goes when the claim is deleted")
    })
}

fn not_multiattach(case: &Case) -> Option<String> {
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

fn attached_to_gone_server(case: &Case) -> Option<String> {
    let gone = other_holder(case, |_, word| word.is_missing())?;
    Some(format!(
        "Cinder has {} at server {gone}, which Nova does not know: nobody uses it there. The driver clears it when it detaches; if \
         it does not, the cloud's operator deletes the attachment (`openstack volume attachment delete`)",
        volume_name(case)
    ))
}

fn attached_to_unknown_server(case: &Case) -> Option<String> {
    let is_unknown = |id: &ServerId, _: &Word<&Server>| !case.nodes_of_servers.contains_key(id.as_str());
    let server = other_holder(case, is_unknown)?;
    Some(format!(
        "{} is attached to server {server}, which is no node of this cluster: somebody attached it outside of Kubernetes, or the node \
         was removed while it ran. If nothing there uses it: `openstack server remove volume {server} {}`",
        volume_name(case),
        case.volume_id.as_deref().unwrap_or("VOLUME")
    ))
}

fn attached_to_other_node(case: &Case) -> Option<String> {
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

fn server_not_active(case: &Case) -> Option<String> {
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

fn cinder_busy(case: &Case) -> Option<String> {
    let volume = case.volume.found()?;
    let status = volume.status.as_str();
    let what = match status {
        "creating" | "downloading" | "restoring-backup" => "cinder-volume is still making it",
        "attaching" | "reserved" => "nova-compute has not finished the attachment",
        "detaching" => "nova-compute has not finished the detachment, or the guest does not let it go",
        "deleting" => "cinder-volume is still deleting it",
        "extending" | "retyping" | "maintenance" => "cinder-volume is still at it",
        _ => return None,
    };
    Some(format!(
        "volume {} is {status} in Cinder: {what}. If it stays so, the cloud's operator finds the reason in that service's log, and \
         resets the state",
        volume.id
    ))
}

fn finalizer_left(case: &Case) -> Option<String> {
    let is_free = case.volume.is_missing()
        || (case.is_detachment() && case.volume.found().is_some_and(|volume| volume.attachments.is_empty()));
    is_free.then(|| {
        let whose = if case.is_detachment() || case.has_attacher_finalizer {
            "csi-attacher"
        } else {
            "csi-provisioner"
        };
        format!(
            "in Cinder it is done, and {} {} still waits for {whose} to take its finalizer away: look at the log of that container; \
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

fn delete_refused(case: &Case) -> Option<String> {
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

fn waits_for_pod(case: &Case) -> Option<String> {
    case.waits_for_node.then(|| {
        "the volume has grown, and its file system grows on the node where a pod uses it: start a pod with the claim".to_owned()
    })
}

fn request_refused(case: &Case) -> Option<String> {
    let said = case.said.as_deref()?;
    let is_final = ["InvalidArgument", "OutOfRange"]
        .iter()
        .any(|code| said.contains(&format!("code = {code}")));
    is_final.then(|| {
        format!(
            "what the claim, its class or its source asks for cannot be had; mend that, and make the claim anew where it cannot be \
             changed ({said})"
        )
    })
}

#[expect(clippy::unnecessary_wraps, reason = "as every rule")]
fn unexplained(case: &Case) -> Option<String> {
    Some(format!(
        "nothing that Kubernetes, Cinder and Nova tell explains it; {}",
        said(case)
    ))
}

#[cfg(test)]
mod tests;
