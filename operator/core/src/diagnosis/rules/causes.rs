// SPDX-License-Identifier: Apache-2.0
//! Decides from the joined facts whether a cause applies, and returns the required action. Each row of the table has
//! one function.

use cinder_cloud::CloudErrorKind;
use csi_sources::UntrustedText;

use crate::diagnosis::suspect::{Case, CloudAccess};

fn volume_name(case: &Case) -> String {
    case.volume_id
        .as_ref()
        .map_or_else(|| "the volume".to_owned(), |id| format!("volume {id}"))
}

fn node_name(case: &Case) -> &str {
    case.node.as_deref().unwrap_or("(none)")
}

/// Quotes the last error in the status of the object. Other clients write it, and it may contain text of tenants.
fn quote(said: &str) -> String {
    UntrustedText::new(said).quoted()
}

/// Returns the last error of the sidecar as the end of a sentence.
pub(super) fn said(case: &Case) -> String {
    match case.said.as_deref() {
        Some(said) => format!("the last error is {}", quote(said)),
        None => {
            "`kubectl cinder-csi diagnose` prints the events of the claim and its pods, which may say more".to_owned()
        }
    }
}

/// Whether an error of the driver is a login failure.
pub fn is_login_failure(said: &str) -> bool {
    CloudErrorKind::Credentials.is_tagged_in(said) || said.contains("Unauthenticated")
}

pub(super) fn credentials_refused(case: &Case) -> Option<String> {
    let words = match &case.access {
        CloudAccess::Refused(words) => words.clone(),
        // The driver may be rejected before the next check of the operator.
        _ => quote(case.said.as_deref().filter(|said| is_login_failure(said))?),
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

pub(super) fn quota_exceeded(case: &Case) -> Option<String> {
    let said = case
        .said
        .as_deref()
        .filter(|said| CloudErrorKind::Quota.is_tagged_in(said))?;
    Some(format!(
        "the project's quota leaves no room: raise it, or delete what is not needed; the driver retries by itself ({})",
        quote(said)
    ))
}

pub(super) fn zone_conflict(case: &Case) -> Option<String> {
    let node_zone = case.node_zone.as_ref()?;
    let wanted = case.zone_map.get(node_zone).unwrap_or(node_zone);
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
    // An error without a code comes from the provisioner itself, after it has compared claim, class and source.
    let by_provisioner = case.object.0 == "PersistentVolumeClaim"
        && PROVISIONERS.iter().any(|words| said.contains(words))
        && !said.contains("code = ");
    (by_driver || by_provisioner).then(|| {
        format!(
            "the driver or the provisioner refuses the request: change the claim, its class or its source, or delete the claim and \
             create it again where it cannot be changed ({})",
            quote(said)
        )
    })
}

/// Errors of the provisioner itself about sizes that do not match the source.
const PROVISIONERS: [&str; 2] = ["is less than the size", "must be greater than or equal in size"];

pub(super) fn error_reported(case: &Case) -> Option<String> {
    let said = case.said.as_deref()?;
    Some(format!(
        "the last error of {} {} is {}",
        case.object.0,
        case.object.1,
        quote(said)
    ))
}

#[expect(clippy::unnecessary_wraps, reason = "as every rule")]
pub(super) fn unexplained(case: &Case) -> Option<String> {
    Some(format!("the cause is unknown; {}", said(case)))
}
